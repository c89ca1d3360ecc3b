"""A located region, cut out of the model: does it fail alone, and how small does it get?

The region runs with only the failing tensor as output (exposing another inner tensor can heal a
fusion), fed with the reference's values, then with the engine's.  While it does not fail it
grows along the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tapsect.examine import ERRORS, Examined, Examiner, Source
from tapsect.floors import limit_for
from tapsect.reduce import Candidate, Confirm, DoesNotFail, Problem, Reduced, reduce
from tapsect.reference import Reference
from tapsect.topology import Topology
from tapsect.verdict import Signature, Verdict

__all__ = ["Confirmed", "GraphStructure", "confirm", "grown", "shrink"]


class GraphStructure:
    """An ONNX graph as the reducer sees it.

    Args:
        reference: Knows the graph and the shapes of one sample.
        shapes: Concrete shapes by tensor.
    """

    def __init__(self, reference: Reference, shapes: dict[str, tuple[int, ...]]) -> None:
        self.graph = reference.graph
        self.shapes = shapes
        self._order = tuple(range(len(self.graph.nodes)))

    def order(self) -> Sequence[int]:
        """Returns every node once, writers before readers."""
        return self._order

    def reads(self, node: int) -> Sequence[str]:
        """Returns the tensors a node reads."""
        return self.graph.nodes[node].reads

    def writes(self, node: int) -> Sequence[str]:
        """Returns the tensors a node writes."""
        return self.graph.nodes[node].writes

    def producer(self, tensor: str) -> int | None:
        """Returns the node that writes a tensor."""
        return self.graph.producer.get(tensor)

    def consumers(self, tensor: str) -> Sequence[int]:
        """Returns the nodes that read a tensor."""
        return self.graph.consumers.get(tensor, ())

    def same_type(self, a: str, b: str) -> bool:
        """Returns whether both tensors are known to be of one element type and shape."""
        elem = self.graph.elem(a)
        if elem is None or elem != self.graph.elem(b):
            return False
        shape = self._shape(a)
        return shape is not None and shape == self._shape(b)

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        kind = self.graph.types.get(tensor)
        return self.shapes.get(tensor) or (kind.static if kind is not None else None)

    def is_constant(self, tensor: str) -> bool:
        """Returns whether a tensor is an initializer or a Constant."""
        return tensor in self.graph.constants or tensor in self.graph.sparse

    def feedable(self, tensor: str) -> bool:
        """Returns whether a value of the tensor can be recorded and fed."""
        return tensor not in self.graph.untensors and self.graph.elem(tensor) is not None


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


def _fits(examiner: Examiner, examined: Examined) -> bool:
    if examined.verdict is not Verdict.DIVERGES or examined.signature is None:
        return False
    if examiner.kind in ERRORS:
        return examined.signature.kind == examiner.kind
    return examiner.kind == examined.signature.kind or examiner.kind == "discrete"


@dataclass(slots=True)
class _Counter:
    fresh: int = 0
    last: dict[Candidate, Examined] = field(default_factory=dict)


def shrink(
    examiner: Examiner, structure: GraphStructure, found: Confirmed, *,
    hint: Iterable[int] = (), confirmations: Confirm = Confirm(),
) -> Reduced | DoesNotFail:  # fmt: skip
    """Returns the smallest part of a confirmed one that fails in the same way."""
    if examiner.kind not in ERRORS and examiner.tolerance is None:
        u = max(examiner.classes.contraction, examiner.classes.rest, 2.0**-24)
        examiner.bar = max(limit_for(u).end, min(limit_for(u).norm, found.examined.score / 4))
    counter = _Counter()

    def check(candidate: Candidate) -> tuple[Verdict, Signature | None]:
        examined = examiner.examine(candidate, found.source)
        return examined.verdict, examined.signature

    def again(candidate: Candidate) -> tuple[Verdict, Signature | None]:
        counter.fresh += 1
        examined = examiner.examine(candidate, found.source, fresh=counter.fresh)
        return examined.verdict, examined.signature

    problem = Problem(
        structure, found.candidate, check, signature=found.examined.signature, recheck=again
    )
    return reduce(problem, hint=hint, confirm=confirmations)
