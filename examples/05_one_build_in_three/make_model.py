"""Writes a small network, an input, and the options of an engine whose builds disagree."""

import json

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from debugtaps import write_npz

WIDTH, BLOCKS, BAD = 24, 8, "block5/MatMul"

rng = np.random.default_rng(0)
nodes, weights, last = [], [], "x"
for block in range(BLOCKS):
    value = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
    weights.append(numpy_helper.from_array(value, f"block{block}.w"))
    for op, inputs in (("MatMul", [last, f"block{block}.w"]), ("Tanh", [f"block{block}/MatMul"])):
        name = f"block{block}/{op}"
        nodes.append(helper.make_node(op, inputs, [name], name=name))
    last = f"block{block}/Tanh"
graph = helper.make_graph(
    nodes,
    "blocks",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, WIDTH])],
    [helper.make_tensor_value_info(last, TensorProto.FLOAT, [2, WIDTH])],
    weights,
)
save(
    helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
    "model.onnx",
)
write_npz("inputs.npz", {"x": rng.standard_normal((2, WIDTH)).astype(np.float32)})
options = {
    "variants": {BAD: ["direct", "gemm", "winograd"]},
    "faults": [{"kind": "value", "nodes": [BAD], "scale": 1.05, "tactic": {BAD: "winograd"}}],
    "seed": 1,
}
with open("engine.txt", "w") as file:
    words = [f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in options.items()]
    file.write("\n".join(["--engine", "planted", "--engine-option", *words]))
