"""The check that the rival needs: is the planted node wrong in this candidate?

``polygraphy debug reduce`` leaves the check to its user, who needs golden values of *every*
tensor and a tolerance.  Both are given here for free: the golden values are recorded once, the
tolerance knows the fault.  The engine is the same as tapsect's: ONNX Runtime, with the declared
node's output scaled.  Exit 1 when the candidate fails.

    python check_candidate.py CANDIDATE NODE SCALE COUNTER GOLDEN.npz
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

TOLERANCE = 1e-4


def main(candidate: str, node: str, scale: str, counter: str, golden: str) -> int:
    model = onnx.load(candidate)
    note(counter, model)
    plant(model.graph, node, float(scale))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    with np.load(golden) as values:  # noqa: TID251 - runs where only numpy is
        feeds = {i.name: values[i.name] for i in session.get_inputs()}
        names = [o.name for o in session.get_outputs()]
        for name, got in zip(names, session.run(names, feeds), strict=True):
            want = values[name]
            if np.abs(got - want).max() > TOLERANCE * max(1e-9, np.abs(want).max()):
                return 1
    return 0


def note(counter: str, model: onnx.ModelProto) -> None:
    """Writes a line with the count of operators of what is built."""
    with Path(counter).open("a") as log:
        log.write(f"{sum(n.op_type != 'Constant' for n in model.graph.node)}\n")


def plant(graph: onnx.GraphProto, node: str, scale: float) -> None:
    """Scales the first output of the node, where the candidate still has it."""
    for at, found in enumerate(graph.node):
        if found.name == node:
            name = found.output[0]
            found.output[0] = name + "__right"
            factor = numpy_helper.from_array(np.float32(scale).reshape(()), name + "__scale")
            graph.initializer.append(factor)
            wrong = helper.make_node(
                "Mul", [found.output[0], factor.name], [name], node + "__wrong"
            )
            graph.node.insert(at + 1, wrong)
            return


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
