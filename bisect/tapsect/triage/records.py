"""What a history holds: runs, findings, observations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tapsect.triage.signatures import Signature
from tapsect.triage.states import Verdict

__all__ = ["Found", "Observation", "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a suite."""

    id: str
    suite: str
    plan: str
    folder: str
    started: dt.datetime
    finished: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What one diagnosis found, or why it could not be made; ``result`` is ``result.json``."""

    key: str
    made: dt.datetime
    folder: str
    message: str
    facts: Mapping[str, Any]
    signature: Signature | None = None
    cause: str | None = None
    seconds: float = 0.0
    builds: int = 0
    result: Mapping[str, Any] | None = None
    id: str = ""

    @property
    def reusable(self) -> bool:
        """Returns whether an equal key needs no second look."""
        return self.result is not None and self.cause not in ("flaky_build", "flaky_run")


@dataclass(frozen=True, slots=True)
class Observation:
    """What a run saw of an entry; since when, as ``since.borders`` tells it."""

    entry: str
    found: Found
    verdict: Verdict
    made: dt.datetime
    cached: bool = False
    good: str | None = None
    bad: str | None = None
