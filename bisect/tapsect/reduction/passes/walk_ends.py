"""End earlier and begin later, one node at a time.

    1 ─▶ 2 ─▶ 3 ─▶ 4 ─▶ 5
    1 ─▶ 2 ─▶ 3 ─▶ 4
    1 ─▶ 2 ─▶ 3              …

What ``cut-ends`` finds by bisection, found without the belief that longer parts fail as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from tapsect.candidate import Candidate, ordered, restrict
from tapsect.reduction.problem import Reducible

__all__ = ["walk_ends"]


def walk_ends(problem: Reducible) -> None:
    """Proposes every prefix, the longest first, then every suffix of the shortest that fails.

    Guarantees to have tried: each prefix of the order, and each suffix of what was left then.
    Cost: ``n + k`` questions for n nodes when the shortest failing prefix has k.
    """
    for from_end in (False, True):
        origin = problem.current
        for length in range(len(origin.nodes) - 1, 0, -1):
            problem.foresee(_parts(problem, origin, length, from_end=from_end))
            problem.consider(next(_parts(problem, origin, length, from_end=from_end)))


def _parts(
    problem: Reducible, origin: Candidate, longest: int, *, from_end: bool
) -> Iterator[Candidate]:
    nodes = ordered(problem.structure, origin.nodes)
    for length in range(longest, 0, -1):
        kept = nodes[len(nodes) - length :] if from_end else nodes[:length]
        yield restrict(problem.structure, origin, frozenset(kept))
