"""The same build again and again: how often is it bad, and is it the build or the run?

Pure: what an attempt is, and how it is judged, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tapsect.search.rates import alike_for, interval
from tapsect.verdict import Verdict

__all__ = ["Attempt", "Tally", "Until", "repeat"]

RARE = 0.05
"""Rate below which ``--until good`` and ``--until bad`` stop waiting, when 95 % sure of it."""

COMMON = 0.3
"""Rate that builds without a count are made to rule out, when 99.9 % sure of it."""

WIDTH = 0.4
"""Width of the interval at which a rate that is neither 0 nor 1 is known well enough."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One build and what its runs were judged.

    Attributes:
        number: Which build, from 0.
        runs: What each run was judged; one that could not be built or judged is ``INVALID``.
        tactics: What the builder chose, by key, where it says.
        why: What was seen, in words.
        seconds: How long it took.
    """

    number: int
    runs: tuple[Verdict, ...]
    tactics: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Returns what the build is: bad when any run is, good when any other could be judged."""
        for verdict in (Verdict.DIVERGES, Verdict.AGREES):
            if verdict in self.runs:
                return verdict
        return Verdict.INVALID

    @property
    def mixed(self) -> bool:
        """Returns whether runs of this one build disagree."""
        return {Verdict.DIVERGES, Verdict.AGREES} <= set(self.runs)


@dataclass
class Tally:
    """What attempts showed together."""

    attempts: list[Attempt] = field(default_factory=list)
    stopped: str = ""

    @property
    def bad(self) -> int:
        """Returns how many builds are bad."""
        return sum(a.verdict is Verdict.DIVERGES for a in self.attempts)

    @property
    def good(self) -> int:
        """Returns how many builds are good."""
        return sum(a.verdict is Verdict.AGREES for a in self.attempts)

    @property
    def skipped(self) -> int:
        """Returns how many builds could not be judged."""
        return len(self.attempts) - self.bad - self.good

    @property
    def mixed(self) -> int:
        """Returns of how many builds the runs disagree."""
        return sum(a.mixed for a in self.attempts)

    def runs(self) -> tuple[int, int]:
        """Returns how many runs were bad, of those judged."""
        judged = [r for a in self.attempts for r in a.runs if r is not Verdict.INVALID]
        return sum(r is Verdict.DIVERGES for r in judged), len(judged)

    @property
    def unit(self) -> Literal["build", "run"]:
        """Returns what varies: runs where those of one build disagree, builds otherwise."""
        return "run" if self.mixed else "build"

    def counts(self) -> tuple[int, int]:
        """Returns how often what varies was bad, of how often."""
        return self.runs() if self.unit == "run" else (self.bad, self.bad + self.good)

    def interval(self) -> tuple[float, float]:
        """Returns the 95 % interval of the rate of what varies."""
        return interval(*self.counts())

    @property
    def cause(self) -> Literal["flaky_build", "flaky_run"] | None:
        """Returns how it is unsteady, in the words of ``result.json``; None when it is not."""
        if self.mixed:
            return "flaky_run"
        return "flaky_build" if self.bad and self.good else None


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop.

    Attributes:
        count: After so many builds; None when the answer is waited for.
        wanted: At the first build that is this; None when neither is waited for.
    """

    count: int | None = None
    wanted: Verdict | None = None

    @classmethod
    def parse(cls, text: str | None) -> Until | None:
        """Returns what ``--until`` says; None when it is neither a number, good nor bad."""
        if text is None:
            return cls()
        words = {"good": Verdict.AGREES, "bad": Verdict.DIVERGES}
        if text in words:
            return cls(wanted=words[text])
        return cls(count=int(text)) if text.isdigit() and int(text) > 0 else None

    def reached(self, tally: Tally) -> str:
        """Returns why it is enough; empty when it is not."""
        count = len(tally.attempts)
        if self.count is not None:
            return "as many builds as asked for" if count >= self.count else ""
        if self.wanted is not None:
            return self._found(tally)
        low, high = tally.interval()
        alike = alike_for(COMMON, miss=0.001)
        if tally.skipped >= alike and not tally.bad + tally.good:
            return f"{alike} builds could not be judged"
        if (tally.bad == 0) is not (tally.good == 0):
            enough = tally.bad + tally.good >= alike
            return f"{alike} alike: another answer comes less often than {COMMON:.0%}" * enough
        known = tally.bad > 0 and high - low <= WIDTH
        return "both good and bad were seen, and the rate is known well enough" * known

    def _found(self, tally: Tally) -> str:
        name = "good" if self.wanted is Verdict.AGREES else "bad"
        if any(a.verdict is self.wanted for a in tally.attempts):
            return f"the first {name} build"
        most = alike_for(RARE)
        rare = len(tally.attempts) >= most
        return f"{most} builds without a {name} one: rarer than {RARE:.0%}" * rare


def repeat(
    attempt: Callable[[int], Attempt], until: Until, heard: Callable[[Tally], None]
) -> Tally:
    """Builds until it is enough.

    Args:
        attempt: Makes and judges the build of that number.
        until: When to stop.
        heard: Hears of each attempt.

    Returns:
        The attempts, and why there are no more.
    """
    tally = Tally()
    while not (why := until.reached(tally)):
        tally.attempts.append(attempt(len(tally.attempts)))
        heard(tally)
    tally.stopped = why
    return tally
