"""A check that fails now and then: how often, and where the fault sits all the same.

    measured on the whole ─▶ end of the fault ─▶ its begin ─▶ a slice, and what is believed of it
                              (noisy search)     (noisy search)

The slice is a hint, no more: passes start from it, with each question repeated until a lucky
pass is out of the question.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tapsect.candidate import Candidate, Structure, ordered, restrict, why_invalid
from tapsect.reduction import Answer
from tapsect.search.noisy import Firing, NoisyResult, noisy_first_bad, repeats_for
from tapsect.verdict import Signature, Verdict

__all__ = ["FirstSeen", "Fresh", "Repeated", "Slice", "measure", "slice_of"]

MEASURED = 10
_REPEATED = 1_000_000

C = TypeVar("C", bound=Hashable)

Fresh = Callable[[Candidate, int], Answer]
"""Judges a part anew; the number tells repeated questions apart."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Where a fault that fires now and then most probably sits.

    Attributes:
        nodes: The nodes from its begin to its end.
        confidence: The probability that both ends are right.
        sure: Whether both searches reached the confidence that was asked for.
        calls: Looks of both searches.
        rate: How often it fires.
        least: How often it fires at least, most probably.
        likely: Nodes that may be its end, best first.
    """

    nodes: frozenset[int]
    confidence: float
    sure: bool
    calls: int
    rate: float
    least: float
    likely: tuple[int, ...]


class FirstSeen:
    """Compares signatures with the first that was seen, or with one that is known."""

    def __init__(self, wanted: Signature | None = None) -> None:
        self.wanted = wanted

    def __call__(self, seen: Signature | None) -> bool:
        """Returns whether it is the same fault."""
        self.wanted = self.wanted or seen
        return self.wanted is None or seen is None or self.wanted.matches(seen)


def measure(ask: Callable[[int], Answer], same: Callable[[Signature | None], bool],
            times: int = MEASURED) -> Firing:  # fmt: skip
    """Returns how often the whole fails in the way that is looked for."""
    failed = 0
    for number in range(times):
        verdict, signature = ask(number)
        failed += verdict is Verdict.DIVERGES and same(signature)
    return Firing(failed, times)


def slice_of(
    structure: Structure, start: Candidate, ask: Fresh, firing: Firing,
    same: Callable[[Signature | None], bool],
) -> Slice:  # fmt: skip
    """Returns the slice of ``start`` that most probably holds the fault."""
    counter = itertools.count()

    def look(origin: Candidate, kept: list[int]) -> Verdict:
        part = restrict(structure, origin, frozenset(kept))
        if why_invalid(structure, part):
            return Verdict.INVALID
        verdict, signature = ask(part, next(counter))
        other = verdict is Verdict.DIVERGES and not same(signature)
        return Verdict.INVALID if other else verdict

    nodes = ordered(structure, start.nodes)
    end = noisy_first_bad(len(nodes), lambda n: look(start, nodes[:n]), firing=firing)
    prefix = restrict(structure, start, frozenset(nodes[: end.index]))
    left = ordered(structure, prefix.nodes)
    begin: NoisyResult | None = None
    if len(left) > 1:
        begin = noisy_first_bad(
            len(left), lambda n: look(prefix, left[len(left) - n :]), firing=firing
        )
    held = frozenset(left[len(left) - begin.index :] if begin else left)
    both = [result for result in (end, begin) if result is not None]
    return Slice(
        nodes=held,
        confidence=end.confidence * (begin.confidence if begin else 1.0),
        sure=all(result.sure for result in both),
        calls=sum(result.calls for result in both),
        rate=both[0].rate,
        least=min(result.least for result in both),
        likely=tuple(nodes[position - 1] for position in end.likely),
    )


class Repeated(Generic[C]):
    """Asks until a fault of a rate would have shown itself.

    Args:
        ask: Judges a candidate anew, in a lane.
        rate: How often the fault fires.
        same: Whether a signature is the fault's.
        need: How many failures make a candidate fail.

    Attributes:
        looks: Single looks at each candidate, which number them.
    """

    def __init__(
        self, ask: Callable[[C, int, int], Answer], rate: float,
        same: Callable[[Signature | None], bool], need: int = 1,
    ) -> None:  # fmt: skip
        self.ask, self.same, self.need = ask, same, need
        self.times = repeats_for(rate)
        self.looks: Counter[C] = Counter()

    def __call__(self, candidate: C, lane: int = 0) -> Answer:
        """Returns a failure of the right kind once there were enough, or the last answer.

        After each failure the next may take as many looks as the first might have.
        """
        answer: Answer = (Verdict.INVALID, None)
        failed = passed = 0
        while passed < self.times:
            answer = self.ask(candidate, _REPEATED + self.looks[candidate], lane)
            self.looks[candidate] += 1
            if answer[0] is Verdict.INVALID:
                break
            if answer[0] is Verdict.DIVERGES and self.same(answer[1]):
                failed, passed = failed + 1, 0
                if failed == self.need:
                    break
            else:
                passed += 1
        return answer
