"""What the user says of the whole: golden values, the original of a converted model, a judge.

They decide whether the start fails.  Parts of it have no golden values and no boxes to judge: for
them the reference tells what is right, as it does where a diagnosis looks for the place.
"""

from __future__ import annotations

from tapsect.diagnose.ends import EndJudge, Truth
from tapsect.diagnose.subject import Subject

__all__ = ["GivenTruth"]


class GivenTruth:
    """Judges the whole, one sample at a time.

    Args:
        subject: Holds what the user gave.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._judge = EndJudge(subject, Truth(subject))

    def fails(self, sample: int, *, fresh: int = 0) -> bool | None:
        """Returns whether the engine's outputs of a sample are wrong; ``None`` without outputs."""
        subject = self.subject
        outcome = subject.prober.look(
            subject.model, [subject.samples[sample]], purpose="whole", fresh=fresh
        )
        if outcome.failure is not None:
            return None
        judged = self._judge.judge(sample, outcome.values[0])
        return any(end.failing for end, _ in judged.values())

    @property
    def source(self) -> str:
        """Returns what was given, in words."""
        if self.subject.judge is not None:
            return "the judge"
        return "the original model" if self.subject.original is not None else "the golden values"
