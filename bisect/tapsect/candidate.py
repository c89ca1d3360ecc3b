"""What is kept of a graph, as index sets, and how one candidate becomes another.

    model       in ─▶ A ─a▶ B ─b▶ C ─c▶ D ─▶ out
    removed B   in ─▶ A      [b]─▶ C ─c▶ D ─▶ out      C reads the recorded value of b, so that
                                                       nothing needs A: A goes too
    bypassed B  in ─▶ A ─a▶────▶ C ─c▶ D ─▶ out        C reads a in place of b; A still counts

The inputs of a candidate are not stored.  Every tensor that a kept node reads (after following
``bypass``), that is no constant and that no kept node writes, is fed with its recorded value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

__all__ = [
    "Candidate",
    "Structure",
    "fed",
    "looking_at",
    "neighbours",
    "ordered",
    "readers",
    "restrict",
    "ways_around",
    "why_invalid",
    "without",
]

_UNCHANGED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A part of a graph.

    Attributes:
        nodes: Indices of the operators kept.
        outputs: Tensors looked at, each written by a kept node, in topological order.
        bypass: Sorted pairs: a tensor that a removed node wrote, and the tensor that is read in
            its place.  The second is never itself the first of another pair.
    """

    nodes: frozenset[int]
    outputs: tuple[str, ...]
    bypass: tuple[tuple[str, str], ...] = ()


class Structure(Protocol):
    """What may be asked of a graph; answers never change.

    A tensor is known by its name and is written by at most one node.
    """

    def order(self) -> Sequence[int]:
        """Returns every node once, writers before readers."""

    def reads(self, node: int) -> Sequence[str]:
        """Returns the tensors a node reads, those that its bodies capture included."""

    def writes(self, node: int) -> Sequence[str]:
        """Returns the tensors a node writes."""

    def producer(self, tensor: str) -> int | None:
        """Returns the node that writes a tensor; ``None`` for graph inputs and constants."""

    def consumers(self, tensor: str) -> Sequence[int]:
        """Returns the nodes that read a tensor."""

    def same_type(self, a: str, b: str) -> bool:
        """Returns whether both tensors are known to be of one element type and shape."""

    def is_constant(self, tensor: str) -> bool:
        """Returns whether a tensor never depends on the inputs; such a one is not fed."""

    def feedable(self, tensor: str) -> bool:
        """Returns whether a recorded value exists, so that the tensor may become an input."""


def ordered(structure: Structure, nodes: Collection[int]) -> list[int]:
    """Returns ``nodes`` in topological order."""
    return [node for node in structure.order() if node in nodes]


def fed(structure: Structure, candidate: Candidate) -> tuple[str, ...]:
    """Returns the tensors that must be fed, in the order in which they are first read."""
    written = _written(structure, candidate.nodes)
    bypass = dict(candidate.bypass)
    needed: dict[str, None] = {}
    for node in ordered(structure, candidate.nodes):
        for tensor in structure.reads(node):
            source = bypass.get(tensor, tensor)
            if source not in written and not structure.is_constant(source):
                needed[source] = None
    return tuple(needed)


def readers(structure: Structure, candidate: Candidate, tensor: str) -> list[int]:
    """Returns the kept nodes that read ``tensor``, directly or through a bypass."""
    names = [tensor, *(name for name, source in candidate.bypass if source == tensor)]
    found = (reader for name in names for reader in structure.consumers(name))
    return [reader for reader in dict.fromkeys(found) if reader in candidate.nodes]


def why_invalid(structure: Structure, candidate: Candidate) -> str:
    """Returns why a candidate is no model, as a sentence; empty when nothing speaks against it."""
    written = _written(structure, candidate.nodes)
    if not candidate.nodes or not candidate.outputs:
        return "nothing is left to run or to look at"
    for output in candidate.outputs:
        if output not in written:
            return f"output {output!r} is not written by a kept node"
    bypassed = {tensor for tensor, _ in candidate.bypass}
    for tensor, source in candidate.bypass:
        if tensor in written:
            return f"{tensor!r} is bypassed although its node is kept"
        if source in bypassed:
            return f"{source!r} is read in place of {tensor!r} and is bypassed itself"
        if not structure.same_type(tensor, source):
            return f"{source!r} cannot be read in place of {tensor!r}: type or shape differ"
    for tensor in fed(structure, candidate):
        if not structure.feedable(tensor):
            return f"{tensor!r} would be an input, but no value of it was recorded"
    return ""


def without(
    structure: Structure,
    candidate: Candidate,
    nodes: Collection[int],
    *,
    bypass: Mapping[str, str] = _UNCHANGED,
) -> Candidate:
    """Returns ``candidate`` less ``nodes``; see ``restrict``."""
    return restrict(structure, candidate, candidate.nodes.difference(nodes), bypass=bypass)


def restrict(
    structure: Structure,
    candidate: Candidate,
    keep: Collection[int],
    *,
    bypass: Mapping[str, str] = _UNCHANGED,
) -> Candidate:
    """Returns ``candidate`` with only ``keep`` of its nodes, tidied.

    Tidied means: where a node that wrote an output went, what it read of kept nodes is looked
    at in its place (unless a kept node reads it); nodes that no output needs go as well; so do
    bypasses that nobody reads.

    Args:
        structure: The graph.
        candidate: Where to start from.
        keep: Nodes to keep; those that are not in ``candidate`` do not count.
        bypass: For tensors written by nodes that go: what is read in their place.
    """
    nodes = candidate.nodes.intersection(keep)
    around = _flat({**dict(candidate.bypass), **bypass})
    written = _written(structure, nodes)
    outputs = {tensor for tensor in candidate.outputs if tensor in written}
    if len(outputs) < len(candidate.outputs):
        read = _read(structure, nodes, around)
        gone = _read(structure, candidate.nodes - nodes, around)
        # A start that was never tidied may end in tensors that nobody reads.
        outputs |= (gone & written) - read or (set() if outputs else written - read)
    return _tidy(structure, nodes, outputs, around)


def looking_at(structure: Structure, candidate: Candidate, outputs: Collection[str]) -> Candidate:
    """Returns ``candidate`` with only ``outputs`` looked at, tidied."""
    wanted = {tensor for tensor in candidate.outputs if tensor in outputs}
    return _tidy(structure, candidate.nodes, wanted, dict(candidate.bypass))


def ways_around(structure: Structure, candidate: Candidate, node: int) -> list[dict[str, str]]:
    """Returns every bypass of one kept node, each as a mapping to give to ``without``.

    For each tensor that others read, the node's own reads of equal type and shape stand in:
    those that a kept node writes first, then fed ones, then constants.  A node that writes
    several read tensors takes the k-th stand-in of each together, so that the number of ways
    stays that of its reads; a tensor without a stand-in is fed.
    """
    bypass = dict(candidate.bypass)

    def rank(tensor: str) -> int:
        if structure.producer(tensor) in candidate.nodes:
            return 0
        return 2 if structure.is_constant(tensor) else 1

    reads = sorted(dict.fromkeys(bypass.get(t, t) for t in structure.reads(node)), key=rank)
    stand_ins: dict[str, list[str]] = {}
    for tensor in structure.writes(node):
        equal = [source for source in reads if structure.same_type(tensor, source)]
        if equal and readers(structure, candidate, tensor):
            stand_ins[tensor] = equal
    count = max(map(len, stand_ins.values()), default=0)
    return [
        {tensor: equal[min(k, len(equal) - 1)] for tensor, equal in stand_ins.items()}
        for k in range(count)
    ]


def neighbours(structure: Structure, candidate: Candidate) -> Iterator[Candidate]:
    """Yields what is left when one node goes: removed, then bypassed in every way.

    A candidate none of whose neighbours fails is 1-minimal.
    """
    for node in ordered(structure, candidate.nodes):
        yield without(structure, candidate, {node})
        for bypass in ways_around(structure, candidate, node):
            yield without(structure, candidate, {node}, bypass=bypass)


def _tidy(
    structure: Structure, nodes: frozenset[int], outputs: set[str], bypass: Mapping[str, str]
) -> Candidate:
    needed = set(outputs)
    followed: set[tuple[str, str]] = set()
    kept: list[int] = []
    for node in reversed(ordered(structure, nodes)):
        if needed.isdisjoint(structure.writes(node)):
            continue
        kept.append(node)
        for tensor in structure.reads(node):
            if tensor in bypass:
                followed.add((tensor, bypass[tensor]))
            needed.add(bypass.get(tensor, tensor))
    in_order = [t for node in reversed(kept) for t in structure.writes(node) if t in outputs]
    return Candidate(frozenset(kept), tuple(in_order), tuple(sorted(followed)))


def _flat(bypass: Mapping[str, str]) -> dict[str, str]:
    """Returns ``bypass`` with every chain followed to its end; equal graphs get equal pairs."""
    flat: dict[str, str] = {}
    for tensor in bypass:
        path = [tensor]
        source = bypass[tensor]
        while source in bypass:
            path.append(source)
            source = flat[source] if source in flat else bypass[source]
        flat.update(dict.fromkeys(path, source))
    return flat


def _written(structure: Structure, nodes: Collection[int]) -> set[str]:
    return {tensor for node in nodes for tensor in structure.writes(node)}


def _read(structure: Structure, nodes: Collection[int], bypass: Mapping[str, str]) -> set[str]:
    return {bypass.get(tensor, tensor) for node in nodes for tensor in structure.reads(node)}
