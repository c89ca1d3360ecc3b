"""What a diagnosis decided so far, before it becomes a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from debugtaps import EngineFailure
from tapsect.diagnose.blame import Blame
from tapsect.diagnose.exported import Export
from tapsect.finding import Fix, Status, Step
from tapsect.localize.explain import Amplifier
from tapsect.localize.taps import Located, Suspect
from tapsect.observed import InputsSeen
from tapsect.replay.regions import Judgement
from tapsect.rounding.outputs import End

__all__ = ["Told"]


@dataclass
class Told:
    """What a diagnosis decided so far."""

    status: Status = "inconclusive"
    cause: str | None = None
    failure: str | None = None
    engine_failure: EngineFailure | None = None
    ends: list[list[End]] = field(default_factory=list)
    failing_samples: tuple[int, ...] = ()
    sample: int = 0
    flaky: str | None = None
    located: Located | None = None
    blame: Blame | None = None
    contributors: tuple[Suspect, ...] = ()
    amplifier: Amplifier | None = None
    amplified: tuple[End, float] | None = None
    export: Export | None = None
    explained: str = ""
    kernel: Judgement | None = None
    fixes: tuple[Fix, ...] = ()
    fix_builds: int = 0
    inputs: InputsSeen | None = None
    trail: tuple[Step, ...] = ()
    seconds: float = 0.0
    first: str = ""
    tactics: Mapping[str, str] = field(default_factory=dict)

    def take(self, blame: Blame) -> None:
        """Takes in what was proved; a fault that strikes at times has that as its cause."""
        self.blame, self.cause = blame, blame.cause
        self.flaky = self.flaky or blame.flaky
        self.status = "inconclusive" if blame.cause is None else "diverges"
        if self.flaky and blame.cause in (None, "engine_defect"):
            self.status, self.cause = "diverges", self.flaky
