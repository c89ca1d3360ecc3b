"""Remove interior nodes and let their readers read, in place of the result, what the node read.

    A ─▶ x ─▶ y ─▶ z ─▶ B        A ─▶ B

This is what joins two nodes that fail only together and lie far apart: feeding recorded values
between them would cut the one off from the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapsect.candidate import Candidate, ordered, ways_around, without
from tapsect.reduction.problem import Reducible

__all__ = ["bypass_nodes"]

_FIRST, _LAST = 0, -1


def bypass_nodes(problem: Reducible) -> None:
    """Proposes to bypass runs of inner nodes, from all that can be down to single ones.

    A run is bypassed twice: through the first stand-in of each node and through the last, since
    a node that joins two branches offers one way through each.

    Guarantees to have tried: every bypass of every single node.
    Cost: at most about ``4 * n`` questions for n nodes that can be bypassed; 1 when all inner
    ones can go.
    """
    structure, origin = problem.structure, problem.current
    nodes = ordered(structure, origin.nodes)
    # The first and the last node are what a pass that cuts ends could not cut: runs that hold
    # them are in vain.
    inner = [node for node in nodes[1:-1] if ways_around(structure, origin, node)]
    size = len(inner)
    while size > 1:
        for start in range(0, len(inner), size):
            run = [n for n in inner[start : start + size] if n in problem.current.nodes]
            if run and not problem.consider(_around(problem, run, _FIRST)):
                problem.consider(_around(problem, run, _LAST))
        size //= 2
    for node in nodes:
        if node in problem.current.nodes:
            _try_each_way(problem, node)


def _around(problem: Reducible, run: Sequence[int], choice: int) -> Candidate:
    """Returns the current candidate with the interior nodes of ``run`` bypassed."""
    structure, current = problem.structure, problem.current
    ends = {structure.producer(tensor) for tensor in current.outputs}
    bypass: dict[str, str] = {}
    gone: set[int] = set()
    for node in run:
        ways = ways_around(structure, current, node)
        if ways and node not in ends:
            bypass |= ways[choice]
            gone.add(node)
    return without(structure, current, gone, bypass=bypass)


def _try_each_way(problem: Reducible, node: int) -> None:
    origin = problem.current
    for bypass in ways_around(problem.structure, origin, node):
        if problem.consider(without(problem.structure, origin, {node}, bypass=bypass)):
            return
