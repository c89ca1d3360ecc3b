"""The same model computed in wider floats: the reference a rounding is measured against.

Tensors of fp16 and bf16 become fp32.  Casts that the model writes stay: a Cast to a narrow type
still rounds, and its result is widened again at once.  Names, node order and structure stay, so
values of the widened graph compare with values of the model by name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from debugtaps.graph import NARROW, Graph, TensorType, load_array, offload

__all__ = ["doubled", "widen"]

_WIDE = TensorProto.FLOAT
_MANY = 1024
"""Elements of a constant that goes into a file, as large models have it: one is held at a time."""
_TYPE_ATTRIBUTES = {"dtype", "output_dtype", "stash_type", "softmax_precision"}


def widen(graph: Graph) -> Graph:
    """Returns ``graph`` with every narrow float widened to fp32; itself if it has none."""
    if not _has_narrow(graph):
        return graph
    narrowed: dict[str, int] = {}
    nodes = []
    for node in graph.nodes:
        proto = NodeProto()
        proto.CopyFrom(node.proto)
        to = _narrow_cast(proto, graph)
        if to is not None:
            narrowed[node.writes[0]] = to
        else:
            _widen_attributes(proto)
        nodes.append(dataclasses.replace(node, proto=proto))
    return dataclasses.replace(
        graph,
        nodes=tuple(nodes),
        inputs={n: _wide_type(t) for n, t in graph.inputs.items()},
        outputs={n: _wide_type(t) for n, t in graph.outputs.items()},
        constants=_wide_constants(graph),
        types={n: _wide_type(t) for n, t in graph.types.items()},
        narrowed=narrowed,
    )


def doubled(graph: Graph, index: int, keep: Collection[str] = ()) -> Graph | None:
    """Returns a graph in which one operator reads and writes double in place of fp32.

    Whether a runtime has such a kernel only a build can tell.  ``None`` where it makes no sense:
    operators with bodies, casts, and those that touch no fp32 tensor.

    Args:
        graph: The widened graph.
        index: The operator.
        keep: Tensors that stay as they are: what shape inference reads.
    """
    node = graph.nodes[index]
    touched = {t for t in (*node.reads, *node.writes) if graph.elem(t) == _WIDE} - set(keep)
    if node.has_body or node.op in ("Cast", "CastLike") or not touched.intersection(node.writes):
        return None
    constants = dict(graph.constants)
    for name in touched & constants.keys():
        constant = constants[name]
        if isinstance(constant, NodeProto):
            return None
        values = load_array(constant, graph.folder).astype(np.float64)
        constants[name] = numpy_helper.from_array(values, name)
    types = dict(graph.types)
    types |= {t: TensorType(TensorProto.DOUBLE, types[t].shape) for t in touched}
    return dataclasses.replace(graph, constants=constants, types=types)


def _has_narrow(graph: Graph) -> bool:
    if any(t.elem in NARROW for t in graph.types.values()):
        return True
    return any(
        isinstance(c, TensorProto) and c.data_type in NARROW for c in graph.constants.values()
    )


def _wide_type(kind: TensorType) -> TensorType:
    return TensorType(_WIDE, kind.shape) if kind.elem in NARROW else kind


def _narrow_cast(proto: NodeProto, graph: Graph) -> int | None:
    """Returns the narrow type a Cast rounds to, or ``None``."""
    if proto.domain not in ("", "ai.onnx"):
        return None
    if proto.op_type == "Cast":
        to = next((int(a.i) for a in proto.attribute if a.name == "to"), 0)
        return to if to in NARROW else None
    if proto.op_type == "CastLike":
        elem = graph.elem(proto.input[1])
        if elem in NARROW:
            del proto.input[1:]
            proto.op_type = "Cast"
            proto.ClearField("attribute")
            proto.attribute.append(onnx.helper.make_attribute("to", elem))
            return elem
    return None


def _widen_attributes(proto: NodeProto) -> None:
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in NARROW:
            values = numpy_helper.to_array(attribute.t).astype(np.float32)
            attribute.t.CopyFrom(numpy_helper.from_array(values, attribute.t.name))
        elif (
            attribute.type == AttributeProto.INT
            and attribute.name in _TYPE_ATTRIBUTES
            and attribute.i in NARROW
        ):
            attribute.i = _WIDE
        elif attribute.type == AttributeProto.GRAPH:
            _widen_body(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for body in attribute.graphs:
                _widen_body(body)


def _widen_body(body: GraphProto) -> None:
    for value in [*body.input, *body.output, *body.value_info]:
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = _WIDE
    for tensor in body.initializer:
        if tensor.data_type in NARROW and tensor.data_location != TensorProto.EXTERNAL:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in body.node]
    body.ClearField("node")
    for node in nodes:
        to = next((int(a.i) for a in node.attribute if a.name == "to"), 0)
        if node.op_type == "Cast" and to in NARROW:
            result = node.output[0]
            node.output[0] = f"{result}::narrow"
            body.node.append(node)
            body.node.append(onnx.helper.make_node("Cast", [node.output[0]], [result], to=_WIDE))
        else:
            _widen_attributes(node)
            body.node.append(node)


def _wide_constants(graph: Graph) -> dict[str, TensorProto | NodeProto]:
    wide: dict[str, TensorProto | NodeProto] = {}
    big = []
    for name, constant in graph.constants.items():
        if isinstance(constant, TensorProto) and constant.data_type in NARROW:
            if math.prod(constant.dims) >= _MANY:
                constant = TensorProto(name=name, dims=constant.dims, data_type=_WIDE)
                constant.raw_data = b"elsewhere"
                big.append(constant)
            else:
                constant = numpy_helper.from_array(_in_float(graph, name), name)
        elif isinstance(constant, NodeProto):
            copy = NodeProto()
            copy.CopyFrom(constant)
            _widen_attributes(copy)
            constant = copy
        wide[name] = constant
    if big:
        file = f"weights-{graph.sha256[:16]}-wide.bin"
        offload(
            big, graph.folder, file, lambda t: _in_float(graph, t.name).reshape(-1).view("u1").data
        )
    return wide


def _in_float(graph: Graph, name: str) -> np.ndarray:
    constant = graph.constants[name]
    assert isinstance(constant, TensorProto)
    return load_array(constant, graph.folder).astype(np.float32)
