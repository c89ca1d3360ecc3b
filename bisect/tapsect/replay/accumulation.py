"""What accumulation adds to the floor: u·√K·op(|x|, |w|) of contractions and reductions.

Independent noise on the inputs of a long sum averages out; the error of adding its terms up in
another order does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from debugtaps import Array, EngineFailure, Graph, Node, add_constants, emit, save, value_info
from tapsect.replay.reference import Reference, widen_array

__all__ = ["accumulation"]

_U_ACCUMULATE = 2.0**-24
_BIASED = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
_SUMS = frozenset(
    {
        "AveragePool", "Conv", "ConvTranspose", "CumSum", "Einsum", "FusedMatMul", "Gemm",
        "GlobalAveragePool", "MatMul", "ReduceL1", "ReduceMean", "ReduceSum",
    }
)  # fmt: skip


def accumulation(
    reference: Reference, node: Node, values: Mapping[str, Array]
) -> npt.NDArray[np.float64] | None:
    """Returns the accumulation term of each output element, or ``None`` for other operators.

    Args:
        reference: Where op(|x|, |w|) is computed.
        node: The operator that writes the judged tensor.
        values: Its inputs that are not constants.
    """
    if node.domain not in ("", "com.microsoft") or node.op not in _SUMS:
        return None
    fed = [t for t in node.reads if t in values]
    model = _absolute(reference.wide, node, fed)
    feeds = {t: np.abs(widen_array(values[t])) for t in fed if values[t].dtype.kind in "fV"}
    feeds |= {t: values[t] for t in fed if t not in feeds}
    with suppress(EngineFailure):
        build = reference.host.build(save(model, reference.path("absolute")))
        try:
            result = build.run(feeds)
        finally:
            build.close()
        size = np.asarray(next(iter(result.values())), dtype=np.float64)
        length = _length(reference.wide, node, values, size)
        return np.asarray(_U_ACCUMULATE * np.sqrt(length) * size)
    return None


def _absolute(graph: Graph, node: Node, fed: list[str]) -> ModelProto:
    model = ModelProto()
    model.CopyFrom(graph.shell)
    target = model.graph
    for tensor in fed:
        kind = graph.types.get(tensor)
        target.input.append(value_info(tensor, kind))
    add_constants(graph, target, dict.fromkeys(t for t in node.reads if t not in fed))
    wrapped = [t for t in node.reads if t not in fed and graph.elem(t) in _FLOATS]
    target.node.extend(helper.make_node("Abs", [t], [f"abs::{t}"]) for t in wrapped)
    copy: NodeProto = emit(graph, node.index, target)
    if len(copy.input) > _BIASED.get(node.op, 99):
        del copy.input[_BIASED[node.op] :]
    for place, tensor in enumerate(copy.input):
        if tensor in wrapped:
            copy.input[place] = f"abs::{tensor}"
    target.output.append(value_info(node.writes[0], None))
    return model


def _length(graph: Graph, node: Node, values: Mapping[str, Array], result: Any) -> float:
    """Returns K, how many terms one output element adds up."""

    def shape(place: int) -> tuple[int, ...]:
        name = node.proto.input[place]
        if name in values:
            return tuple(values[name].shape)
        kind = graph.types.get(name)
        return (kind.static if kind is not None else None) or ()

    first = shape(0)
    if node.op in ("Conv", "ConvTranspose"):
        weights = shape(1)
        if node.op == "Conv":
            return float(np.prod(weights[1:]))
        return float(np.prod(weights)) / max(1, weights[1] if len(weights) > 1 else 1)
    if node.op == "MatMul":
        return float(first[-1]) if first else 1.0
    if node.op in ("FusedMatMul", "Gemm", "Einsum", "CumSum"):
        return float(max(first, default=1))
    return max(1.0, float(np.prod(first)) / max(1, int(result.size)))


_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
