"""What the user of ``tapsect repeat`` and ``tapsect tactics prove`` asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from debugtaps import UsageError
from tapsect.axes.repeat import Until
from tapsect.checks import Artifacts, Ask, CommandLine
from tapsect.diagnose.given import Options

__all__ = ["CANDIDATE", "Check", "Plan"]

CANDIDATE = Path("tapsect_candidate.engine")
"""Where the engine stands while a command or a person judges it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Who says whether a build is good.

    Attributes:
        line: A command; without it and without ``ask`` the engine is held against the reference.
        ask: Asks a person.
        runs: How often each build is run and judged.
        artifacts: Files to sort into good and bad.
    """

    line: CommandLine | None = None
    ask: Ask | None = None
    runs: int = 3
    artifacts: Artifacts | None = None

    @property
    def builtin(self) -> bool:
        """Returns whether the engine is held against the reference."""
        return self.line is None and self.ask is None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is repeated.

    Attributes:
        options: Model, inputs, engine and reference, as ``tapsect bisect`` has them.
        check: Who says whether a build is good.
        until: When it is enough.
        tactics: Where each build's tactics are written, if anywhere.
        jobs: Builds at a time.
    """

    options: Options
    check: Check = field(default_factory=Check)
    until: Until = field(default_factory=Until)
    tactics: Path | None = None
    jobs: int = 1

    def check_jobs(self) -> None:
        """Checks that builds may go on beside each other.

        Raises:
            UsageError: Each is looked at where the one before it was.
        """
        alone = not self.check.builtin or self.check.artifacts is not None or self.tactics
        if self.jobs > 1 and alone:
            raise UsageError(
                "--jobs: several builds at a time need the reference to judge them, and no"
                " artifacts; leave --check, --ask, --artifacts and --save-tactics out, or --jobs"
            )
