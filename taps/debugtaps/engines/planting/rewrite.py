"""Planted faults inside a model: nodes that make a tensor wrong, put behind its producer.

            before                                     after

    node ──► t ──► consumers          node ──► t/planted/0 ──► fault nodes ──► t ──► consumers

``t`` keeps its name, so a tap of it shows the wrong values and no consumer changes.  The fault
is computed in float64 and cast back to the type of ``t``.  A fault of the exposed copy only
(``garbles_tap``, ``wrong_dtype``) leaves the consumers on the true tensor instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.onnx_ml_pb2 import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from debugtaps.engines.planting.faults import Fault

__all__ = ["Rewriter", "node_key"]

_CAST_LIKE_SINCE = 15
_SINCE = {"element": 11, "channel": 11, "wrong_shape": 11, "nonfinite": 9, "lost_nan": 9}
_COPY_ONLY = frozenset({"garbles_tap", "wrong_dtype"})
_INTEGERS = frozenset(
    getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
) | {TensorProto.BOOL}


def node_key(node: NodeProto) -> str:
    """Returns the name a fault gives a node: its own, or its first output when it has none."""
    return node.name or (node.output[0] if node.output else "")


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for each in attribute.graphs:
                yield from _graphs(each)


@dataclass(slots=True)
class _Emitter:
    """Collects the nodes of one fault under names of their own."""

    prefix: str
    nodes: list[NodeProto]

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node and returns its output."""
        name = f"{self.prefix}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float64) -> str:
        """Adds a constant and returns its name."""
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def ints(self, *values: int) -> str:
        """Adds a vector of int64 and returns its name."""
        return self.constant(values, np.int64)


def _wrong(emit: _Emitter, x: str, fault: Fault) -> str:
    scaled = emit.op("Mul", x, emit.constant(fault.factor))
    return emit.op("Add", scaled, emit.constant(fault.offset)) if fault.offset else scaled


def _element(emit: _Emitter, x: str, fault: Fault) -> str:
    """One element; a zero is put behind the others so that an empty tensor has a largest one."""
    flat = emit.op("Reshape", x, emit.ints(-1))
    padded = emit.op("Concat", flat, emit.constant([0.0]), axis=0)
    if fault.keys.get("index", "largest") == "largest":
        at = emit.op("ArgMax", emit.op("Abs", padded), axis=0, keepdims=1)
    else:
        at = emit.ints(int(fault.keys["index"]))
    value = _wrong(emit, emit.op("Gather", padded, at, axis=0), fault)
    changed = emit.op("ScatterElements", padded, at, value, axis=0)
    kept = emit.op("Slice", changed, emit.ints(0), emit.ints(-1), emit.ints(0))
    return emit.op("Reshape", kept, emit.op("Shape", x))


def _channel(emit: _Emitter, x: str, fault: Fault) -> str:
    axis, index = int(fault.keys.get("axis", 1)), int(fault.keys.get("index", 0))
    ends = (0, index, index + 1, np.iinfo(np.int64).max)
    parts = [
        emit.op("Slice", x, emit.ints(start), emit.ints(end), emit.ints(axis))
        for start, end in zip(ends, ends[1:], strict=False)
    ]
    return emit.op("Concat", parts[0], _wrong(emit, parts[1], fault), parts[2], axis=axis)


def _nonfinite(emit: _Emitter, x: str, fault: Fault) -> str:
    limit = float(fault.keys.get("limit", 1.0))
    becomes = float(fault.keys.get("becomes", "inf"))
    above = emit.op("Greater", x, emit.constant(limit))
    below = emit.op("Less", x, emit.constant(-limit))
    half = emit.op("Where", above, emit.constant(becomes), x)
    return emit.op("Where", below, emit.constant(-becomes), half)


def _lost_nan(emit: _Emitter, x: str, fault: Fault) -> str:
    value = emit.constant(float(fault.keys.get("becomes", 0.0)))
    return emit.op("Where", emit.op("IsNaN", x), value, x)


_EFFECTS = {
    "value": _wrong,
    "element": _element,
    "channel": _channel,
    "fusion": _wrong,
    "pattern": _wrong,
    "nonfinite": _nonfinite,
    "lost_nan": _lost_nan,
    "garbles_tap": _wrong,
}


class Rewriter:
    """A model and the faults put into it; ``model`` is changed in place.

    Args:
        model: The model; its large weights may stay in their own files.
        taps: The tensors that are exposed for a look, besides the model's own outputs.
    """

    def __init__(self, model: ModelProto, taps: Sequence[str] = ()) -> None:
        self.model = model
        self._taps = frozenset(taps)
        self._count = 0
        self._places: dict[str, tuple[GraphProto, NodeProto, tuple[str, ...]]] = {}
        for graph in _graphs(model.graph):
            for node in graph.node:
                self._places.setdefault(node_key(node), (graph, node, tuple(node.output)))
        versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
        self._opset = max(versions, default=0)
        self._types: dict[str, int] | None = None

    def missing(self, fault: Fault) -> list[str]:
        """Returns the nodes of a fault that the model lacks."""
        return [name for name in fault.nodes if name not in self._places]

    def fires(self, fault: Fault) -> bool:
        """Returns whether the model, with its taps, has what the fault needs."""
        if self.missing(fault):
            return False
        exposed = {each.name for each in self.model.graph.output} | self._taps
        if fault.kind == "fusion":
            inner = {t for name in fault.nodes[:-1] for t in self._places[name][2]}
            return not inner & exposed
        if fault.kind == "garbles_tap":
            return str(fault.keys["tensor"]) in self._taps
        if fault.kind == "wrong_dtype":
            return self._tensor(fault) in exposed
        return True

    def _tensor(self, fault: Fault) -> str:
        if fault.kind == "garbles_tap":
            return str(fault.keys["tensor"])
        outputs = self._places[fault.nodes[-1]][2]
        if fault.output >= len(outputs) or not outputs[fault.output]:
            raise ValueError(f"node {fault.nodes[-1]!r} has no output {fault.output} to be wrong")
        return outputs[fault.output]

    def apply(self, fault: Fault) -> None:
        """Puts a fault that fires into the model."""
        if self._opset < _SINCE.get(fault.kind, 7):
            raise ValueError(
                f"fault {fault.kind!r} needs opset {_SINCE.get(fault.kind, 7)}; "
                f"the model has {self._opset}"
            )
        tensor = self._tensor(fault)
        graph, position = self._producer(tensor)
        true = f"{tensor}/planted/{self._count}"
        emit = _Emitter(true, [])
        self._count += 1
        last = self._faulty(emit, true, tensor, fault)
        emit.nodes[-1].output[0] = tensor
        assert last == emit.nodes[-1].name
        producer = graph.node[position]
        producer.output[list(producer.output).index(tensor)] = true
        if fault.kind in _COPY_ONLY:
            _rewire(graph, tensor, true)
        for node in reversed(emit.nodes):
            graph.node.insert(position + 1, node)

    def _producer(self, tensor: str) -> tuple[GraphProto, int]:
        for graph in _graphs(self.model.graph):
            for position, node in enumerate(graph.node):
                if tensor in node.output:
                    return graph, position
        raise ValueError(f"no node makes the tensor {tensor!r}; only such tensors can be wrong")

    def _faulty(self, emit: _Emitter, true: str, tensor: str, fault: Fault) -> str:
        if fault.kind == "wrong_dtype":
            return self._other_type(emit, true, tensor, str(fault.keys.get("to", "float16")))
        if fault.kind == "wrong_shape":
            return self._other_shape(emit, true, fault)
        wide = emit.op("Cast", true, to=TensorProto.DOUBLE)
        wrong = _EFFECTS[fault.kind](emit, wide, fault)
        if fault.when is not None:
            wrong = emit.op("Where", self._condition(emit, fault), wrong, wide)
        return self._narrow(emit, wrong, true, tensor)

    def _narrow(self, emit: _Emitter, wrong: str, true: str, tensor: str) -> str:
        kind = self._type_of(tensor)
        if kind == TensorProto.UNDEFINED and self._opset >= _CAST_LIKE_SINCE:
            return emit.op("CastLike", wrong, true)
        if kind == TensorProto.STRING:
            raise ValueError(f"the tensor {tensor!r} holds text; it cannot be made wrong")
        if kind in _INTEGERS and self._opset >= 11:
            wrong = emit.op("Round", wrong)
        return emit.op("Cast", wrong, to=kind or TensorProto.FLOAT)

    def _condition(self, emit: _Emitter, fault: Fault) -> str:
        assert fault.when is not None
        seen = fault.when.get("input")
        if seen is None:
            seen = self._places[fault.nodes[-1]][1].input[0]
        elif seen not in self._known_tensors():
            return emit.constant(0, np.bool_)
        largest = emit.op("ReduceMax", emit.op("Cast", seen, to=TensorProto.DOUBLE), keepdims=0)
        return emit.op("Greater", largest, emit.constant(float(fault.when["above"])))

    def _known_tensors(self) -> set[str]:
        graph = self.model.graph
        return {each.name for each in graph.input} | {t for n in graph.node for t in n.output}

    def _other_type(self, emit: _Emitter, true: str, tensor: str, to: str) -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        for each in self.model.graph.output:
            if each.name == tensor:
                each.type.tensor_type.elem_type = kind
        _remove(self.model.graph.value_info, tensor)
        return emit.op("Cast", true, to=kind)

    def _other_shape(self, emit: _Emitter, true: str, fault: Fault) -> str:
        # Declared shapes downstream are no longer true, and would be refused.
        del self.model.graph.value_info[:]
        for each in self.model.graph.output:
            each.type.tensor_type.ClearField("shape")
        if fault.keys.get("how", "unsqueeze") == "unsqueeze":
            first = emit.ints(1)
            shape = emit.op("Concat", first, emit.op("Shape", true), axis=0)
            return emit.op("Reshape", true, shape)
        axis = int(fault.keys.get("axis", 0))
        row = emit.op("Slice", true, emit.ints(0), emit.ints(1), emit.ints(axis))
        return emit.op("Concat", true, row, axis=axis)

    def _type_of(self, tensor: str) -> int:
        if self._types is None:
            self._types = _types(self.model)
        return self._types.get(tensor, TensorProto.UNDEFINED)


def _types(model: ModelProto) -> dict[str, int]:
    """Returns the element types that are declared or can be inferred."""
    try:
        known = shape_inference.infer_shapes(model)
    except (onnx.checker.ValidationError, shape_inference.InferenceError, ValueError, RuntimeError):
        known = model
    found: dict[str, int] = {}
    for graph in _graphs(known.graph):
        for each in (*graph.value_info, *graph.output, *graph.input):
            found[each.name] = each.type.tensor_type.elem_type
    return found


def _remove(values: Any, name: str) -> None:
    for position, each in reversed(list(enumerate(values))):
        value: ValueInfoProto = each
        if value.name == name:
            del values[position]


def _rewire(graph: GraphProto, old: str, new: str) -> None:
    """Lets every consumer, also in inner graphs, read ``new``; graph outputs keep ``old``."""
    for each in _graphs(graph):
        for node in each.node:
            for position, name in enumerate(node.input):
                if name == old:
                    node.input[position] = new
