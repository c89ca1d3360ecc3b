"""End earlier and begin later, in topological order.

    1 ─▶ 2 ─▶ 3 ─▶ 4 ─▶ 5 ─▶ 6
    1 ─▶ 2 ─▶ 3 ─▶ 4
              3 ─▶ 4

The shortest prefix that fails ends with the fault; the shortest suffix of that begins with it.
"""

from __future__ import annotations

from tapsect.candidate import Candidate, ordered, restrict
from tapsect.reduction.problem import Reducible
from tapsect.search.line import first_bad
from tapsect.verdict import Verdict

__all__ = ["cut_ends"]

# Ends that cannot be judged are rare; a graph full of them is left to the other passes.
_SKIPS = 4


def cut_ends(problem: Reducible) -> None:
    """Proposes prefixes, by bisection, then suffixes, from the shortest one in doubling steps.

    Guarantees to have tried: one node fewer at either end of the order, where that can be
    judged.
    Cost: ``log2(n) + 1`` when one node is at fault; ``log2(n) + 2 * log2(k)`` when the fault
    spans k nodes.
    """
    _bisect(problem, from_end=False)
    _bisect(problem, from_end=True)


def _bisect(problem: Reducible, *, from_end: bool) -> None:
    origin = problem.current
    nodes = ordered(problem.structure, origin.nodes)
    good, bad = 0, len(nodes)

    def part(length: int) -> Candidate:
        kept = nodes[len(nodes) - length :] if from_end else nodes[:length]
        return restrict(problem.structure, origin, frozenset(kept))

    def look(length: int) -> Verdict:
        nonlocal good, bad
        # Whatever the answer is, the middle of one of the two halves comes next.
        halves = ((length + bad) // 2, (good + length) // 2)
        problem.foresee(part(n) for n in (length, *halves) if 0 < n < len(nodes))
        verdict = problem.look(part(length))
        if verdict is Verdict.DIVERGES:
            bad = length
        elif verdict is Verdict.AGREES:
            good = length
        return verdict

    if len(nodes) > 1:
        hint = 1 if from_end else None
        first_bad(len(nodes), look, hint=hint, recheck=0, max_skips=_SKIPS)
