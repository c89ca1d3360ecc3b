"""The driver of a reduction: from a candidate that fails to one that cannot lose a node.

    start, asked twice ─▶ guesses from hints ─▶ passes to a fixed point ─▶ every neighbour
                                    ▲                                          │  one fails
                                    └──────────────────────────────────────────┘
                                                        none fails: 1-minimal ─▶ asked afresh

A start that does not fail twice in one way is not reduced: see ``DoesNotFail``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from tapsect.reduction.passes import TABLE, Pass
from tapsect.reduction.question import Answer, OtherFailure, Question
from tapsect.verdict import Signature, Verdict

__all__ = ["TWO_OF_THREE", "Confirm", "DoesNotFail", "Reduced", "Stage", "reduce"]

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Confirm:
    """How a result is asked again: ``need`` of ``of`` fresh builds must fail as the start did.

    When the first ``need`` all fail, the rest is not asked.
    """

    need: int = 2
    of: int = 3


TWO_OF_THREE = Confirm()


@dataclass(frozen=True, slots=True)
class Stage:
    """What one step of a reduction did; ``before`` and ``after`` count nodes."""

    name: str
    before: int
    after: int
    calls: int


@dataclass(frozen=True, slots=True)
class DoesNotFail:
    """The start cannot be reduced, because it does not fail twice in one way.

    Attributes:
        seen: What the start did each time it was asked.
        unstable: Whether the answers differ from each other, or say so themselves.
    """

    seen: tuple[Answer, ...]
    unstable: bool


@dataclass(frozen=True, slots=True)
class Reduced(Generic[C]):
    """The smallest candidate that was found, and what is known about it.

    Attributes:
        candidate: The candidate.
        signature: The fault it shows.
        one_minimal: Whether every neighbour (one node removed or bypassed) was seen not to show
            the fault; false when that was not asked for.
        undecided: Neighbours that answered differently each time; none when ``one_minimal``.
        calls: Candidates built and run, the start and the final checks included.
        reproduced: How many of the final fresh checks showed the fault.
        of: How many final fresh checks were made.
        confirmed: Whether as many showed it as were asked for.
        other_failures: Failures of another signature that were met on the way.
        trail: What each step did.
    """

    candidate: C
    signature: Signature | None
    one_minimal: bool
    undecided: tuple[C, ...]
    calls: int
    reproduced: int
    of: int
    confirmed: bool
    other_failures: tuple[OtherFailure[C], ...]
    trail: tuple[Stage, ...]


def reduce(
    problem: Question[C],
    *,
    passes: Sequence[Pass] = TABLE,
    hint: Iterable[int] = (),
    confirm: Confirm = TWO_OF_THREE,
    prove: bool = True,
) -> Reduced[C] | DoesNotFail:
    """Returns the smallest candidate that shows the fault of ``problem``, or why there is none.

    Args:
        problem: What fails.  Its ``current`` is the start, and moves.
        passes: The passes to run, in order.
        hint: Nodes believed to be at fault; they are tried alone before anything else, then
            with their neighbourhood.
        confirm: How the result is asked again.
        prove: Whether to ask every neighbour of the result, and to go on where one fails.

    Notes:
        Cost: about ``log2(n) + 6`` calls when one node of n is at fault, 5 when it is hinted;
        when k nodes must stay, the proof takes up to ``k * (1 + reads)`` calls more.
        Guarantee: ``one_minimal`` says whether removing or bypassing any one node loses the
        fault, each of which was asked.  Equal problems end in equal results.
        Non-guarantee: a smaller candidate may exist that is two steps away.
    """
    driver = _Driver(problem, [], prove)
    refusal = driver.check_start()
    if refusal is not None:
        return refusal
    driver.try_hint(frozenset(hint))
    undecided = driver.run(passes)
    candidate = problem.current
    fresh = driver.ask_again(candidate, confirm)
    return Reduced(
        candidate=candidate,
        signature=problem.signature,
        one_minimal=prove and not undecided,
        undecided=tuple(undecided),
        calls=problem.calls,
        reproduced=sum(fresh),
        of=len(fresh),
        confirmed=sum(fresh) >= confirm.need,
        other_failures=tuple(problem.other_failures),
        trail=tuple(driver.trail),
    )


@dataclass(slots=True)
class _Driver(Generic[C]):
    problem: Question[C]
    trail: list[Stage]
    proving: bool

    def check_start(self) -> DoesNotFail | None:
        """Returns why the start cannot be reduced; ``None`` when it fails twice in one way."""
        problem, start = self.problem, self.problem.current
        calls = problem.calls
        first = problem.answer(start)
        if first[0] is not Verdict.DIVERGES:
            return DoesNotFail((first,), unstable=first[0] is Verdict.UNSTABLE)
        expected = problem.signature
        problem.signature = expected or first[1]
        second = problem.ask_afresh(start)
        fails = [v is Verdict.DIVERGES and problem.is_same(s) for v, s in (first, second)]
        self.trail.append(self.stage("start", problem.size(start), calls))
        if all(fails):
            return None
        return DoesNotFail((first, second), unstable=fails[0] or first != second)

    def stage(self, name: str, before: int, calls: int) -> Stage:
        problem = self.problem
        return Stage(name, before, problem.size(problem.current), calls=problem.calls - calls)

    def try_hint(self, hint: frozenset[int]) -> None:
        """Tries the hinted nodes alone, then with what surrounds them."""
        problem = self.problem
        before, calls = problem.size(problem.current), problem.calls
        if any(problem.consider(guess) for guess in problem.guesses(hint)) or problem.calls > calls:
            self.trail.append(self.stage("hint", before, calls))

    def run(self, passes: Sequence[Pass]) -> list[C]:
        """Runs passes and the proof until neither finds anything; returns what stayed open."""
        problem = self.problem
        finished: dict[str, C] = {}
        while True:
            before = problem.current
            for row in passes:
                # A deterministic pass that found nothing here would find nothing again.
                start = problem.current
                if finished.get(row.name) != start:
                    self.run_pass(row)
                if problem.current == start:
                    finished[row.name] = start
            if problem.current == before:
                if not self.proving:
                    return []
                calls = problem.calls
                undecided = self.prove(before)
                self.trail.append(self.stage("prove", problem.size(before), calls))
                if problem.current == before:
                    return undecided

    def run_pass(self, row: Pass) -> None:
        problem = self.problem
        before, calls = problem.size(problem.current), problem.calls
        row.run(problem.within_budget() if row.kind == "beautify" else problem)
        if problem.calls > calls:
            self.trail.append(self.stage(row.name, before, calls))

    def prove(self, candidate: C) -> list[C]:
        """Asks for every neighbour of ``candidate``; returns those that cannot be decided."""
        problem = self.problem
        undecided: list[C] = []
        for number, neighbour in enumerate(problem.neighbours(candidate)):
            problem.foresee(islice(problem.neighbours(candidate), number, None))
            verdict = problem.look(neighbour)
            if problem.current != candidate:
                return []
            if verdict is Verdict.UNSTABLE:
                undecided.append(neighbour)
        return undecided

    def ask_again(self, candidate: C, confirm: Confirm) -> list[bool]:
        """Returns, for each fresh build of ``candidate``, whether it shows the fault."""
        calls = self.problem.calls
        fresh: list[bool] = []
        while len(fresh) < confirm.of and not (len(fresh) >= confirm.need and all(fresh)):
            verdict, signature = self.problem.ask_afresh(candidate)
            fresh.append(verdict is Verdict.DIVERGES and self.problem.is_same(signature))
        self.trail.append(self.stage("confirm", self.problem.size(candidate), calls))
        return fresh
