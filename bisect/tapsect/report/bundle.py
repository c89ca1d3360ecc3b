"""Case and report in one archive, for somebody who has neither model nor tool.

The same finding gives the same bytes.  With private names replaced, the check is run again on
every replacement of numbers: what no longer shows the failure is not handed over.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from debugtaps import InputError
from tapsect.finding import Finding
from tapsect.folder import CASE, MARKDOWN
from tapsect.report.markdown import render_markdown
from tapsect.report.ownrun import case_facts
from tapsect.traced import read_profile

__all__ = ["bundle"]

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILES = frozenset(
    {"model.onnx", "model.onnx.data", "min_good.onnx", "min_good.onnx.data", "inputs.npz",
     "expected.npz", "check.py", "engine.py", "README.md", "environment.json"}
)  # fmt: skip
"""What a case holds; whatever else a user laid into its folder stays with the user."""


def bundle(
    finding: Finding, folder: Path, *, redact: bool = False
) -> tuple[bytes, tuple[str, ...]]:
    """Returns the archive, and what its owner should know of it.

    Args:
        finding: The result.
        folder: Where it lies, with its case.
        redact: Replace private names, and numbers where the failure allows it.

    Raises:
        InputError: There is no case, or with other names it does not fail any more.
    """
    case = folder / CASE
    if finding.minimal is None or not (case / "check.py").is_file():
        raise InputError(
            f"{folder} holds no case to hand over: nothing was found that fails alone; give the"
            " report itself, with --format markdown."
        )
    with tempfile.TemporaryDirectory(prefix="tapsect-bundle-") as held:
        draft, notes = Path(held), tuple[str, ...]()
        for path in _files(case):
            (draft / CASE).mkdir(exist_ok=True)
            shutil.copyfile(path, draft / CASE / path.name)
        facts = case_facts(folder)
        if redact:
            from tapsect.report.redact import Names
            from tapsect.report.redact_case import redact_case

            names = Names.of(finding, read_profile(folder), folder)
            notes = redact_case(draft / CASE, finding, names)
            finding, facts = names.finding(finding), case_facts(draft)
        text = render_markdown(finding, case=facts)
        (draft / MARKDOWN).write_text(text, encoding="utf-8")
        return _archive(draft), notes


def _files(case: Path) -> Iterator[Path]:
    """Yields the files of a case; links are not followed."""
    for path in sorted(case.iterdir()):
        if path.name in _FILES and path.is_file() and not path.is_symlink():
            yield path


def _archive(draft: Path) -> bytes:
    """Returns report and case as a zip that depends on nothing but them.

    What Python compiled while the check was run names folders of this machine and stays behind.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in [*_files(draft / CASE), draft / MARKDOWN]:
            info = zipfile.ZipInfo(path.relative_to(draft).as_posix(), _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, path.read_bytes())
    return buffer.getvalue()
