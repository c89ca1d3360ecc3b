"""Published ONNX Runtime faults, rebuilt as models: small, and in the middle of a network.

Each case names the thread that reported it, the version that has it, and the truth: the nodes at
fault and the smallest set that still fails.  All but ``ort-int-div-zero`` have ONNX Runtime with
optimisation off as reference, in the version given by ``reference`` (the current one where old
versions are wrong at every level).

A case builds in two sizes.  ``small`` holds nearly only the trigger; ``embedded`` puts it between
layers of an ordinary network, so that a search has something to search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from onnx import TensorProto

from support.build import Built, Net
from tapsect.published_faults import layernorm_keepdims0

__all__ = ["CASES", "BugCase", "Failure", "Size"]

Size = Literal["small", "embedded"]
Failure = Literal["accuracy", "build_error", "crash"]
CURRENT = "current"


@dataclass(frozen=True, slots=True)
class BugCase:
    """One published fault and its truth.

    Attributes:
        id: Short name of the fault.
        thread: Where it was reported.
        version: The version of ONNX Runtime that has it.
        reference: The version whose run with optimisation off is right; ``current`` is the one
            that is installed, ``onnx`` the ONNX reference evaluator.
        builder: Makes the model in a size.
        culprit_nodes: The nodes at fault, without their scope.
        minimal_nodes: The smallest set of nodes that still fails (likewise).
        failure: What is seen.
        every_level: Whether optimisation off is wrong in ``version`` as well.
        scope: Scope of the culprit nodes in both models.
    """

    id: str
    thread: str
    version: str
    builder: Callable[[Size], Built]
    culprit_nodes: tuple[str, ...]
    minimal_nodes: tuple[str, ...]
    failure: Failure = "accuracy"
    reference: str = CURRENT
    every_level: bool = False
    scope: str = "fault"

    def build(self, size: Size) -> Built:
        """Returns the model and its input."""
        return self.builder(size)

    @property
    def culprits(self) -> frozenset[str]:
        """Returns the full names of the nodes at fault."""
        return self._named(self.culprit_nodes)

    @property
    def minimal(self) -> frozenset[str]:
        """Returns the full names of the smallest set that still fails."""
        return self._named(self.minimal_nodes)

    def _named(self, nodes: tuple[str, ...]) -> frozenset[str]:
        return frozenset(f"{self.scope}/{node}" for node in nodes)


def _image(net: Net, size: Size, *, channels: int = 3, edge: int = 8) -> str:
    """Returns the fault's input: an image, or the features of a small backbone."""
    x = net.input("image", (1, 3, edge, edge))
    if size == "small":
        return x
    width = 3
    for i in range(3):
        with net.scope(f"backbone{i}"):
            y = net.op("Relu", net.batch_norm(net.conv(x, width, channels), channels))
            y = net.batch_norm(net.conv(y, channels, channels), channels)
            x = net.op("Relu", net.op("Add", y, net.conv(x, width, channels, kernel=1)))
        width = channels
    return x


def _image_end(net: Net, x: str, size: Size, *, channels: int = 3) -> Built:
    if size == "small":
        net.output(x)
        return net.build()
    with net.scope("head"):
        y = net.op("Relu", net.conv(x, channels, channels))
        y = net.op("Relu", net.conv(y, channels, 6))
        y = net.op("Flatten", net.op("GlobalAveragePool", y))
        weight = net.weight(5, 6, name="Gemm.weight")
        net.output(net.op("Gemm", y, weight, net.const(np.zeros(5)), transB=1))
    return net.build()


def _rows(net: Net, size: Size, *, edge: int = 8) -> str:
    """Returns the fault's input: a square matrix, or one that two encoder layers computed."""
    x = net.input("x", (edge, edge))
    for i in range(2 if size == "embedded" else 0):
        with net.scope(f"encoder{i}"):
            y = net.op("Add", x, _self_attention(net, x, edge))
            y = net.op("LayerNormalization", y, net.const(np.ones(edge)), net.const(np.zeros(edge)))
            x = net.op(
                "Add", y, net.linear(net.gelu(net.linear(y, edge, 2 * edge)), 2 * edge, edge)
            )
    return x


def _self_attention(net: Net, x: str, edge: int) -> str:
    query, key, value = (net.linear(x, edge, edge) for _ in range(3))
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[1, 0]))
    scores = net.op("Softmax", net.op("Mul", scores, net.const(edge**-0.5)), axis=-1)
    return net.linear(net.op("MatMul", scores, value), edge, edge)


def _rows_end(net: Net, x: str, size: Size, *, width: int = 8) -> Built:
    if size == "embedded":
        with net.scope("decoder"):
            x = net.linear(net.op("Tanh", net.linear(x, width, 12)), 12, 12)
            x = net.linear(net.op("Tanh", x), 12, 4)
    net.output(x)
    return net.build()


def pad_avgpool(size: Size) -> Built:
    """PadFusion adds an explicit Pad to the pads of a pool that does not count its own."""
    net = Net(seed=41)
    x = _image(net, size)
    with net.scope("fault"):
        pads = net.ints(0, 0, 1, 1, 0, 0, 1, 1, name="pads")
        y = net.op("Pad", x, pads, net.const(0.0, name="zero"), mode="constant")
        y = net.op("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    return _image_end(net, y, size)


def gemm_identity_transpose(size: Size) -> Built:
    """GemmTransposeFusion reads a Transpose that does nothing as transA=1."""
    net = Net(seed=42)
    x = _rows(net, size)
    with net.scope("fault"):
        y = net.linear(net.op("Transpose", x, perm=[0, 1]), 8, 8)
    return _rows_end(net, y, size)


def layernorm_keepdims(size: Size) -> Built:
    """LayerNormFusion ignores keepdims=0; on a square input that is another function."""
    if size == "small":
        model, feeds = layernorm_keepdims0()
        for node in model.graph.node:
            node.name = node.name.replace("norm/", "fault/")
        return Built(model, feeds)
    net = Net(seed=43)
    x = _rows(net, size)
    with net.scope("fault"):
        y = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1], keepdims=0))
        var = net.op("Pow", y, net.const(2.0, name="two"))
        var = net.op("ReduceMean", var, axes=[-1], keepdims=0)
        std = net.op("Sqrt", net.op("Add", var, net.const(1e-5, name="epsilon")))
        scale = net.const(1 + 0.1 * net.rng.standard_normal(8), name="scale")
        bias = net.const(0.1 * net.rng.standard_normal(8), name="bias")
        y = net.op("Add", net.op("Mul", net.op("Div", y, std), scale), bias)
    return _rows_end(net, y, size)


def layernorm_rank1(size: Size) -> Built:
    """LayerNormFusion on a rank-1 tensor takes its own removed Div for the scale: no session."""
    net = Net(seed=44)
    if size == "small":
        x = net.input("x", (6,))
    else:
        with net.scope("backbone"):
            x = net.input("x", (1, 6))
            for _ in range(4):
                x = net.op("Tanh", net.linear(x, 6, 6))
            x = net.op("Squeeze", x, net.ints(0, name="axis"))
    with net.scope("fault"):
        y = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1], keepdims=1))
        var = net.op("Pow", y, net.const(2.0, name="two"))
        var = net.op("ReduceMean", var, axes=[-1], keepdims=1)
        std = net.op("Sqrt", net.op("Add", var, net.const(1e-5, name="epsilon")))
        y = net.op("Mul", net.op("Div", y, std), net.const(1.5, name="scale"))
    if size == "embedded":
        with net.scope("head"):
            y = net.op("Unsqueeze", y, net.ints(0, name="axis"))
            for _ in range(3):
                y = net.op("Tanh", net.linear(y, 6, 6))
    net.output(y)
    return net.build()


def cast_roundtrip(size: Size) -> Built:
    """A Cast double -> float -> double is deleted, at every level: the residue becomes 0.

    The double comes from an input, not from a layer: the residue is the last bits of its operand,
    and behind a layer any correct engine's rounding would change all of it.
    """
    net = Net(seed=45)
    edge = 4 if size == "small" else 8
    wide = net.input("wide", (edge, edge), net.rng.standard_normal((edge, edge)), dtype=np.float64)
    x = _rows(net, size) if size == "embedded" else ""
    with net.scope("fault"):
        narrow = net.op("Cast", wide, to=TensorProto.FLOAT)
        back = net.op("Cast", narrow, to=TensorProto.DOUBLE)
        residue = net.op("Sub", wide, back)
    with net.scope("scale"):
        y = net.op("Mul", residue, net.const(3e7, np.float64, name="large"))
        if size == "embedded":
            y = net.op("Add", x, net.op("Cast", y, to=TensorProto.FLOAT))
    return _rows_end(net, y, size)


def avgpool19(size: Size) -> Built:
    """AveragePool of opset 19 on: with asymmetric pads that count, a wrong divisor at the end."""
    net = Net(seed=46, opset=19, ir_version=8)
    x = _image(net, size)
    with net.scope("fault"):
        y = net.op("AveragePool", x, kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1)
    return _image_end(net, y, size)


def qdq_add(size: Size) -> Built:
    """Two DQ, Add, Q become QLinearAdd, which rounds ties the other way: one step off.

    Inputs of 0.04 steps summed into 0.16 steps: a quarter of the sums are exact ties.
    """
    net = Net(seed=47, opset=13)
    fine, coarse = net.const(0.04, name="fine"), net.const(0.16, name="coarse")
    zero = net.const(128, np.uint8, name="zero_point")
    sides: list[str] = []
    for side in ("left", "right"):
        x = net.input(side, (8, 64))
        with net.scope(side):
            for _ in range(3 if size == "embedded" else 0):
                x = net.op("Tanh", net.linear(x, 64, 64))
            sides.append(net.op("QuantizeLinear", x, fine, zero))
    with net.scope("fault"):
        wide = [net.op("DequantizeLinear", side, fine, zero) for side in sides]
        y = net.op("QuantizeLinear", net.op("Add", *wide), coarse, zero)
    with net.scope("tail"):
        y = net.op("DequantizeLinear", y, coarse, zero)
    if size == "embedded":
        with net.scope("head"):
            y = net.linear(net.op("Relu", net.linear(y, 64, 16)), 16, 4)
    net.output(y)
    return net.build()


def int_div_zero(size: Size) -> Built:
    """An integer Div by zero ends the process with SIGFPE."""
    net = Net(seed=48)
    if size == "small":
        total = net.input("total", (6,), [7, 8, 9, 10, 11, 12], dtype=np.int64)
        count = net.input("count", (6,), [2, 0, 3, 1, 4, 5], dtype=np.int64)
    else:
        x = _rows(net, size)
        with net.scope("bucket"):
            total = net.op(
                "Cast", net.op("Mul", x, net.const(10.0, name="ten")), to=TensorProto.INT64
            )
            step = net.op("Mul", net.op("Tanh", x), net.const(2.0, name="two"))
            count = net.op("Cast", step, to=TensorProto.INT64)
    with net.scope("fault"):
        y = net.op("Div", total, count)
    with net.scope("after"):
        y = net.op("Cast", y, to=TensorProto.FLOAT)
        if size == "embedded":
            y = net.op("Mul", y, net.const(0.1, name="tenth"))
    return _rows_end(net, y, size)


_NORM = ("ReduceMean", "Sub", "Pow", "ReduceMean_1", "Add", "Sqrt", "Div", "Mul")
_NORM_CORE = ("Pow", "ReduceMean_1", "Add", "Sqrt", "Div", "Mul")
_QADD = ("DequantizeLinear", "DequantizeLinear_1", "Add", "QuantizeLinear")
_GEMM = ("Transpose", "MatMul", "Add")
_POOL = ("Pad", "AveragePool")

CASES: tuple[BugCase, ...] = (
    BugCase("ort-pad-avgpool", "microsoft/onnxruntime#22177", "1.19.2", pad_avgpool, _POOL, _POOL),
    BugCase(
        "ort-gemm-identity-transpose", "microsoft/onnxruntime#32228", "1.29.0",
        gemm_identity_transpose, _GEMM, _GEMM,
    ),
    BugCase(
        "ort-layernorm-keepdims0", "microsoft/onnxruntime#30513", "1.32.0",
        layernorm_keepdims, (*_NORM, "Add_1"), _NORM_CORE,
    ),
    BugCase(
        "ort-layernorm-rank1", "microsoft/onnxruntime#31147", "1.29.0",
        layernorm_rank1, _NORM, _NORM_CORE, failure="build_error",
    ),
    BugCase(
        "ort-cast-roundtrip-f64", "microsoft/onnxruntime#17565", "1.16.3",
        cast_roundtrip, ("Cast", "Cast_1"), ("Cast", "Cast_1", "Sub"), every_level=True,
    ),
    BugCase(
        "ort-avgpool19-asymmetric", "microsoft/onnxruntime#26708", "1.23.2",
        avgpool19, ("AveragePool",), ("AveragePool",), every_level=True,
    ),
    BugCase(
        "ort-qdq-add-rounding", "microsoft/onnxruntime#32132", "1.29.0",
        qdq_add, _QADD, _QADD,
    ),
    BugCase(
        "ort-int-div-zero", "microsoft/onnxruntime#27686", "1.23.2",
        int_div_zero, ("Div",), ("Div",), failure="crash", reference="onnx", every_level=True,
    ),
)  # fmt: skip
"""Every published fault of ONNX Runtime that the tests know."""
