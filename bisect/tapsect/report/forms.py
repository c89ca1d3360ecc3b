"""Every form of a report by its name: from a finding and its folder to the bytes of one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from debugtaps import OutputError, write_atomic
from tapsect.finding import Finding
from tapsect.report.ci import render_jsonl, render_junit
from tapsect.report.markdown import render_markdown
from tapsect.report.ownrun import CaseFacts, case_facts
from tapsect.report.terminal import render_text
from tapsect.traced import Profile, read_profile

__all__ = ["Form", "Made", "make"]

Form = Literal["terminal", "html", "markdown", "zip", "junit", "jsonl"]


@dataclass(frozen=True, slots=True)
class Made:
    """One file's content, and what its owner should know of it."""

    data: bytes
    notes: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
            OutputError: It cannot be written.
        """
        try:
            write_atomic(path, self._into)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None

    def _into(self, file: IO[bytes]) -> None:
        file.write(self.data)


def make(finding: Finding, folder: Path, form: Form, *, redact: bool = False) -> Made:
    """Returns a finding in one form.

    Args:
        finding: The result.
        folder: Where it lies, with the case and the profile.
        form: Which form.
        redact: Replace private names by hashes.

    Raises:
        InputError: A file of the folder is damaged, or there is no case to hand over.
        MissingPackage: The page needs the extra ``report``.
    """
    if form == "zip":
        from tapsect.report.bundle import bundle

        return Made(*bundle(finding, folder, redact=redact))
    profile = read_profile(folder) if form == "html" or redact else None
    case = case_facts(folder) if form == "markdown" else None
    shown: Path | None = folder
    if redact:
        from tapsect.report.redact import Names

        names = Names.of(finding, profile, folder)
        finding, shown = names.finding(finding), None
        profile = names.profile(profile) if profile is not None else None
        case = names.case(case) if case is not None else None
    return Made(_text(form, finding, profile, case, shown).encode("utf-8"))


def _text(
    form: Form, finding: Finding, profile: Profile | None, case: CaseFacts | None,
    folder: Path | None,
) -> str:  # fmt: skip
    if form == "html":
        from tapsect.report.page import render_page

        return render_page(finding, profile, folder=folder)
    if form == "markdown":
        return render_markdown(finding, folder=folder, case=case)
    if form == "junit":
        return render_junit([finding])
    if form == "jsonl":
        return render_jsonl([finding])
    return render_text(finding, folder=folder)
