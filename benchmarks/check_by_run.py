"""The check as the rival's guide has it: ``polygraphy run`` on the candidate, against golden files.

The candidate's planted node is made wrong first, in the same process, so that the engine is the
same as everywhere here.  Exit 1 when the candidate fails.

    python check_by_run.py CANDIDATE NODE SCALE COUNTER INPUTS.json GOLDEN.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from check_candidate import TOLERANCE, note, plant
from polygraphy.tools import main as polygraphy


def main(
    candidate: str, node: str, scale: str, counter: str, inputs: str, golden: str
) -> int:  # fmt: skip
    model = onnx.load(candidate)
    note(counter, model)
    plant(model.graph, node, float(scale))
    faulty = str(Path(candidate).with_suffix(".faulty.onnx"))
    onnx.save(model, faulty)
    tolerance = str(TOLERANCE)
    sys.argv = [
        "polygraphy", "run", faulty, "--onnxrt", "--load-inputs", inputs, "--load-outputs", golden,
        "--atol", tolerance, "--rtol", tolerance,
    ]  # fmt: skip
    return int(polygraphy())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
