"""The least that an answer needs: its builds and runs, one after the other, and no thought.

The model as it is, run twice; with every tensor as an output, run once; one operator alone; the
reference (every optimisation off) with every tensor, run three times.  Prints builds, runs and
operators built of the engine.

    python bare.py FAULTY.onnx INPUTS.npz [NODE]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper

OFF = ort.GraphOptimizationLevel.ORT_DISABLE_ALL


def main(path: str, inputs: str, name: str = "") -> int:
    model = onnx.load(path)
    with np.load(inputs) as read:  # noqa: TID251 - runs where only numpy is
        feeds = dict(read)
    count = sum(node.op_type != "Constant" for node in model.graph.node)
    run(build(model), feeds, times=2)
    marked = every_output(model)
    seen = run(build(marked), feeds)
    run(build(marked, OFF), feeds, times=3)
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    node = next((n for n in nodes if n.name == name), nodes[len(nodes) // 2])
    part = alone(model, node, {**feeds, **seen})
    run(build(part), {**feeds, **seen})
    print(3, 4, 2 * count + 1)
    return 0


def build(model: ModelProto, level: object = None) -> ort.InferenceSession:
    """Returns a session of ONNX Runtime."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if level is not None:
        options.graph_optimization_level = level
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(
    session: ort.InferenceSession, feeds: Mapping[str, np.ndarray], times: int = 1
) -> dict[str, np.ndarray]:
    """Returns the outputs of the last of so many runs."""
    names = [out.name for out in session.get_outputs()]
    given = {each.name: feeds[each.name] for each in session.get_inputs()}
    for _ in range(times):
        values = session.run(names, given)
    return dict(zip(names, values, strict=True))


def every_output(model: ModelProto) -> ModelProto:
    """Returns the model with every tensor that has a known type as an output."""
    told = onnx.shape_inference.infer_shapes(model)
    have = {out.name for out in told.graph.output}
    made = {t for n in told.graph.node for t in n.output if n.op_type != "Constant"}
    told.graph.output.extend(
        info for info in told.graph.value_info if info.name in made - have
    )  # fmt: skip
    return told


def alone(model: ModelProto, node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> ModelProto:
    """Returns one operator as a model."""
    held = [t for t in model.graph.initializer if t.name in node.input]
    for other in model.graph.node:
        if other.op_type == "Constant" and other.output[0] in node.input:
            held.append(TensorProto())
            held[-1].CopyFrom(other.attribute[0].t)
            held[-1].name = other.output[0]
    named = {t.name for t in held}
    fed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
        )
        for name in dict.fromkeys(node.input)
        if name in values and name not in named
    ]
    shown = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "alone", fed, shown, held)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
