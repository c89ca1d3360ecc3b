"""Is the whole model cured?  Built anew with something changed, judged as the diagnosis judges."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from debugtaps import SpecError, WorkerError
from tapsect.axes.knobs import Test, Turns, applied, find_cures
from tapsect.diagnose.ends import EndJudge
from tapsect.diagnose.subject import Subject
from tapsect.journal import Outcome
from tapsect.localize.taps import Ends
from tapsect.request import Request
from tapsect.search.foresight import begun_early

__all__ = ["CureTest", "Tried"]

Asks = Callable[[], Request | None]

_EITHER = (False, True)

TIMED = 7_000
"""Numbers of fresh probes from here on are those whose latency is measured."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What one try showed.

    Attributes:
        cures: No output of any sample is in question.
        error: The worst output's rms error over the rms of what it should be; None without values.
        latency: Seconds of one run, where it was measured.
    """

    cures: bool
    error: float | None = None
    latency: float | None = None


@dataclass
class CureTest:
    """Builds the whole model, changed, and judges its outputs.

    Attributes:
        subject: The diagnosis' material.
        judge: Judges outputs; None when the reference has no values for them.
        repeats: Builds that must all be right: more than one where the failure is flaky.
        enough: The error at which a try counts as well, where rounding is the cause.
        deadline: When to stop trying; what is not tried does not cure.
    """

    subject: Subject
    judge: EndJudge | None
    repeats: int = 1
    enough: float = 0.0
    deadline: float = math.inf
    tries: int = field(default=0, init=False)

    @property
    def spent(self) -> bool:
        """Returns whether time is up."""
        return time.monotonic() >= self.deadline

    def __call__(self, turns: Turns) -> bool:
        """Returns whether these settings cure."""
        looks = (self.look(turns, fresh=n) for n in range(self.repeats))
        return not self.spent and all(self.helps(tried) for tried in looks)

    def find(
        self, grouped: Sequence[Turns], *, test: Test | None = None, request: Asks | None = None,
        most: int = 1, thorough: bool = False, kept: Turns = (),
    ) -> list[Turns]:  # fmt: skip
        """Returns sets of settings that each cure; see ``find_cures``.

        Args:
            grouped: Settings, by group.
            test: Whether settings cure; asks the whole model when None.
            request: What ``test`` builds first, for builds that are begun early.
            most: As of ``find_cures``.
            thorough: As of ``find_cures``.
            kept: As of ``find_cures``.
        """
        test, request = test or self, request or self._request

        def search(ask: Test) -> list[Turns]:
            return find_cures(grouped, ask, most=most, thorough=thorough, kept=kept)

        return begun_early(search, test, lambda sets: self._begin(sets, request), lambda _: _EITHER)

    def _begin(self, sets: Iterable[Turns], request: Asks) -> None:
        usual, prober = self.subject.specs[0].options, self.subject.prober

        def asked(turns: Turns) -> Request | None:
            with prober.meaning(applied(usual, turns)):
                return request()

        if not self.spent:
            prober.begin(map(asked, sets))

    def _request(self) -> Request | None:
        subject = self.subject
        return subject.prober.request(subject.model, subject.samples, purpose="fix")

    def helps(self, tried: Tried) -> bool:
        """Returns whether a try is good enough."""
        return tried.cures or (tried.error is not None and tried.error <= self.enough)

    def look(
        self, turns: Turns = (), *, model: Path | None = None, fresh: int = 0, timed: bool = False
    ) -> Tried:
        """Returns what a build shows.

        Args:
            turns: Settings that are turned.
            model: The changed model; the one that was given when None.
            fresh: Distinguishes repeated builds.
            timed: Whether to measure the latency, in a process of its own.
        """
        self.tries += 1
        subject, prober = self.subject, self.subject.prober
        try:
            with self.turned(turns):
                if timed:
                    subject.engine.close()  # the next request starts a fresh process
                outcome = prober.look(
                    model or subject.model, subject.samples, purpose="fix",
                    fresh=fresh + (TIMED if timed else 0), timed=timed,
                )  # fmt: skip
        except (SpecError, WorkerError):  # it cannot be set so, or dies of it
            return Tried(cures=False)
        return self._judged(outcome)

    @contextmanager
    def turned(self, turns: Turns) -> Iterator[None]:
        """Has the engine's settings turned for as long as it lasts."""
        if not turns:
            yield
            return
        with self.subject.prober.turned(applied(self.subject.specs[0].options, turns)):
            yield

    def _judged(self, outcome: Outcome) -> Tried:
        if outcome.failure is not None:
            return Tried(cures=False)
        if self.judge is None:
            return Tried(cures=True, latency=outcome.latency)
        ends = [self.judge.judge(n, values) for n, values in enumerate(outcome.values)]
        cures = not any(end.failing for sample in ends for end, _ in sample.values())
        return Tried(cures, worst_error(ends), outcome.latency)


def worst_error(samples: Sequence[Ends]) -> float | None:
    """Returns the largest relative rms error over all outputs of all samples."""
    ends = [end for sample in samples for end, _ in sample.values()]
    if any(end.nonfinite_engine != end.nonfinite_reference for end in ends):
        return math.inf
    errors = [e.error / e.scale if e.scale else e.error for e in ends if e.error is not None]
    return max(errors, default=None)
