"""Drop runs of nodes.

    1 ─▶ 2 ─▶ 3 ─▶ 4 ─▶ 5 ─▶ 6           [v3]─▶ 4 ─▶ 5 ─▶ 6

What they computed is fed to its readers with recorded values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tapsect.candidate import Candidate, ordered, without
from tapsect.reduction.problem import Reducible

__all__ = ["drop_runs"]


def drop_runs(problem: Reducible) -> None:
    """Proposes candidates without runs of neighbours in topological order, halving the runs.

    Guarantees to have tried: dropping each single node.
    Cost: at most ``2 * n`` questions; about ``2 * k * log2(n)`` when k nodes have to stay.

    References:
        A. Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE
        Transactions on Software Engineering 28 (2002), doi:10.1109/32.988498.
    """
    nodes = ordered(problem.structure, problem.current.nodes)
    size = len(nodes) // 2
    while size >= 1:
        for start in range(0, len(nodes), size):
            run = problem.current.nodes.intersection(nodes[start : start + size])
            if run:
                problem.foresee(_sweep(problem, nodes[start:], size))
                problem.consider(without(problem.structure, problem.current, run))
        nodes = ordered(problem.structure, problem.current.nodes)
        size = min(size, len(nodes)) // 2


def _sweep(problem: Reducible, nodes: Sequence[int], size: int) -> Iterator[Candidate]:
    """Yields what is asked from here on while no run can be dropped."""
    for start in range(0, len(nodes), size):
        run = problem.current.nodes.intersection(nodes[start : start + size])
        if run:
            yield without(problem.structure, problem.current, run)
