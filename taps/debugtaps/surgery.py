"""Candidates: models made from a graph by promoting, cutting out and perturbing.

Each function returns a small ``ModelProto`` (a shell: weights lie in ``graph.folder``) with the
model's own IR version and opsets, so that any interpreter and any engine that takes the model
takes the candidate.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from debugtaps.graph import Graph, TensorType

__all__ = ["extract", "implied_inputs", "narrow_constants", "promote", "save", "value_info"]


def value_info(name: str, kind: TensorType | None) -> ValueInfoProto:
    """Returns the declaration of a tensor; an unknown type is left out, not invented."""
    if kind is None or not kind.elem:
        return ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, kind.elem, kind.shape)


def save(model: ModelProto, path: Path) -> Path:
    """Writes a candidate; it appears whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    temporary.write_bytes(model.SerializeToString())
    os.replace(temporary, path)
    return path


def implied_inputs(
    graph: Graph, nodes: Iterable[int], aliases: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Returns what must be fed so that ``nodes`` can run alone, in order of first use.

    Args:
        graph: The whole model.
        nodes: Indices of the operators kept.
        aliases: Tensor -> tensor that is read in its place (a bypassed operator).
    """
    kept, names = sorted(nodes), aliases or {}
    made = {t for i in kept for t in graph.nodes[i].writes}
    needed: dict[str, None] = {}
    for index in kept:
        for tensor in graph.nodes[index].reads:
            source = follow(tensor, names)
            if source not in made and source not in graph.constants and source not in graph.sparse:
                needed.setdefault(source)
    return tuple(needed)


def follow(tensor: str, aliases: Mapping[str, str]) -> str:
    """Returns the tensor that is read in place of ``tensor``."""
    while tensor in aliases:
        tensor = aliases[tensor]
    return tensor


def extract(
    graph: Graph,
    nodes: Iterable[int],
    outputs: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    types: Mapping[str, TensorType] | None = None,
) -> ModelProto:
    """Returns the model of ``nodes`` alone that shows ``outputs``.

    Inputs are those of :func:`implied_inputs`.  Constants stay initializers.

    Args:
        graph: The whole model.
        nodes: Indices of the operators kept.
        outputs: Tensors to expose, in this order.
        aliases: Tensor -> tensor that is read in its place.
        types: Types that override what the graph knows (static shapes, say).
    """
    kept, names, told = sorted(nodes), aliases or {}, {**graph.types, **(types or {})}
    model = ModelProto()
    model.CopyFrom(graph.shell)
    target = model.graph
    for name in implied_inputs(graph, kept, names):
        target.input.append(value_info(name, told.get(name)))
    used = [follow(t, names) for i in kept for t in graph.nodes[i].reads]
    shown = [follow(t, names) for t in outputs]
    add_constants(graph, target, dict.fromkeys([*used, *shown]))
    for index in kept:
        copy = emit(graph, index, target)
        if names:
            rename_reads(copy, names)
    for name in shown:
        target.output.append(value_info(name, told.get(name)))
    return model


def emit(graph: Graph, index: int, target: GraphProto) -> NodeProto:
    """Adds one operator to a candidate and returns its copy there."""
    node = graph.nodes[index]
    copy: NodeProto = target.node.add()
    copy.CopyFrom(node.proto)
    if graph.renamed and copy.name:
        copy.name = node.name  # engines refuse models in which two nodes bear one name
    narrow = node.writes[0] if node.writes and node.writes[0] in graph.narrowed else None
    if narrow is not None:  # a Cast that rounds: its result is widened at once
        copy.output[0] = f"{narrow}::narrow"
        target.node.append(
            helper.make_node("Cast", [copy.output[0]], [narrow], to=TensorProto.FLOAT)
        )
    return copy


def add_constants(graph: Graph, target: GraphProto, used: Iterable[str]) -> None:
    """Adds the constants among ``used``, in the form the model has them, before any operator."""
    for name in used:
        constant = graph.constants.get(name)
        if isinstance(constant, NodeProto):
            target.node.append(constant)
        elif constant is not None:
            target.initializer.append(constant)
        elif name in graph.sparse:
            target.sparse_initializer.append(graph.sparse[name])


def rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    """Makes a node, and what its bodies capture, read other tensors."""
    for position, tensor in enumerate(node.input):
        if tensor in names:
            node.input[position] = follow(tensor, names)
    for attribute in node.attribute:
        for body in (
            [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs
        ):
            local = {v.name for v in body.input} | {t.name for t in body.initializer}
            local |= {t for inner in body.node for t in inner.output}
            visible = {k: v for k, v in names.items() if k not in local}
            for inner in body.node:
                rename_reads(inner, visible)
            for value in body.output:
                if value.name in visible:
                    value.name = follow(value.name, visible)


def narrow_constants(model: ModelProto, to: int) -> None:
    """Rounds the float weights of a candidate to a narrow type, in place, by two casts each.

    Single numbers and vectors stay: scales, axes of a resize and the like are no weights.
    """
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.dims) < 2:
            continue
        name, plain, narrow = tensor.name, f"plain::{tensor.name}", f"narrow::{tensor.name}"
        tensor.name = plain
        casts.append(helper.make_node("Cast", [plain], [narrow], to=to))
        casts.append(helper.make_node("Cast", [narrow], [name], to=TensorProto.FLOAT))
    rest = [NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    model.graph.ClearField("node")
    model.graph.node.extend([*casts, *rest])


def promote(graph: Graph, taps: Collection[str]) -> ModelProto:
    """Returns the whole model with ``taps`` as further outputs, after its own.

    A tap that is an output already is not repeated.
    """
    shown = [*graph.outputs, *(t for t in taps if t not in graph.outputs)]
    model = extract(graph, range(len(graph.nodes)), shown)
    # The model's own signature stays as it was, inputs that nothing reads included.
    model.graph.ClearField("input")
    model.graph.input.extend(value_info(n, t) for n, t in graph.inputs.items())
    return model
