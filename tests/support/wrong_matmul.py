"""An engine whose every MatMul is 5 % too large; alone, as a user's own file would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import helper

__all__ = ["WrongMatMul"]


class WrongMatMul:
    """ONNX Runtime behind a broken kernel.

    Args:
        only: The one node whose kernel is broken; all of them when empty.
    """

    def __init__(self, only: str = "") -> None:
        self.only = only

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        proto = onnx.load(str(model))
        nodes = list(proto.graph.node)
        del proto.graph.node[:]
        for node in nodes:
            if node.op_type == "MatMul" and self.only in ("", node.name):
                name = node.output[0]
                node.output[0] = "wrong/" + name
                factor = helper.make_tensor("f", 1, [], [1.05])
                constant = helper.make_node("Constant", [], ["factor/" + name], value=factor)
                scale = helper.make_node("Mul", ["wrong/" + name, "factor/" + name], [name])
                proto.graph.node.extend([node, constant, scale])
            else:
                proto.graph.node.append(node)
        have = {o.name for o in proto.graph.output}
        for tap in taps:
            if tap not in have:
                proto.graph.output.append(onnx.ValueInfoProto(name=tap))
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        return _Session(ort.InferenceSession(proto.SerializeToString(), options))


class _Session:
    def __init__(self, session: Any) -> None:
        self.session = session

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        wanted = {i.name for i in self.session.get_inputs()}
        names = [o.name for o in self.session.get_outputs()]
        given = {n: v for n, v in feeds.items() if n in wanted}
        return dict(zip(names, self.session.run(names, given), strict=True))

    def close(self) -> None:
        pass
