"""A failure that does not come each time: how often it comes, and what that asks of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from tapsect.axes.repeat import Attempt, Until, repeat
from tapsect.axes.tactics import difference, replays_of
from tapsect.diagnose.subject import Subject
from tapsect.journal import Outcome
from tapsect.localize.confirm import Confirmed
from tapsect.localize.examine import Examiner
from tapsect.observed import Repeats
from tapsect.request import Request
from tapsect.search.noisy import Firing, repeats_for
from tapsect.search.rates import alike_for, interval
from tapsect.verdict import Verdict

__all__ = [
    "confidence_in",
    "firing_of",
    "looks_for",
    "measure",
    "measure_part",
    "said",
    "tries_for",
]

MEASURED = 12
"""Builds that measure a rate: at 30 % and at 70 % all but one of a hundred such dozens fail."""

MOST = 40
STRAY = 1e-3
UNMEASURED = 8
"""How often to ask before the rate is known."""

Judged = Callable[[Outcome], list[bool]]
"""Says of each run of a build whether it failed."""


def measure(subject: Subject, feeds: Sequence[int], judged: Judged, *, first: int = 1) -> Repeats:
    """Returns how often the untapped model fails, from builds of its own.

    The build that began the diagnosis does not count: without its failure nobody would ask.

    Args:
        subject: The diagnosis' material.
        feeds: The samples to run, by number, once for each run.
        judged: Says of each run of a build whether it failed.
        first: Number of the first build; builds that were made before are remembered.
    """
    samples, prober = [subject.samples[number] for number in feeds], subject.prober

    def request(number: int) -> Request:
        return prober.request(
            subject.model, samples, fresh=first + number, purpose="again", details=True
        )

    def attempt(number: int) -> Attempt:
        subject.progress.step("repeat", f"build {number + 1} of {MEASURED}")
        prober.begin(map(request, range(number, MEASURED)))
        outcome = prober.ask(request(number))
        found = judged(outcome)
        runs = tuple(Verdict.DIVERGES if failed else Verdict.AGREES for failed in found)
        return Attempt(number, runs, outcome.tactics)

    tally = repeat(attempt, Until(count=MEASURED), lambda _: None)
    (bad, of), (low, high) = tally.counts(), tally.interval()
    chosen = difference(replays_of(tally.attempts)) if tally.bad and tally.good else []
    return Repeats(
        tally.unit, bad, of, low, high, MEASURED, tally.bad, tally.mixed,
        chosen=tuple(d.words(tally.bad) for d in chosen[:5]),
    )  # fmt: skip


def said(seen: Repeats) -> str:
    """Returns how often it comes, in words."""
    return (
        f"{seen.bad} of {seen.of} further {seen.unit}s fail (95 % interval {seen.low:.0%} to"
        f" {seen.high:.0%})"
    )


def firing_of(seen: Repeats) -> Firing:
    """Returns how often the whole fails, as the search under noise takes it.

    The search builds once a look: runs that disagree count by their build.
    """
    return Firing(seen.bad_builds, seen.builds)


def looks_for(seen: Repeats | None) -> int:
    """Returns how many passes in a row prove that the fault is not there, 40 at most."""
    return UNMEASURED if seen is None else min(MOST, repeats_for(_rate(seen)))


def tries_for(seen: Repeats | None) -> int:
    """Returns how many builds to make for one that fails, 40 at most."""
    return UNMEASURED if seen is None else min(MOST, alike_for(firing_of(seen).rate, miss=0.01))


def measure_part(examiner: Examiner, found: Confirmed, flaky: str) -> Repeats:
    """Returns how often a part fails that was seen to fail and not to fail."""
    bad, last = 0, 700 + MEASURED
    for fresh in range(700, last):
        examiner.begin(((found.candidate, n) for n in range(fresh, last)), found.source)
        examined = examiner.examine(found.candidate, found.source, fresh=fresh)
        bad += examined.verdict is Verdict.DIVERGES
    low, high = interval(bad, MEASURED)
    unit: Literal["run", "build"] = "run" if flaky == "flaky_run" else "build"
    return Repeats(unit, bad, MEASURED, low, high, MEASURED, bad)


def confidence_in(nodes: int, looks: int, seen: Repeats | None) -> float | None:
    """Returns how probable it is that a part that fails alone is the smallest; None when it must.

    A part that fails by itself holds the fault, but for a stray failure in a thousand.  That none
    of its nodes can go rests on parts that passed each time they were asked, which a bad one does
    now and then; one node can only be left out altogether.

    Args:
        nodes: How many nodes it has.
        looks: How often each smaller part was asked.
        seen: How often the whole fails.
    """
    if seen is None:
        return None
    smaller = 0 if nodes == 1 else 2 * nodes  # each node left out, and bypassed
    return float((1 - STRAY) * max(0.0, 1 - smaller * (1 - _rate(seen)) ** looks))


def _rate(seen: Repeats) -> float:
    return (seen.bad + 1) / (seen.of + 2)
