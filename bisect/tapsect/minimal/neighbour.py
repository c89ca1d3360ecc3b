"""The nearest part that passes: what a fix can be compared with."""

from __future__ import annotations

from tapsect.candidate import Candidate
from tapsect.minimal.ground import Ground, Parts, Unfed
from tapsect.simplify import Specimen, TooLarge, specimen, whole

__all__ = ["nearest_good"]


def nearest_good(
    problem: Parts, end: Candidate, ground: Ground, sample: int
) -> tuple[Specimen, str] | None:
    """Returns the passing part that differs least from the end, and the difference in words.

    Only what was asked on the way is looked at.
    """
    passing = problem.good()
    if not passing:
        return None

    def distance(other: Candidate) -> tuple[int, int, int, int]:
        nodes = len(other.nodes ^ end.nodes)
        outputs = len(set(other.outputs) ^ set(end.outputs))
        return nodes, outputs, len(set(other.bypass) ^ set(end.bypass)), len(other.nodes)

    nearest = min(passing, key=distance)
    try:
        trial = ground.trial(nearest, [sample], fed=False)
        made = specimen(whole(trial.model, trial.folder), trial.samples[0])
    except (TooLarge, Unfed):
        return None
    return made, _difference(nearest, end, ground)


def _difference(good: Candidate, end: Candidate, ground: Ground) -> str:
    graph = ground.graph

    def listed(nodes: frozenset[int]) -> str:
        names = [f"'{graph.nodes[i].name}'" for i in sorted(nodes)]
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

    parts = []
    if end.nodes - good.nodes:
        parts.append(f"without {listed(end.nodes - good.nodes)}")
    if good.nodes - end.nodes:
        parts.append(f"with {listed(good.nodes - end.nodes)} besides")
    new = [source for pair, source in good.bypass if (pair, source) not in end.bypass]
    if new:
        parts.append(f"reading {new[0]!r} instead")
    if not parts and good.outputs != end.outputs:
        parts.append(f"looking at {', '.join(good.outputs[:4])}")
    return "it passes " + (" and ".join(parts) or "with the same nodes")
