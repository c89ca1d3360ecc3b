"""What the stages of a reduction share: whom to ask, what it cost, what is best so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tapsect.ahead import Ahead
from tapsect.candidate import Candidate
from tapsect.finding import Step
from tapsect.minimal.ground import Ground
from tapsect.minimal.judges import Judge
from tapsect.minimal.plan import Plan
from tapsect.progress import Progress
from tapsect.reduction import Answer, DoesNotFail, Question, Reduced
from tapsect.simplify import Specimen

__all__ = ["Lanes", "Tally", "Told", "lanes"]

C = TypeVar("C", bound=Hashable)
Begin = Callable[[Iterable[C]], None]


@dataclass
class Tally:
    """One reduction under way.

    Attributes:
        best: The smallest candidate seen to fail; None until the start was.
        calls: How often the check was asked, by stages that ended.
        trail: What each step did.
        notes: What else should be known.
    """

    plan: Plan
    ground: Ground
    judge: Judge
    progress: Progress
    best: Candidate | Specimen | None = None
    calls: int = 0
    trail: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """Returns how many checks run at a time."""
        plan = self.plan
        shared = plan.ask is not None or plan.artifacts is not None
        placed = plan.line is None or plan.line.placed
        return 1 if shared or not placed else plan.jobs

    def spent(self) -> Callable[[], bool]:
        """Returns whether the budget, which begins now, is over."""
        deadline = time.monotonic() + self.plan.options.budget
        return lambda: time.monotonic() >= deadline

    def count(self, calls: int, result: Reduced[Any] | DoesNotFail) -> None:
        """Takes in what a stage cost and did."""
        self.calls += calls
        if not isinstance(result, DoesNotFail):
            self.trail += [
                Step(s.name, f"{s.before} to {s.after} nodes", "", s.calls) for s in result.trail
            ]


class Told(Generic[C]):
    """A check that tells of itself, and keeps the best so far for Ctrl-C.

    Args:
        tally: Where the best is kept.
        ask: The check.
        step: What the progress calls it.

    Attributes:
        problem: The problem that asks; set once it is made.
    """

    def __init__(self, tally: Tally, ask: Callable[[C], Answer], step: str) -> None:
        self.tally, self.ask, self.step = tally, ask, step
        self.problem: Question[C] | None = None

    def __call__(self, candidate: C) -> Answer:
        """Returns the check's answer."""
        problem, tally = self.problem, self.tally
        assert problem is not None
        if problem.signature is not None:  # the start was seen to fail
            assert isinstance(problem.current, Candidate | Specimen)
            tally.best = problem.current
            tally.judge.wants(problem.signature)
        left, asked = problem.size(problem.current), problem.size(candidate)
        calls = tally.calls + problem.calls
        text = f"{left} {'node' if left == 1 else 'nodes'} left, "
        text += f"{calls} {'call' if calls == 1 else 'calls'}, asking about {asked}"
        tally.progress.step(self.step, text)
        return self.ask(candidate)


@dataclass(frozen=True, slots=True)
class Lanes(Generic[C]):
    """A check that is asked in lanes.

    Attributes:
        ask: The check.
        begin: Begins checks early; None where there is one lane.
        apart: Has something else done in a lane that is free: files of a lane are its own.
    """

    ask: Callable[[C], Answer]
    begin: Begin[C] | None
    apart: Callable[[Callable[[int], Answer]], Answer]


@contextmanager
def lanes(ask: Callable[[C, int], Answer], jobs: int) -> Iterator[Lanes[C]]:
    """Gives a check in so many lanes."""
    if jobs == 1:
        yield Lanes(lambda candidate: ask(candidate, 0), None, lambda job: job(0))
        return
    ahead = Ahead(ask, jobs)
    try:
        yield Lanes(ahead, ahead.begin, ahead.run)
    finally:
        ahead.close()
