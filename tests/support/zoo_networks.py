"""Whole networks: the shapes of graph that a search must find its way through."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.build import Built, Net

__all__ = [
    "argmax_head",
    "attention",
    "branching",
    "chain_cnn",
    "control_flow",
    "dynamic_shape",
    "multi_output",
    "qdq_int8",
    "recurrent",
    "residual",
    "shared_weight",
    "transformer",
    "transformer_nodes",
    "u_shaped",
]


def chain_cnn(nodes: int = 24, *, channels: int = 8, size: int = 12, seed: int = 0) -> Built:
    """Returns a chain of ``nodes`` nodes: Conv, Relu, Conv, Relu …"""
    net = Net(seed=seed)
    x = net.input("image", (1, 3, size, size))
    width = 3
    for i in range(nodes // 2):
        with net.scope(f"block{i}"):
            x = net.op("Relu", _he(net, x, width, channels))
        width = channels
    if nodes % 2:
        x = _he(net, x, width, channels)
    net.output(x)
    return net.build()


def residual(blocks: int = 4, *, channels: int = 8, size: int = 8, seed: int = 1) -> Built:
    """Returns a small ResNet with batch norm, skips and a classifier."""
    net = Net(seed=seed)
    x = net.input("image", (2, 3, size, size))
    with net.scope("stem"):
        x = net.op("Relu", net.batch_norm(net.conv(x, 3, channels), channels))
    for i in range(blocks):
        with net.scope(f"stage{i}"):
            y = net.op("Relu", net.batch_norm(_he(net, x, channels, channels), channels))
            y = net.batch_norm(net.conv(y, channels, channels), channels)
            total = net.op("Mul", net.op("Add", x, y), net.const(0.7, name="damp"))
            x = net.op("Relu", total)
    with net.scope("head"):
        flat = net.op("Flatten", net.op("GlobalAveragePool", x))
        weight = net.weight(10, channels, name="Gemm.weight")
        net.output(net.op("Gemm", flat, weight, net.const(np.zeros(10)), transB=1))
    return net.build()


def branching(cells: int = 3, *, channels: int = 12, size: int = 8, seed: int = 2) -> Built:
    """Returns inception-like cells: four branches, joined by Concat."""
    net = Net(seed=seed)
    x = net.op("Relu", _he(net, net.input("image", (1, 3, size, size)), 3, channels))
    part = channels // 4
    for i in range(cells):
        with net.scope(f"cell{i}"):
            one = net.op("Relu", _he(net, x, channels, part, kernel=1))
            three = net.op("Relu", _he(net, x, channels, part, kernel=1))
            three = net.op("Relu", _he(net, three, part, part))
            five = net.op("Sigmoid", _he(net, x, channels, part, kernel=1))
            five = net.op("Tanh", _he(net, five, part, part, kernel=5))
            pooled = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
            pooled = net.op("Relu", _he(net, pooled, channels, part, kernel=1))
            x = net.op("Concat", one, three, five, pooled, axis=1)
    net.output(net.op("Softmax", net.op("Flatten", net.op("GlobalAveragePool", x)), axis=-1))
    return net.build()


def u_shaped(levels: int = 3, *, channels: int = 6, size: int = 16, seed: int = 3) -> Built:
    """Returns a U-Net: MaxPool down, Resize and ConvTranspose in turn up, Concat skips."""
    net = Net(seed=seed)
    x = net.op("Relu", _he(net, net.input("image", (1, 2, size, size)), 2, channels))
    skips: list[str] = []
    for i in range(levels):
        with net.scope(f"down{i}"):
            skips.append(x)
            x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
            x = net.op("Relu", _he(net, x, channels, channels))
    for i in reversed(range(levels)):
        with net.scope(f"up{i}"):
            if i % 2:
                weight = net.weight(channels, channels, 2, 2, fan_in=channels)
                x = net.op("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2])
            else:
                scales = net.const([1, 1, 2, 2], name="scales")
                x = net.op(
                    "Resize", x, "", scales,
                    mode="linear", coordinate_transformation_mode="half_pixel",
                )  # fmt: skip
            x = net.op("Concat", skips[i], x, axis=1)
            x = net.op("Relu", _he(net, x, 2 * channels, channels))
    with net.scope("head"):
        net.output(net.op("Sigmoid", net.conv(x, channels, 1, kernel=1)))
    return net.build()


def attention(*, dim: int = 16, heads: int = 2, seq: int = 6, seed: int = 4) -> Built:
    """Returns one causal self-attention with an additive mask computed from the length."""
    net = Net(seed=seed)
    x = net.input("x", (2, seq, dim))
    mask = net.const(np.triu(np.full((seq, seq), -1e9), 1), name="causal_mask")
    net.output(_attention(net, x, dim, heads, seq, batch=2, mask=mask))
    return net.build()


def transformer(
    layers: int = 2,
    *,
    dim: int = 32,
    heads: int = 4,
    seq: int = 8,
    vocabulary: int = 64,
    seed: int = 5,
    value_info: bool = True,
) -> Built:
    """Returns a BERT-like encoder: embeddings, ``layers`` layers, pooler and classifier.

    Layer norm and GELU are decomposed as exporters write them; a layer has 49 nodes.
    """
    net = Net(seed=seed)
    tokens = net.input(
        "tokens", (1, seq), net.rng.integers(0, vocabulary, (1, seq)), dtype=np.int64
    )
    with net.scope("embed"):
        table = net.const(net.rng.standard_normal((vocabulary, dim)), name="table")
        x = net.op("Gather", table, tokens, axis=0)
        x = net.op("Add", x, net.const(net.rng.standard_normal((seq, dim)), name="position"))
        x = net.layer_norm(x, dim)
    for i in range(layers):
        with net.scope(f"layer{i}"):
            x = _encoder_layer(net, x, dim, heads, seq)
    with net.scope("pooler"):
        first = net.op("Gather", x, net.const(0, np.int64, name="first"), axis=1)
        pooled = net.op("Tanh", net.linear(first, dim, dim))
    with net.scope("classifier"):
        net.output(net.linear(pooled, dim, 5))
    return net.build(keep_value_info=value_info)


def transformer_nodes(nodes: int = 600, *, dim: int = 32, heads: int = 4, seq: int = 8) -> Built:
    """Returns a ``transformer`` with about ``nodes`` nodes (within half a layer of 49)."""
    return transformer(max(1, round((nodes - 17) / 49)), dim=dim, heads=heads, seq=seq)


def multi_output(*, size: int = 8, seed: int = 6) -> Built:
    """Returns a trunk with three heads; the trunk's feature map is an output *and* used inside."""
    net = Net(seed=seed)
    x = net.input("image", (1, 3, size, size))
    with net.scope("trunk"):
        x = net.op("Relu", _he(net, x, 3, 8))
        features = net.op("Relu", _he(net, x, 8, 8))
    with net.scope("classes"):
        flat = net.op("Flatten", net.op("GlobalAveragePool", features))
        classes = net.op("Softmax", net.linear(flat, 8, 4), axis=-1)
    with net.scope("boxes"):
        boxes = net.op("Sigmoid", net.conv(net.op("Relu", _he(net, features, 8, 8)), 8, 4))
    with net.scope("depth"):
        deep = net.op("Softplus", net.conv(net.op("Tanh", net.conv(features, 8, 8)), 8, 1))
    net.output(classes, features, boxes, deep)
    return net.build()


def recurrent(*, seq: int = 6, width: int = 5, hidden: int = 7, seed: int = 7) -> Built:
    """Returns a bidirectional LSTM, then a GRU, then a head over the last hidden state."""
    net = Net(seed=seed)
    x = net.input("sequence", (seq, 2, width))
    lstm = [
        net.weight(2, 4 * hidden, width, fan_in=width, name="LSTM.W"),
        net.weight(2, 4 * hidden, hidden, fan_in=hidden, name="LSTM.R"),
        net.const(0.1 * net.rng.standard_normal((2, 8 * hidden)), name="LSTM.B"),
    ]
    y = net.op("LSTM", x, *lstm, hidden_size=hidden, direction="bidirectional")
    y = net.op("Transpose", y, perm=[0, 2, 1, 3])
    y = net.op("Reshape", y, net.ints(0, 0, -1, name="shape"))
    gru = [
        net.weight(1, 3 * hidden, 2 * hidden, fan_in=2 * hidden, name="GRU.W"),
        net.weight(1, 3 * hidden, hidden, fan_in=hidden, name="GRU.R"),
        net.const(0.1 * net.rng.standard_normal((1, 6 * hidden)), name="GRU.B"),
    ]
    every, last = net.multi("GRU", y, *gru, outputs=2, hidden_size=hidden, linear_before_reset=1)
    state = net.op("Squeeze", last, net.ints(0, name="axes"))
    net.output(net.op("Tanh", net.linear(state, hidden, 3)), every)
    return net.build()


def shared_weight(*, width: int = 12, seed: int = 8) -> Built:
    """Returns a siamese pair of towers over the same weights, compared by cosine."""
    net = Net(seed=seed)
    first = net.weight(width, width, fan_in=width, name="tower.weight0")
    second = net.weight(width, width, fan_in=width, name="tower.weight1")
    ends: list[str] = []
    for side in ("left", "right"):
        x = net.input(side, (3, width))
        with net.scope(f"{side}_tower"):
            x = net.op("Relu", net.op("MatMul", x, first))
            x = net.op("Tanh", net.op("MatMul", x, second))
            norm = net.op("ReduceL2", x, axes=[-1], keepdims=1)
            ends.append(net.op("Div", x, net.op("Add", norm, net.const(1e-6, name="tiny"))))
    axes = net.ints(-1, name="axes")
    net.output(net.op("ReduceSum", net.op("Mul", *ends), axes, keepdims=0))
    return net.build()


def dynamic_shape(*, batch: int = 2, seq: int = 5, dim: int = 8, seed: int = 9) -> Built:
    """Returns attention with symbolic batch and length, reshaped through Shape and Concat."""
    net = Net(seed=seed)
    x = net.input(
        "x", ("batch", "seq", dim), np.random.default_rng(seed).normal(0, 1, (batch, seq, dim))
    )
    size = net.op("Shape", x)
    zero, one = net.const(0, np.int64, name="zero"), net.const(1, np.int64, name="one")
    axis = net.ints(0, name="axis")
    lead = [net.op("Unsqueeze", net.op("Gather", size, i, axis=0), axis) for i in (zero, one)]
    shape = net.op("Concat", *lead, net.ints(2, dim // 2, name="split"), axis=0)
    heads = [
        net.op("Transpose", net.op("Reshape", net.linear(x, dim, dim), shape), perm=[0, 2, 1, 3])
        for _ in "qkv"
    ]
    keys = net.op("Transpose", heads[1], perm=[0, 1, 3, 2])
    scores = net.op("Softmax", net.op("MatMul", heads[0], keys), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", scores, heads[2]), perm=[0, 2, 1, 3])
    back = net.op("Concat", *lead, net.ints(dim, name="width"), axis=0)
    y = net.op("Add", x, net.op("Reshape", mixed, back))
    net.output(net.op("Relu", net.linear(y, dim, dim)))
    return net.build()


def control_flow(*, width: int = 6, seed: int = 10) -> Built:
    """Returns If, Loop and Scan in a row; every body captures tensors of the outer graph."""
    net = Net(seed=seed)
    x = net.op("Tanh", net.linear(net.input("x", (4, width)), width, width))
    weight = net.weight(width, width, fan_in=width, name="body.weight")
    total = net.op("ReduceSum", x, keepdims=0)
    condition = net.op("Greater", total, net.const(0.0, name="zero"))
    branches: dict[str, Any] = {
        f"{side}_branch": _body(
            side, [helper.make_node(op, [x, weight], [f"{side}_y"], name=f"If/{side}/{op}")],
            [], [(f"{side}_y", (4, width), TensorProto.FLOAT)],
        )
        for side, op in (("then", "MatMul"), ("else", "MatMul"))
    }  # fmt: skip
    y = net.op("Tanh", net.op("If", condition, **branches))
    loop = _body(
        "loop",
        [
            helper.make_node("MatMul", ["state", weight], ["moved"], name="Loop/MatMul"),
            helper.make_node("Tanh", ["moved"], ["bent"], name="Loop/Tanh"),
            helper.make_node("Add", ["bent", x], ["state_out"], name="Loop/Add"),
            helper.make_node("Identity", ["go"], ["go_out"], name="Loop/Identity"),
        ],
        [("step", (), TensorProto.INT64), ("go", (), TensorProto.BOOL),
         ("state", (4, width), TensorProto.FLOAT)],
        [("go_out", (), TensorProto.BOOL), ("state_out", (4, width), TensorProto.FLOAT)],
    )  # fmt: skip
    trips = net.const(3, np.int64, name="trips")
    y = net.op("Loop", trips, "", y, body=loop)
    scan = _body(
        "scan",
        [
            helper.make_node("Add", ["sum_in", "row"], ["raw"], name="Scan/Add"),
            helper.make_node("MatMul", ["raw", weight], ["mixed"], name="Scan/MatMul"),
            helper.make_node("Tanh", ["mixed"], ["sum_out"], name="Scan/Tanh"),
            helper.make_node("Identity", ["sum_out"], ["row_out"], name="Scan/Identity"),
        ],
        [("sum_in", (width,), TensorProto.FLOAT), ("row", (width,), TensorProto.FLOAT)],
        [("sum_out", (width,), TensorProto.FLOAT), ("row_out", (width,), TensorProto.FLOAT)],
    )
    start = net.const(np.zeros(width), name="start")
    _, rows = net.multi("Scan", start, y, outputs=2, body=scan, num_scan_inputs=1)
    net.output(net.op("Relu", net.linear(rows, width, 3)))
    return net.build()


def argmax_head(*, size: int = 8, classes: int = 7, seed: int = 11) -> Built:
    """Returns a segmentation network whose only output is ArgMax: integers, no margin kept."""
    net = Net(seed=seed)
    x = net.input("image", (1, 3, size, size))
    x = net.op("Relu", _he(net, x, 3, 8))
    x = net.op("Relu", _he(net, x, 8, 8))
    net.output(net.op("ArgMax", net.conv(x, 8, classes, kernel=1), axis=1, keepdims=0))
    return net.build()


def qdq_int8(*, layers: int = 3, channels: int = 8, seed: int = 12) -> Built:
    """Returns a quantised CNN: uint8 activations, per-channel int8 weights, int32 bias."""
    net = Net(seed=seed, opset=13)
    x = _fake_quantise(net, net.input("image", (1, 4, 8, 8)), 0.04)
    width = 4
    for i in range(layers):
        with net.scope(f"layer{i}"):
            x = net.op("Conv", x, *_quantised_weights(net, width, channels), pads=[1] * 4)
            x = _fake_quantise(net, net.op("Relu", x), 0.03, zero=0)
        width = channels
    with net.scope("head"):
        net.output(_fake_quantise(net, net.op("GlobalAveragePool", x), 0.02))
    return net.build()


def _he(net: Net, x: str, cin: int, cout: int, *, kernel: int = 3) -> str:
    """Adds a convolution whose output keeps variance 1 behind a Relu."""
    made = net.conv(x, cin, cout, kernel=kernel)
    weight = next(t for t in reversed(net.initializers) if ".weight" in t.name)
    values = np.frombuffer(weight.raw_data, np.float32) * np.float32(np.sqrt(2.0))
    weight.raw_data = values.astype(np.float32).tobytes()
    return made


def _attention(
    net: Net, x: str, dim: int, heads: int, seq: int, *, batch: int = 1, mask: str = ""
) -> str:
    shape = net.ints(batch, seq, heads, dim // heads, name="split")
    parts: list[str] = []
    for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        with net.scope(part):
            split = net.op("Reshape", net.linear(x, dim, dim), shape)
            parts.append(net.op("Transpose", split, perm=perm))
    scale = net.const((dim // heads) ** -0.5, name="scale")
    scores = net.op("Mul", net.op("MatMul", parts[0], parts[1]), scale)
    scores = net.op("Add", scores, mask) if mask else scores
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), parts[2])
    joined = net.op("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.op("Reshape", joined, net.ints(batch, seq, dim, name="join"))
    return net.linear(joined, dim, dim)


def _encoder_layer(net: Net, x: str, dim: int, heads: int, seq: int) -> str:
    with net.scope("attention"):
        mixed = _attention(net, x, dim, heads, seq)
    x = net.op("Add", x, mixed)
    with net.scope("norm0"):
        x = net.layer_norm(x, dim)
    with net.scope("mlp"):
        y = net.linear(net.gelu(net.linear(x, dim, 2 * dim)), 2 * dim, dim)
    x = net.op("Add", x, y)
    with net.scope("norm1"):
        return net.layer_norm(x, dim)


def _body(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, tuple[int, ...], int]],
    outputs: list[tuple[str, tuple[int, ...], int]],
) -> onnx.GraphProto:
    def infos(values: list[tuple[str, tuple[int, ...], int]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, kind, shape) for n, shape, kind in values]

    return helper.make_graph(nodes, name, infos(inputs), infos(outputs))


def _fake_quantise(net: Net, x: str, scale: float, *, zero: int = 128) -> str:
    step = net.const(scale, name="scale")
    point = net.const(zero, np.uint8, name="zero_point")
    return net.op("DequantizeLinear", net.op("QuantizeLinear", x, step, point), step, point)


def _quantised_weights(net: Net, cin: int, cout: int) -> tuple[str, str]:
    raw = net.rng.standard_normal((cout, cin, 3, 3)) * np.sqrt(2 / (9 * cin))
    scale = np.abs(raw).max(axis=(1, 2, 3)) / 127
    steps = net.const(scale, name="weight.scale")
    whole = net.const(np.rint(raw / scale[:, None, None, None]), np.int8, name="weight.int8")
    zeros = net.const(np.zeros(cout), np.int8, name="weight.zero_point")
    weight = net.op("DequantizeLinear", whole, steps, zeros, axis=0)
    bias = net.const(net.rng.integers(-40, 40, cout), np.int32, name="bias.int32")
    bias_step = net.const(0.04 * scale, name="bias.scale")
    return weight, net.op("DequantizeLinear", bias, bias_step, axis=0)
