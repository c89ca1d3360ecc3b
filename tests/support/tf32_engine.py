"""A correct engine that computes contractions in TF32: their operands lose 13 of 24 bits.

It stands for a GPU whose tensor cores read fp32 registers.  Some round what they read to the
nearest TF32 number, others cut its low bits off, which makes every product smaller: an error that
points one way.  What is stored stays fp32.

The file stands alone (numpy, onnx and onnxruntime, Python 3.8), so a worker can load it by path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

__all__ = ["Tf32Engine", "in_tf32"]

_CONTRACTIONS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})


def in_tf32(
    model: onnx.ModelProto, nodes: Sequence[str] | None = None, truncate: bool = False
) -> onnx.ModelProto:
    """Returns a copy of ``model`` whose contractions read TF32 numbers; opset 9 or newer.

    Args:
        model: The model.
        nodes: Names of the contractions that do; all when None.
        truncate: Whether low bits are cut off rather than rounded.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = list(copy.graph.node)
    made: list[onnx.NodeProto] = []
    for count, node in enumerate(kept):
        if node.op_type in _CONTRACTIONS and (nodes is None or node.name in nodes):
            products = 99 if node.op_type == "Einsum" else 2  # a bias is added in fp32
            for at, name in enumerate(node.input[:products]):
                node.input[at] = f"tf32__{count}_{at}"
                made += _narrow(name, node.input[at], truncate)
        made.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(made)
    return copy


def _narrow(source: str, target: str, truncate: bool) -> list[onnx.NodeProto]:
    """Keeps 11 bits, by Veltkamp's splitting: of c = x·(2^13 + 1), c - (c - x)."""
    nodes = _nearest(source, target + "__near" if truncate else target)
    if not truncate:
        return nodes
    # Where that went up, the number below is nearest to what lies half a step or more below x.
    up, less, low = (target + end for end in ("__up", "__less", "__low"))
    near, size, whole = (target + end for end in ("__near", "__size", "__whole"))
    shrink = target + "__shrink"
    return [
        *nodes,
        _scalar(shrink, 1 - 2.0**-11),
        helper.make_node("Mul", [source, shrink], [less]),
        *_nearest(less, low),
        helper.make_node("Abs", [near], [size]),
        helper.make_node("Abs", [source], [whole]),
        helper.make_node("Greater", [size, whole], [up]),
        helper.make_node("Where", [up, low, near], [target]),
    ]


def _nearest(source: str, target: str) -> list[onnx.NodeProto]:
    factor, big, rest = (target + end for end in ("__factor", "__big", "__rest"))
    return [
        _scalar(factor, 8193.0),
        helper.make_node("Mul", [source, factor], [big]),
        helper.make_node("Sub", [big, source], [rest]),
        helper.make_node("Sub", [big, rest], [target]),
    ]


def _scalar(name: str, value: float) -> onnx.NodeProto:
    tensor = helper.make_tensor(name, TensorProto.FLOAT, (), [value])
    return helper.make_node("Constant", [], [name], value=tensor)


class Tf32Engine:
    """Builds sessions that compute contractions in TF32 and says nothing of it.

    Args:
        nodes: Names of the contractions that do; all when None.
        truncate: Whether low bits are cut off rather than rounded.
        kernels: Sets of nodes that it says run as one kernel.
    """

    def __init__(
        self,
        nodes: Optional[Sequence[str]] = None,  # noqa: UP045 - Python 3.8
        truncate: bool = False,
        kernels: Sequence[Sequence[str]] = (),
    ) -> None:
        self.nodes, self.truncate, self.kernels = nodes, truncate, kernels

    def describe(self) -> dict[str, Any]:
        """Returns name and versions."""
        return {"name": "tf32", "versions": {"onnxruntime": ort.__version__}, "device": "cpu"}

    def build(self, model: Path, taps: Sequence[str] = ()) -> Tf32Session:
        """Returns a session for ``model``, whose taps are graph outputs already."""
        proto = in_tf32(onnx.load(str(model)), self.nodes, self.truncate)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        return Tf32Session(
            ort.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            ),
            self.kernels,
        )


class Tf32Session:
    """An ONNX Runtime session over the rewritten model."""

    def __init__(self, session: ort.InferenceSession, kernels: Sequence[Sequence[str]]) -> None:
        self._kernels = kernels
        self._session = session
        self._inputs = [i.name for i in session.get_inputs()]
        self._outputs = [o.name for o in session.get_outputs()]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns all graph outputs, taps among them."""
        wanted = {name: feeds[name] for name in self._inputs if name in feeds}
        return dict(zip(self._outputs, self._session.run(self._outputs, wanted)))  # noqa: B905 - Python 3.8

    def fusions(self) -> list[frozenset[str]]:
        """Returns the kernels it was told of."""
        return [frozenset(each) for each in self._kernels]

    def close(self) -> None:
        """Frees the session."""
        del self._session
