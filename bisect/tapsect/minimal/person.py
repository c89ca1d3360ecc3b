"""A person says whether a candidate fails."""

from __future__ import annotations

from pathlib import Path

from debugtaps import OutputError, write_npz
from tapsect.checks import Ask, ask_verdict
from tapsect.escape import clean
from tapsect.journal import Journal
from tapsect.minimal.trial import Trial
from tapsect.reduction import Answer
from tapsect.verdict import Signature, Verdict

__all__ = ["PersonCheck"]


class PersonCheck:
    """Judges by asking a person; what was answered once is not asked again.

    Args:
        ask: Shows a text and returns what was typed; an empty line when nobody answers.
        artifact: Where the candidate stands while it is asked for.
        journal: Answers of an earlier run; new ones are written down there.
    """

    def __init__(self, ask: Ask, artifact: Path, journal: Journal) -> None:
        self.ask, self.artifact, self.journal = ask, artifact, journal
        self.coming: list[str] = []
        self.asked = 0

    def __call__(self, trial: Trial, *, fresh: int = 0, lane: int = 0) -> Answer:
        """Returns what the person says of a trial."""
        key = f"{trial.key(fed=True)}.{fresh}"
        known = self.journal.known.get(key)
        word = known["said"] if known else self._said(trial)
        if not known:
            entry = {"entry": "probe", "key": key, "purpose": "person", "said": word}
            self.journal.append(entry)
            self.journal.known[key] = entry
        if word == "bad":
            return Verdict.DIVERGES, Signature("by hand")
        return (Verdict.AGREES if word == "good" else Verdict.INVALID), None

    def _said(self, trial: Trial) -> str:
        try:
            trial.write(self.artifact)
            if trial.samples:
                write_npz(self.artifact.with_suffix(".npz"), trial.samples[0])
        except OSError as error:
            raise OutputError(f"{self.artifact} cannot be written ({error.strerror}).") from None
        self.asked += 1
        text = f"\n{self.asked}. {clean(trial.label)}\n   {clean(str(self.artifact))}"
        if self.coming:
            text += f"\n   if it is good, next: {self.coming[0]}"
        return ask_verdict(self.ask, text)
