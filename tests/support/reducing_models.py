"""Models and checks for tests of the reducer as a tool.

Node names are of the form ``@n7@``: they stand in the file as they are and in no tensor's name,
so that ``grep`` is a check that starts in a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from debugtaps.store import write_npz
from tapsect.diagnose.given import Options
from tapsect.minimal import CommandLine, Minimized, Plan, Rule, minimize

__all__ = ["chain", "grep", "names_left", "reduce_by", "saved"]


def chain(
    ops: Sequence[str], *, shape: Sequence[int] = (1, 4), opset: int = 17, outputs: int = 1
) -> ModelProto:
    """Returns a chain of operators, ``@n0@`` … ; ``MatMul`` and ``Add`` read a weight each."""
    rng = np.random.default_rng(0)
    nodes, weights, tensor = [], [], "x"
    for number, op in enumerate(ops):
        reads = [tensor]
        if op in ("MatMul", "Add", "Mul"):
            size = (shape[-1], shape[-1]) if op == "MatMul" else (shape[-1],)
            values = rng.standard_normal(size).astype(np.float32)
            weights.append(numpy_helper.from_array(values, f"w{number}"))
            reads.append(f"w{number}")
        tensor = f"t{number}"
        nodes.append(helper.make_node(op, reads, [tensor], name=f"@n{number}@"))
    ends = [nodes[len(nodes) - 1 - k].output[0] for k in range(outputs)]
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info(end, TensorProto.FLOAT, list(shape)) for end in ends],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def saved(model: ModelProto, folder: Path, feeds: Mapping[str, Any] | None = None) -> Path:
    """Writes a model, and feeds beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    if feeds is not None:
        write_npz(folder / "inputs.npz", feeds)
    return path


def grep(*names: str) -> CommandLine:
    """Returns a check that fails while all of ``names`` stand in the candidate."""
    script = " && ".join(f"grep -qF '{name}' \"$0\"" for name in names)
    return CommandLine(("sh", "-c", script, "{model}"), Rule(codes=(0,)))


def reduce_by(
    path: Path, line: CommandLine | None, out: Path, *, options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Minimized:  # fmt: skip
    """Reduces a model in a folder of its own."""
    given = Options(path, out=out / "result", **(options or {}))
    if line is not None:
        line = CommandLine(line.words, line.rule, line.timeout, out / "candidate.onnx")
    out.mkdir(parents=True, exist_ok=True)
    return minimize(Plan(given, out / "reduced.onnx", line, **more))


def names_left(out: Path) -> list[str]:
    """Returns the names of the nodes of the reduced model."""
    import onnx

    return [node.name for node in onnx.load(out / "reduced.onnx").graph.node]
