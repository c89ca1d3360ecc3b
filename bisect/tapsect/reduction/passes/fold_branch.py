"""Feed what a whole branch computed.

    A ─▶ B ─▶ C ─▶ D ─▶ Add        A ─▶ B ─▶ C ─▶ D ─▶ Add
    └──▶ E ─▶ F ─▶ G ─▶──┘                       [g]─▶──┘

Everything between a fork and a join goes at once.
"""

from __future__ import annotations

from tapsect.candidate import Candidate, ordered, readers, without
from tapsect.reduction.problem import Reducible

__all__ = ["fold_branch"]


def fold_branch(problem: Reducible) -> None:
    """Proposes to feed one of the tensors that meet at a join, the longest branch first.

    Guarantees to have tried: feeding each tensor that a join reads and a kept node writes, where
    that removes two nodes or more.
    Cost: at most one question for each tensor that meets another at a join.
    """
    origin = problem.current
    branches = sorted(_branch_ends(problem, origin), key=lambda b: (-_gain(problem, b), b))
    for end in branches:
        current = problem.current
        if end in current.nodes and _gain(problem, end) > 1:
            problem.consider(without(problem.structure, current, {end}))


def _branch_ends(problem: Reducible, candidate: Candidate) -> list[int]:
    """Returns the nodes whose results meet at a node that reads several of them."""
    structure, bypass = problem.structure, dict(candidate.bypass)
    ends: dict[int, None] = {}
    for join in ordered(structure, candidate.nodes):
        sources = dict.fromkeys(
            structure.producer(bypass.get(tensor, tensor)) for tensor in structure.reads(join)
        )
        met = [node for node in sources if node is not None and node in candidate.nodes]
        if len(met) > 1:
            ends.update(dict.fromkeys(met))
    return list(ends)


def _gain(problem: Reducible, end: int) -> int:
    """Returns how many nodes go when the results of ``end`` are fed: it, and what only it needs.

    Counted by walking up from ``end``, since taking every branch away for trial costs the whole
    graph each time.
    """
    structure, current = problem.structure, problem.current
    bypass = dict(current.bypass)
    gone = {end}
    waiting = [end]
    while waiting:
        sources = [bypass.get(tensor, tensor) for tensor in structure.reads(waiting.pop())]
        for node in map(structure.producer, sources):
            if node is None or node not in current.nodes or node in gone:
                continue
            written = structure.writes(node)
            used = any(set(readers(structure, current, tensor)) - gone for tensor in written)
            if not used and not set(written).intersection(current.outputs):
                gone.add(node)
                waiting.append(node)
    return len(gone)
