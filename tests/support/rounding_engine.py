"""A correct engine of low precision: ONNX Runtime with every float tensor rounded.

It stands for a TensorRT in fp16 or an accelerator in bf16: each operator computes in fp32 and
rounds what it stores.  Weights and inputs are rounded as well.  What is not rounded is what such
engines keep wide too: scalars, tensors computed from constants or shapes only, and inputs that
are numbers about the graph rather than data (Resize scales, zero points, Range).

The file stands alone (numpy, onnx and onnxruntime, Python 3.8), so a worker can load it by path:
``--engine tests/support/rounding_engine.py:RoundingEngine --engine-option precision=bf16``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

__all__ = ["RoundingEngine", "RoundingSession", "emulate"]

UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
_NARROW = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_ABOUT_THE_GRAPH = {  # op -> positions of inputs that keep their width
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "Range": (0, 1, 2),
    "OneHot": (1,),
    "NonMaxSuppression": (2, 3, 4),
}
_SHAPE_OPS = {"Shape", "Size", "Constant", "EyeLike"}
_EXACT = {"Cast", "CastLike", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze"}


def emulate(model: onnx.ModelProto, precision: str, weights: bool = True) -> onnx.ModelProto:
    """Returns a copy of ``model`` in which every float tensor is rounded to ``precision``.

    A node ``n`` with float output ``t`` becomes ``n -> t (wide) -> Cast narrow -> Cast back -> t``:
    the tensor ``t`` keeps its name and holds the rounded value.  Bodies of control flow are not
    entered; their results are rounded.
    """
    narrow = _NARROW[precision]
    opset = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    floats = _float_tensors(copy)
    static = _static_tensors(graph)
    constants = {t.name: t for t in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    renamed: dict[str, str] = {}
    fed = [i.name for i in graph.input if i.name not in constants]
    for name in fed if weights else []:
        if name in floats:
            renamed[name] = name + "__rounded"
            nodes.extend(_round(name, renamed[name], narrow, opset))
    for node in graph.node:
        keep = _ABOUT_THE_GRAPH.get(node.op_type, ())
        for at, name in enumerate(node.input):
            if at not in keep and name in renamed:
                node.input[at] = renamed[name]
            elif weights and at not in keep and name in constants and name in floats:
                node.input[at] = _rounded_weight(graph, constants[name], narrow)
        nodes.append(node)
        for at, name in enumerate(node.output):
            if name in floats and name not in static and node.op_type not in _EXACT:
                node.output[at] = name + "__wide"
                nodes.extend(_round(name + "__wide", name, narrow, opset))
    del graph.node[:]
    graph.node.extend(nodes)
    _drop_unread(graph)
    return copy


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Removes weights that a rounded copy replaced: runtimes refuse unread ones before IR 4."""
    read = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    declared = {i.name for i in graph.input}
    bodies = any(a.type in (a.GRAPH, a.GRAPHS) for node in graph.node for a in node.attribute)
    kept = [t for t in graph.initializer if t.name in read | declared or bodies]
    del graph.initializer[:]
    graph.initializer.extend(kept)


class RoundingSession:
    """An ONNX Runtime session over an emulated model."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._inputs = [i.name for i in session.get_inputs()]
        self._outputs = [o.name for o in session.get_outputs()]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns all graph outputs, taps among them."""
        wanted = {name: feeds[name] for name in self._inputs if name in feeds}
        values = self._session.run(self._outputs, wanted)
        return dict(zip(self._outputs, values))  # noqa: B905 - Python 3.8

    def close(self) -> None:
        """Frees the session."""
        del self._session


class RoundingEngine:
    """Builds sessions that compute as a correct engine of ``precision`` does.

    Args:
        precision: ``fp16`` or ``bf16``.
        weights: Whether weights and inputs are rounded, too.
        level: ``off``, ``basic``, ``extended`` or ``all``: ONNX Runtime's own optimisations.
        state: Whether ``unit_roundoff`` is stated (engines rarely do).
    """

    def __init__(
        self,
        precision: str = "fp16",
        weights: bool = True,
        level: str = "off",
        state: bool = False,
    ) -> None:
        if precision not in _NARROW:
            raise ValueError(f"precision {precision!r}: one of {sorted(_NARROW)}")
        self.precision = precision
        self.weights = weights
        self.level = level
        if state:
            self.unit_roundoff = UNIT_ROUNDOFF[precision]

    def describe(self) -> dict[str, Any]:
        """Returns name, versions and precision."""
        return {
            "name": "rounding",
            "precision": self.precision,
            "versions": {"onnxruntime": ort.__version__},
            "device": "cpu",
        }

    def build(self, model: Path, taps: Sequence[str] = ()) -> RoundingSession:
        """Returns a session for ``model``, whose taps are graph outputs already."""
        proto = emulate(onnx.load(str(model)), self.precision, self.weights)
        options = ort.SessionOptions()
        options.graph_optimization_level = {
            "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
            "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
            "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
            "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        }[self.level]
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = ort.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return RoundingSession(session)


def _round(source: str, target: str, narrow: int, opset: int) -> list[onnx.NodeProto]:
    if narrow == TensorProto.BFLOAT16 and opset < 13:
        return _split_off_bf16(source, target, opset)
    between = target + "__narrow"
    return [
        helper.make_node("Cast", [source], [between], name=between, to=narrow),
        helper.make_node("Cast", [between], [target], name=target + "__back", to=TensorProto.FLOAT),
    ]


def _split_off_bf16(source: str, target: str, opset: int) -> list[onnx.NodeProto]:
    """Rounds to 8 bits by Veltkamp's splitting, where Cast does not know bf16 yet.

    With c = x·(2^16 + 1), the leading bits of x are c - (c - x).  Beyond 2^111 and for non-finite
    values that is NaN, and ``x`` is taken instead (from opset 9 on, which has IsNaN and Where).
    """
    factor, big, low = (target + end for end in ("__factor", "__big", "__low"))
    top = target if opset < 9 else target + "__top"
    value = helper.make_tensor(factor, TensorProto.FLOAT, (), [65537.0])
    nodes = [
        helper.make_node("Constant", [], [factor], name=factor, value=value),
        helper.make_node("Mul", [source, factor], [big], name=big),
        helper.make_node("Sub", [big, source], [low], name=low),
        helper.make_node("Sub", [big, low], [top], name=top + "__node"),
    ]
    if opset >= 9:
        lost = target + "__lost"
        nodes.append(helper.make_node("IsNaN", [top], [lost], name=lost))
        where = helper.make_node("Where", [lost, source, top], [target], name=target + "__back")
        nodes.append(where)
    return nodes


def _rounded_weight(graph: onnx.GraphProto, tensor: onnx.TensorProto, narrow: int) -> str:
    name = tensor.name + "__rounded"
    if any(t.name == name for t in graph.initializer):
        return name
    values = numpy_helper.to_array(tensor)
    if values.size <= 1:  # immediates stay wide
        return tensor.name
    graph.initializer.append(numpy_helper.from_array(_narrowed(values, narrow), name))
    return name


def _narrowed(values: np.ndarray, narrow: int) -> np.ndarray:
    """Returns ``values`` rounded to the narrow type (ties to even), as float32 again."""
    if narrow == TensorProto.FLOAT16:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values).astype(np.float32)


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """Returns the names of all float32 tensors whose type is known."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # inference is a help, never a condition
        graph = model.graph
    infos = [*graph.input, *graph.output, *graph.value_info]
    named = {i.name for i in infos if i.type.tensor_type.elem_type == TensorProto.FLOAT}
    return named | {t.name for t in graph.initializer if t.data_type == TensorProto.FLOAT}


def _static_tensors(graph: onnx.GraphProto) -> set[str]:
    """Returns what derives from constants or shapes only."""
    static = {t.name for t in graph.initializer}
    random = ("Random", "Bernoulli", "Multinomial")
    for node in graph.node:
        known = all(not name or name in static for name in node.input)
        bodies = any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute)
        if node.op_type in _SHAPE_OPS or (
            known and not bodies and not node.op_type.startswith(random)
        ):
            static.update(node.output)
    return static
