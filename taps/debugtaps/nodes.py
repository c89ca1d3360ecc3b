"""The operators of a model: named, in topological order, with what their bodies capture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onnx import AttributeProto, GraphProto, NodeProto

from debugtaps.errors import ModelError

__all__ = ["STANDARD_DOMAINS", "Node", "captured", "named", "repeats", "sorted_nodes"]

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"})


@dataclass(frozen=True, slots=True)
class Node:
    """One operator.  ``reads`` holds what its bodies capture, and no omitted inputs."""

    index: int
    name: str
    op: str
    domain: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    proto: NodeProto = field(repr=False, compare=False)

    @property
    def plugin(self) -> bool:
        """Returns whether the operator lies outside the standard ONNX domains."""
        return self.domain not in STANDARD_DOMAINS

    @property
    def has_body(self) -> bool:
        """Returns whether the operator holds a sub-graph (If, Loop, Scan …)."""
        return any(
            a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in self.proto.attribute
        )


def captured(graph: GraphProto) -> list[str]:
    """Returns the names that a body reads from outside itself, in order."""
    local = {v.name for v in graph.input} | {t.name for t in graph.initializer} | {""}
    found: list[str] = []
    for node in graph.node:
        found += [t for t in _reads(node) if t not in local]
        local.update(node.output)
    found += [v.name for v in graph.output if v.name not in local]
    return list(dict.fromkeys(found))


def _reads(proto: NodeProto) -> list[str]:
    names = [t for t in proto.input if t]
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names += captured(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for body in attribute.graphs:
                names += captured(body)
    return list(dict.fromkeys(names))


def sorted_nodes(protos: Sequence[NodeProto], known: set[str]) -> list[tuple[NodeProto, list[str]]]:
    """Keeps the model's order where it is topological; moves late producers forward if not."""
    have, result = set(known), []
    waiting = [(p, _reads(p)) for p in protos]
    while waiting:
        later = []
        for proto, reads in waiting:
            if all(t in have for t in reads):
                result.append((proto, reads))
                have.update(proto.output)
            else:
                later.append((proto, reads))
        if len(later) == len(waiting):
            raise ModelError(_unsortable(later, have))
        waiting = later
    return result


def _unsortable(waiting: Sequence[tuple[NodeProto, list[str]]], have: set[str]) -> str:
    """Returns why nodes cannot be put in order: a tensor that nothing makes, or a cycle."""
    made = {t for proto, _ in waiting for t in proto.output} | have
    for proto, reads in waiting:
        for tensor in reads:
            if tensor not in made:
                return f"node {proto.name or proto.op_type!r} reads {tensor!r}, which nothing makes"
    proto, reads = waiting[0]
    tensor = next(t for t in reads if t not in have)
    return (
        f"node {proto.name or proto.op_type!r} reads {tensor!r}, which is made from its own "
        "result (a cycle)"
    )


def repeats(names: Iterable[str]) -> bool:
    """Returns whether a name occurs twice; nodes without a name do not count."""
    given = [n for n in names if n]
    return len(set(given)) < len(given)


def named(items: Sequence[tuple[NodeProto, list[str]]]) -> tuple[Node, ...]:
    """Returns the operators, each by a name of its own."""
    counts: dict[str, int] = {}
    for proto, _ in items:
        counts[proto.name] = counts.get(proto.name, 0) + 1
    nodes, used = [], {n for n, c in counts.items() if n and c == 1}
    for index, (proto, reads) in enumerate(items):
        writes = tuple(t for t in proto.output if t)
        name = proto.name
        if not name or counts[name] > 1:
            name = writes[0] if writes else f"{proto.op_type}_{index}"
            while name in used:
                name += "'"
            used.add(name)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        nodes.append(Node(index, name, proto.op_type, domain, tuple(reads), writes, proto))
    return tuple(nodes)
