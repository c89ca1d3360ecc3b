"""A check that fails now and then: how often, and where the fault sits all the same.

    measured on the whole ─▶ end of the fault ─▶ its begin ─▶ a slice, and what is believed of it
                              (noisy search)     (noisy search)

The slice is a hint, no more: passes start from it, with each question repeated until a lucky
pass is out of the question.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from tapsect.candidate import Candidate, Structure, ordered, restrict, why_invalid
from tapsect.reduction import Answer
from tapsect.search.noisy import Firing, NoisyResult, noisy_first_bad, repeats_for
from tapsect.verdict import Signature, Verdict

__all__ = ["Fresh", "Repeated", "Slice", "measure", "slice_of"]

MEASURED = 10

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


class Repeated:
    """Asks until a fault of a rate would have shown itself.

    Args:
        ask: Judges a part anew.
        rate: How often the fault fires.
        same: Whether a signature is the fault's.

    Attributes:
        asked: Single looks so far.
    """

    def __init__(self, ask: Fresh, rate: float, same: Callable[[Signature | None], bool]) -> None:
        self.ask, self.same, self.times = ask, same, repeats_for(rate)
        self.asked = 0

    def __call__(self, candidate: Candidate) -> Answer:
        """Returns the first failure of the right kind, or the last answer."""
        answer: Answer = (Verdict.INVALID, None)
        for number in range(self.times):
            self.asked += 1
            answer = self.ask(candidate, 1_000_000 + number)
            if answer[0] is Verdict.INVALID:
                break
            if answer[0] is Verdict.DIVERGES and self.same(answer[1]):
                break
        return answer
