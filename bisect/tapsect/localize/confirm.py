"""A located region, cut out of the model: does it fail alone, and how small does it get?

The region runs with only the failing tensor as output (exposing another inner tensor can heal a
fusion), fed with the reference's values, then with the engine's.  While it does not fail it
grows along the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tapsect.candidate import Candidate
from tapsect.localize.errors import ERRORS
from tapsect.localize.examine import Examined, Examiner, Source
from tapsect.topology import Topology
from tapsect.verdict import Verdict

__all__ = ["Confirmed", "confirm", "grown"]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A region that fails by itself."""

    candidate: Candidate
    source: Source
    examined: Examined
    static: bool = False
    tries: int = 0


def grown(
    topology: Topology, seed: Iterable[int], tensor: str, ends: Sequence[str]
) -> Iterator[Candidate]:
    """Yields ever larger parts of the model around a seed.

    First the seed that shows ``tensor``; then with 1, 2, 4 … operators before it; each of them
    also with as many operators behind, showing where the part ends; at last the whole model.
    """
    graph = topology.graph
    nodes = frozenset(seed)
    yield Candidate(nodes, (tensor,))
    step, total = 1, len(graph.nodes)
    before = nodes
    while True:
        wider = _back(topology, nodes, step)
        if wider != before:
            yield Candidate(wider, (tensor,))
        both = _forth(topology, wider, step)
        if both != wider:
            shown = _exits(topology, both, ends)
            if shown:
                yield Candidate(both, shown)
        if len(both) == total or (wider == before and step > total):
            break
        before, step = wider, step * 2
    yield Candidate(frozenset(range(total)), tuple(t for t in ends if t in graph.producer))


def _back(topology: Topology, nodes: frozenset[int], steps: int) -> frozenset[int]:
    graph, found, edge = topology.graph, set(nodes), set(nodes)
    for _ in range(steps):
        edge = {
            graph.producer[t] for i in edge for t in graph.nodes[i].reads if t in graph.producer
        } - found
        if not edge:
            break
        found |= edge
    return frozenset(found)


def _forth(topology: Topology, nodes: frozenset[int], steps: int) -> frozenset[int]:
    graph, found, edge = topology.graph, set(nodes), set(nodes)
    for _ in range(steps):
        edge = {
            c for i in edge for t in graph.nodes[i].writes for c in graph.consumers.get(t, ())
        } - found
        if not edge:
            break
        found |= edge
    return frozenset(found)


def _exits(topology: Topology, nodes: frozenset[int], ends: Sequence[str]) -> tuple[str, ...]:
    graph = topology.graph
    return tuple(
        t for i in sorted(nodes) for t in graph.nodes[i].writes
        if t in ends or (
            graph.consumers.get(t) and not any(c in nodes for c in graph.consumers[t])
        )
    )  # fmt: skip


def confirm(
    examiner: Examiner, candidates: Iterable[Candidate], *, most: int = 24,
    sources: Sequence[Source] = ("reference", "engine"),
) -> Confirmed | None:  # fmt: skip
    """Returns the first part that fails by itself with the failure that is looked for.

    Symbolic dimensions stay; a part that only fails with static ones is found second.
    """
    tries = 0
    if examiner.prober.foresees:
        candidates = _begun_early(examiner, tuple(candidates), sources[0])
    seen: set[Candidate] = set()
    for candidate in candidates:
        if candidate in seen:
            continue
        seen.add(candidate)
        for source in sources:
            examined = examiner.examine(candidate, source)
            tries += 1
            if _fits(examiner, examined):
                return Confirmed(candidate, source, examined, tries=tries)
            if tries >= most or examined.verdict is Verdict.INVALID:
                break
        if tries >= most:
            break
    return None


def _begun_early(
    examiner: Examiner, parts: Sequence[Candidate], source: Source
) -> Iterator[Candidate]:
    """Yields the parts; most often the first fails alone, so that only the others are begun."""
    for number, part in enumerate(parts):
        if number:
            examiner.begin(((each, 0) for each in parts[number:]), source)
        yield part


def _fits(examiner: Examiner, examined: Examined) -> bool:
    if examined.verdict is not Verdict.DIVERGES or examined.signature is None:
        return False
    if examiner.kind in ERRORS:
        return examined.signature.kind == examiner.kind
    return examiner.kind == examined.signature.kind or examiner.kind == "discrete"
