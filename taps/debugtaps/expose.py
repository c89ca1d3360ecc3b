"""Taps become outputs: one Identity each, after everything else, under a name of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, ValueInfoProto, helper

from debugtaps.graph import TensorType
from debugtaps.surgery import value_info

__all__ = ["Exposed", "expose"]


@dataclass(frozen=True, slots=True)
class Exposed:
    """One tap as it stands in the model.

    Attributes:
        name: What tables and the reference file call it.
        output: The graph output.
        tensor: The tensor it shows.
    """

    name: str
    output: str
    tensor: str


def expose(
    model: ModelProto, taps: Iterable[tuple[str, str]], types: Mapping[str, TensorType]
) -> list[Exposed]:
    """Adds an output for each tap; nothing else of the model changes.

    The output bears the tap's name, or ``tap/<name>`` where a tensor of the model has it already.

    Args:
        model: The model, changed in place.
        taps: Names and tensors; a tensor may be a graph input, a weight or an output, and may
            have several taps.
        types: Types of tensors the model does not declare.
    """
    used = set(_names(model.graph))
    shown = {value.name for value in model.graph.output}
    nodes = {node.name for node in model.graph.node}
    found = []
    declared = _declared(model.graph)
    for name, tensor in taps:
        output = _free(name, used)
        used.add(output)
        known = name if name not in shown else output
        shown.add(known)
        node = _free(f"tap/{name}", nodes)
        nodes.add(node)
        model.graph.node.append(helper.make_node("Identity", [tensor], [output], name=node))
        model.graph.output.append(_value(output, tensor, declared, types))
        found.append(Exposed(known, output, tensor))
    return found


def _free(name: str, used: set[str]) -> str:
    while name in used:
        name = f"tap/{name}"
    return name


def _names(graph: GraphProto) -> Iterable[str]:
    for values in (graph.input, graph.output, graph.initializer, graph.value_info):
        yield from (value.name for value in values)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names(attribute.g)
            for body in attribute.graphs:
                yield from _names(body)


def _declared(graph: GraphProto) -> dict[str, ValueInfoProto]:
    values: Sequence[ValueInfoProto] = [*graph.value_info, *graph.input, *graph.output]
    found = {v.name: v for v in values if v.type.tensor_type.elem_type}
    for tensor in graph.initializer:
        found[tensor.name] = helper.make_tensor_value_info(
            tensor.name, tensor.data_type, list(tensor.dims)
        )
    return found


def _value(
    output: str,
    tensor: str,
    declared: Mapping[str, ValueInfoProto],
    types: Mapping[str, TensorType],
) -> ValueInfoProto:
    if tensor in declared:
        value = ValueInfoProto()
        value.CopyFrom(declared[tensor])
        value.name = output
        return value
    return value_info(output, types.get(tensor))
