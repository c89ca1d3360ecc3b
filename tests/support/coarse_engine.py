"""An engine that stores what each node writes in bf16, but for nodes that it is told to keep.

Runs in a worker: numpy, onnx and onnxruntime only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper


class Coarse:
    """ONNX Runtime on a model with a cast to bf16 and back behind each node.

    Args:
        f32_nodes: Names of the nodes that stay in f32.
    """

    unit_roundoff = 2.0**-8

    def __init__(self, f32_nodes: Sequence[str] = ()) -> None:
        self.kept = set(f32_nodes)

    def knobs(self) -> dict[str, Any]:
        return {"f32_nodes": {"any": "nodes"}}

    def build(self, model: Path, taps: Sequence[str] = ()) -> CoarseSession:
        proto = onnx.load(str(model))
        nodes = []
        for node in proto.graph.node:
            nodes.append(node)
            if node.name in self.kept:
                continue
            name = node.output[0]
            node.output[0] = f"{name}__wide"
            nodes.append(
                helper.make_node(
                    "Cast", [f"{name}__wide"], [f"{name}__bf"], to=TensorProto.BFLOAT16
                )
            )
            nodes.append(helper.make_node("Cast", [f"{name}__bf"], [name], to=TensorProto.FLOAT))
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
        return CoarseSession(proto)


class CoarseSession:
    def __init__(self, proto: onnx.ModelProto) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(proto.SerializeToString(), options)

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        known = {each.name: feeds[each.name] for each in self.session.get_inputs()}
        names = [each.name for each in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, known), strict=True))

    def close(self) -> None:
        pass
