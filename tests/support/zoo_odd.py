"""Small models, each with one thing that is legal, met in the wild, and breaks naive tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.build import CONTRIB, ML, Built, Net
from support.zoo_networks import residual, transformer

__all__ = [
    "OPSETS",
    "constant_nodes",
    "contrib",
    "disconnected_input",
    "dropout_and_random",
    "duplicate_names",
    "empty_names",
    "external_weights",
    "initializer_inputs",
    "initializer_outputs",
    "local_function",
    "missing_names",
    "no_value_info",
    "omitted_optional",
    "opset",
    "optional_values",
    "scalar_and_empty",
    "sequences",
    "strings",
    "strange_tensor_names",
    "unused_outputs",
]

OPSETS = range(7, min(24, onnx.defs.onnx_opset_version()) + 1)


def omitted_optional(*, seed: int = 20) -> Built:
    """Returns Clip without min, Resize with sizes only, LSTM without bias but with a state."""
    net = Net(seed=seed)
    x = net.conv(net.input("image", (1, 2, 6, 6)), 2, 3)
    x = net.op("Clip", x, "", net.const(1.5, name="max"))
    x = net.op("Resize", x, "", "", net.ints(1, 3, 9, 9, name="sizes"), mode="nearest")
    rows = net.op("Reshape", x, net.ints(9, 1, 27, name="shape"))
    weights = net.weight(1, 16, 27, fan_in=27), net.weight(1, 16, 4, fan_in=4)
    state = net.const(net.rng.standard_normal((1, 1, 4)), name="state")
    net.output(net.op("LSTM", rows, *weights, "", "", state, hidden_size=4))
    return net.build()


def initializer_inputs(*, seed: int = 21) -> Built:
    """Returns a model whose weights are graph inputs as well: feeds may override them."""
    net = Net(seed=seed)
    net.expose_weights = True
    y = net.op("Relu", net.conv(net.input("image", (1, 3, 6, 6)), 3, 4))
    net.output(net.op("Sigmoid", net.conv(y, 4, 2)))
    return net.build()


def initializer_outputs(*, seed: int = 22) -> Built:
    """Returns a model one of whose outputs is an initializer and another a graph input."""
    net = Net(seed=seed)
    x = net.input("x", (2, 3))
    anchors = net.const(net.rng.standard_normal((4, 2)), name="anchors")
    net.output(net.op("Relu", net.linear(x, 3, 3)))
    net.output(anchors, dtype=np.float32, shape=(4, 2))
    net.output(x, dtype=np.float32, shape=(2, 3))
    return net.build()


def duplicate_names() -> Built:
    """Returns a residual network in which all nodes of one operator share one name.

    The checker takes it; ONNX Runtime refuses it ("two nodes with same node name"), at each
    level, so whoever runs it must rename first.
    """
    return _renamed(residual(2), lambda node: node.op_type)


def missing_names() -> Built:
    """Returns a residual network without any node name."""
    return _renamed(residual(2), lambda node: "")


def empty_names() -> Built:
    """Returns a residual network where every second node has no name."""
    names = {node.output[0]: i for i, node in enumerate(residual(2).model.graph.node)}
    return _renamed(residual(2), lambda n: n.name if names[n.output[0]] % 2 else "")


def no_value_info() -> Built:
    """Returns a transformer layer that carries no inner types or shapes."""
    return transformer(1, value_info=False)


def opset(version: int) -> Built:
    """Returns a small network in the operators as ``version`` defines them, IR version matched.

    Attributes became inputs over time: Clip's bounds and Pad's pads (11), Dropout's ratio and
    Squeeze's and ReduceSum's axes (12, 13), Split's sizes (13), ReduceMean's axes (18).
    """
    net = Net(seed=version, opset=version)
    x = net.input("image", (1, 3, 6, 6))
    pads = [0, 0, 1, 1, 0, 0, 1, 1]
    if version < 11:
        x = net.op("Pad", x, pads=pads, mode="constant", value=0.0)
    else:
        x = net.op("Pad", x, net.ints(*pads, name="pads"), net.const(0.0, name="fill"))
    weight = net.weight(4, 3, 3, 3)
    x = net.op("Conv", x, weight, kernel_shape=[3, 3])
    x = net.batch_norm(x, 4)
    if version < 11:
        x = net.op("Clip", x, min=0.0, max=6.0)
    else:
        x = net.op("Clip", x, net.const(0.0, name="min"), net.const(6.0, name="max"))
    x = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    axes = [2, 3]
    if version < 18:
        x = net.op("ReduceMean", x, axes=axes, keepdims=1)
    else:
        x = net.op("ReduceMean", x, net.ints(*axes, name="axes"), keepdims=1)
    if version < 13:
        x = net.op("Squeeze", x, axes=axes)
        left, right = net.multi("Split", x, outputs=2, axis=1, split=[2, 2])
    else:
        x = net.op("Squeeze", x, net.ints(*axes, name="axes"))
        left, right = net.multi("Split", x, net.ints(2, 2, name="split"), outputs=2, axis=1)
    x = net.op("Mul", net.op("Sigmoid", left), net.op("Tanh", right))
    bias = net.const(net.rng.standard_normal(3), name="bias")
    x = net.op("Gemm", x, net.weight(2, 3, fan_in=2), bias)
    net.output(net.op("Softmax", x, axis=1))
    return net.build()


def contrib(*, seed: int = 23) -> Built:
    """Returns operators of ONNX Runtime's own domain: FusedMatMul, Gelu, BiasGelu."""
    net = Net(seed=seed)
    x = net.op("Tanh", net.linear(net.input("x", (3, 8)), 8, 8))
    weight = net.weight(8, 8, fan_in=8)
    x = net.op("FusedMatMul", x, weight, domain=CONTRIB, alpha=0.5, transB=1)
    x = net.op("Gelu", x, domain=CONTRIB)
    x = net.op("BiasGelu", x, net.const(net.rng.standard_normal(8)), domain=CONTRIB)
    y = net.op("Sigmoid", x)
    net.output(y, dtype=np.float32, shape=(3, 8))
    return net.build()


def constant_nodes(*, seed: int = 24) -> Built:
    """Returns a network whose weights and scalars are Constant nodes, not initializers."""
    built = residual(2, seed=seed)
    graph = built.model.graph
    made = [
        helper.make_node("Constant", [], [t.name], name=f"Constant_{i}", value=t)
        for i, t in enumerate(graph.initializer)
    ]
    nodes = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.node.extend(made + nodes)
    extra = helper.make_node("Constant", [], ["half"], name="Constant_float", value_float=0.5)
    scaled = helper.make_node("Mul", [graph.output[0].name, "half"], ["halved"], name="halve")
    graph.node.extend([extra, scaled])
    graph.output.append(helper.make_tensor_value_info("halved", TensorProto.FLOAT, (2, 10)))
    return built


def unused_outputs(*, seed: int = 25) -> Built:
    """Returns TopK, Split, MaxPool and LSTM with outputs that nobody reads or that have no name."""
    net = Net(seed=seed)
    x = net.linear(net.input("x", (4, 6)), 6, 12)
    values, _ = net.multi("TopK", x, net.ints(6, name="k"), outputs=2)
    first, _, last = net.multi("Split", values, net.ints(2, 2, 2, name="sizes"), outputs=3, axis=1)
    y = net.op("Mul", first, last)
    image = net.op("Reshape", y, net.ints(1, 1, 4, 2, name="shape"))
    pooled, _ = net.multi("MaxPool", image, outputs=2, kernel_shape=[2, 1])
    rows = net.op("Reshape", pooled, net.ints(3, 1, 2, name="shape"))
    weights = net.weight(1, 12, 2, fan_in=2), net.weight(1, 12, 3, fan_in=3)
    _, hidden, _ = net.multi("LSTM", rows, *weights, outputs=3, hidden_size=3)
    net.nodes[-1].output[0] = ""
    net.op("Relu", y)  # a node whose result goes nowhere
    net.output(hidden)
    return net.build()


def disconnected_input(*, seed: int = 26) -> Built:
    """Returns a model with an input that no node reads and an output that no input reaches."""
    net = Net(seed=seed)
    x, _ = net.input("x", (2, 4)), net.input("unused", (1,))
    net.output(net.op("Relu", net.linear(x, 4, 3)))
    net.output(net.op("Exp", net.const([0.0, 1.0], name="grid")))
    return net.build()


def sequences(*, seed: int = 27) -> Built:
    """Returns SplitToSequence, SequenceAt, SequenceInsert, SequenceLength, ConcatFromSequence."""
    net = Net(seed=seed)
    x = net.op("Tanh", net.linear(net.input("x", (6, 4)), 4, 4))
    parts = net.op("SplitToSequence", x, net.const(2, np.int64, name="size"), axis=0)
    one = net.op("SequenceAt", parts, net.const(1, np.int64, name="at"))
    longer = net.op("SequenceInsert", parts, net.op("Relu", one))
    joined = net.op("ConcatFromSequence", longer, axis=0)
    net.output(net.op("Sigmoid", net.linear(joined, 4, 3)), net.op("SequenceLength", longer))
    return net.build()


def optional_values(*, seed: int = 28) -> Built:
    """Returns Optional, OptionalHasElement and OptionalGetElement between ordinary layers."""
    net = Net(seed=seed, opset=18)
    x = net.op("Relu", net.linear(net.input("x", (3, 4)), 4, 4))
    box = net.op("Optional", x)
    y = net.op("OptionalGetElement", box)
    net.output(net.op("Tanh", net.linear(y, 4, 2)), net.op("OptionalHasElement", box))
    return net.build()


def strings(*, seed: int = 29) -> Built:
    """Returns string tensors: input, label encoder, embedding, string output."""
    net = Net(seed=seed)
    net.domains[ML] = 2
    words = net.input("words", (4,), np.array(["Cat", "dog", "the", "BIRD"], object), dtype=object)
    clean = net.op("Identity", words)
    known = ["BIRD", "Cat", "dog", "the"]
    keys = net.op("LabelEncoder", clean, domain=ML, keys_strings=known, values_int64s=[0, 1, 2, 3])
    table = net.const(net.rng.standard_normal((4, 5)), name="table")
    y = net.op("Relu", net.linear(net.op("Gather", table, keys), 5, 4))
    best = net.op("ArgMax", y, axis=1, keepdims=0)
    names = net.op("LabelEncoder", best, domain=ML, keys_int64s=[0, 1, 2, 3], values_strings=known)
    net.output(y, dtype=np.float32, shape=("words", 4))
    net.output(names, dtype=object, shape=("words",))
    return net.build()


def dropout_and_random(*, seed: int = 30) -> Built:
    """Returns RandomNormalLike and Bernoulli (seeded) and inference-mode Dropout with a mask."""
    net = Net(seed=seed)
    x = net.op("Tanh", net.linear(net.input("x", (4, 8)), 8, 8))
    noise = net.op("RandomNormalLike", x, seed=7.0, scale=0.1)
    noisy = net.op("Add", x, noise)
    kept = net.op("Bernoulli", net.op("Sigmoid", noisy), seed=3.0)
    kept = net.op("Mul", kept, noisy)
    dropped, _ = net.multi("Dropout", kept, net.const(0.5, name="ratio"), outputs=2)
    net.output(net.op("Relu", net.linear(dropped, 8, 4)), net.op("Relu", net.linear(x, 8, 4)))
    return net.build()


def local_function(*, seed: int = 31) -> Built:
    """Returns a model whose Swish is a function of the model's own (FunctionProto)."""
    net = Net(seed=seed)
    x = net.linear(net.input("x", (3, 6)), 6, 6)
    y = net.op("Swish", x, domain="local")
    z = net.op("Swish", net.linear(y, 6, 6), domain="local")
    net.output(net.op("Tanh", z), dtype=np.float32, shape=(3, 6))
    body = [
        helper.make_node("Sigmoid", ["a"], ["gate"], name="gate"),
        helper.make_node("Mul", ["a", "gate"], ["b"], name="scale"),
    ]
    opsets = [helper.make_opsetid("", net.opset)]
    net.functions.append(helper.make_function("local", "Swish", ["a"], ["b"], body, opsets))
    return net.build()


def strange_tensor_names(*, seed: int = 32) -> Built:
    """Returns names with slashes, spaces, quotes, markup, colons, dots and non-ASCII letters."""
    net = Net(seed=seed)
    x = net.input("in:0/<script>alert('x')</script>", (2, 4))
    net.output(net.op("Relu", net.linear(net.op("Tanh", x), 4, 3)))
    built = net.build()
    odd = ["../../etc/pass wd", 'a"b|c', "größe\\été", "con.nul:0"]
    names = {n.output[0]: f"{odd[i]}" for i, n in enumerate(built.model.graph.node)}
    for node in built.model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
        node.name = f"node {node.output[0]}"
    for info in [*built.model.graph.output, *built.model.graph.value_info]:
        info.name = names[info.name]
    return built


def scalar_and_empty(*, seed: int = 33) -> Built:
    """Returns rank-0 tensors, a tensor of zero elements and a dimension of zero."""
    net = Net(seed=seed)
    x = net.input("x", (3, 4))
    rows = net.input("rows", ("n", 4), np.zeros((0, 4)))
    total = net.op("ReduceMean", net.op("Tanh", x), keepdims=0)
    both = net.op("Concat", x, net.op("Relu", rows), axis=0)
    net.output(net.op("Mul", both, total), total, net.op("Sigmoid", rows))
    return net.build()


def external_weights(folder: Path) -> tuple[Path, Path]:
    """Writes a transformer with external weights; returns the paths of model and inputs."""
    return transformer(1).save(folder, external=True)


def _renamed(built: Built, name: object) -> Built:
    for node in built.model.graph.node:
        node.name = name(node)  # type: ignore[operator]
    return built
