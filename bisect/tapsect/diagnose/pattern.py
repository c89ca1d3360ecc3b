"""What makes operators of different models alike: types, attributes, data types, shapes, edges.

Names, weights and sizes are left out; how large a kernel or a head is, too, but not whether it is
one at all.  Two faults with one pattern are likely one bug of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, helper

from debugtaps import Graph, Node
from tapsect.replay.judging import Judgement
from tapsect.rounding.floors import limit_for
from tapsect.rounding.ratios import ELEMENT_CONTRAST

__all__ = ["extent", "pattern"]

_VERBATIM = frozenset(
    {
        "align_corners", "allowzero", "auto_pad", "batch_dims", "ceil_mode", "count_include_pad",
        "coordinate_transformation_mode", "direction", "equation", "exclusive", "is_causal",
        "keepdims", "largest", "layout", "linear_before_reset", "mode", "nearest_mode",
        "noop_with_empty_axes", "padding_mode", "perm", "reduction", "reverse", "rounding_type",
        "saturate", "select_last_index", "sorted", "stash_type", "to", "transA", "transB",
        "approximate", "unidirectional", "qk_matmul_output_mode", "simplified",
    }
)  # fmt: skip
"""Attributes whose value chooses what is computed; of others only the class counts."""

_AXES = frozenset({"axis", "axes"})


def pattern(graph: Graph, nodes: Collection[int]) -> list[str]:
    """Returns the operators of a region, one line each, and the edges between them.

    Their order depends on nothing but themselves.

    Args:
        graph: The model.
        nodes: Indices of its nodes.

    Returns:
        For one node, say, ``["LayerNormalization(axis=last) float16r3 float16c -> float16r3"]``.
    """
    lines = {i: _operator(graph, graph.nodes[i]) for i in sorted(nodes)}
    edges = {
        f"{graph.nodes[graph.producer[t]].op} > {graph.nodes[i].op}"
        for i in lines for t in graph.nodes[i].reads if graph.producer.get(t) in lines
    }  # fmt: skip
    return [*sorted(lines.values()), *sorted(edges)]


def _operator(graph: Graph, node: Node) -> str:
    rank = next((_rank(graph, t) for t in (*node.writes, *node.reads) if _rank(graph, t)), None)
    told = [
        f"{a.name}={shown}" for a in sorted(node.proto.attribute, key=lambda a: a.name)
        if (shown := _attribute(a, rank))
    ]  # fmt: skip
    name = f"{node.domain}::{node.op}" if node.domain else node.op
    inputs = " ".join(_tensor(graph, t) if t else "-" for t in node.proto.input)
    outputs = " ".join(_tensor(graph, t) for t in node.writes)
    return f"{name}({', '.join(told)}) {inputs} -> {outputs}"


def _rank(graph: Graph, tensor: str) -> int | None:
    found = graph.types.get(tensor)
    return None if found is None or found.shape is None else len(found.shape)


def _tensor(graph: Graph, tensor: str) -> str:
    """Returns type, rank and kind of a tensor: ``float32r4``, ``c`` constant, ``d`` dynamic."""
    elem, rank = graph.elem(tensor), _rank(graph, tensor)
    name = "?" if elem is None else onnx.TensorProto.DataType.Name(elem).lower()
    if tensor in graph.fixed or tensor in graph.constants:
        return f"{name}c"
    shape = graph.types[tensor].shape if rank is not None else None
    return f"{name}r{'?' if shape is None else len(shape)}" + _sizes(shape)


def _sizes(shape: tuple[int | str | None, ...] | None) -> str:
    """Returns ``d`` for a shape that is not all numbers, ``e`` for an empty tensor."""
    if shape is None:
        return ""
    if not all(isinstance(size, int) for size in shape):
        return "d"
    return "e" if 0 in shape else ""


def _attribute(attribute: AttributeProto, rank: int | None) -> str:
    """Returns the class of an attribute's value; empty where it does not matter."""
    value: Any = helper.get_attribute_value(attribute) if attribute.type else None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if attribute.name in _AXES and rank:
        places = value if isinstance(value, list | tuple) else [value]
        return ",".join("last" if p % rank == rank - 1 else "inner" for p in map(int, places))
    if attribute.name == "pads" and value:
        return "n" if any(value) else "0"
    if attribute.name in _VERBATIM or isinstance(value, str):
        return str(value)[:80]
    if isinstance(value, int | float):
        return _class([value])
    if isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
        return _class(list(value))
    return ""


def _class(values: list[int | float]) -> str:
    """Returns whether numbers are all 0, all 1, or something else."""
    if all(v == 0 for v in values):
        return "0"
    return "1" if all(v == 1 for v in values) else "n"


SHARE = 0.64
"""A slice that makes so much of a tensor's error is what is wrong with it."""
LEAST_SLICES = 4
SCALED = 0.98


def extent(judgement: Judgement, shape: Sequence[int]) -> str:
    """Returns how much of a tensor is wrong, and whether it is off by a factor.

    Args:
        judgement: What the replay says of the tensor.
        shape: The tensor's.
    """
    if judgement.kind != "accuracy":
        return ""
    found, limit = judgement.ratios, limit_for(judgement.u)
    count = shape[found.axis] if found.axis is not None and found.axis < len(shape) else 1
    if found.element >= limit.element and found.contrast >= ELEMENT_CONTRAST:
        return "single elements"
    if count >= LEAST_SLICES and found.norm and (found.slice / found.norm) ** 2 > SHARE * count:
        return "one slice"
    return "scaled" if judgement.corr > SCALED else "everywhere"
