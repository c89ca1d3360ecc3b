"""Writes a network in which one block takes the logarithm of a number that may be negative."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from debugtaps import write_npz

WIDTH, BLOCKS, BAD = 16, 12, 7

rng = np.random.default_rng(0)
nodes, weights, last = [], [], "x"
for block in range(BLOCKS):
    for part in ("w", "b"):
        shape = (WIDTH, WIDTH) if part == "w" else (WIDTH,)
        value = (rng.standard_normal(shape) / WIDTH**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(value, f"block{block}.{part}"))
    body = "Log" if block == BAD else "Tanh"
    rows = [
        ("MatMul", [last, f"block{block}.w"]),
        ("Add", [f"block{block}/MatMul", f"block{block}.b"]),
        (body, [f"block{block}/Add"]),
        ("Relu", [f"block{block}/{body}"]),
        ("Add", [last, f"block{block}/Relu"]),
    ]
    for number, (op, inputs) in enumerate(rows):
        name = f"block{block}/{op}" if number < 4 else f"block{block}/Sum"
        nodes.append(helper.make_node(op, inputs, [name], name=name))
    last = f"block{block}/Sum"
graph = helper.make_graph(
    nodes,
    "log_of_a_negative",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH])],
    [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, WIDTH])],
    weights,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
save(model, "model.onnx")
write_npz("inputs.npz", {"x": rng.standard_normal((1, WIDTH)).astype(np.float32)})
