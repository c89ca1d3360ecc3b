"""OpenVINO on sizes, rows and order: correct kernels keep what is asked of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.build import Net
from tapsect.cli import main
from tapsect.finding import Finding

pytest.importorskip("openvino")
pytestmark = [pytest.mark.engines, pytest.mark.openvino]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = Net()
    x = net.input("x", ("batch", 3, 16, 16), np.ones((4, 3, 16, 16)))
    h = net.op("Relu", net.conv(net.op("Relu", net.conv(x, 3, 8)), 8, 8))
    net.output(net.linear(net.op("Flatten", h, axis=1), 8 * 256, 10))
    onnx.save(net.build().model, "model.onnx")


@pytest.mark.parametrize("hint", ["f32", "bf16"])
def test_it_agrees_with_itself_and_at_all_sizes(hint: str) -> None:
    engine = ["--engine", "openvino", "--engine-option", f"INFERENCE_PRECISION_HINT={hint}"]
    precision = ["--precision", "bf16"] if hint == "bf16" else []
    assert main(["selfcheck", "model.onnx", *engine, *precision, "--out", "o"]) == 0
    body = json.loads(Path("o/result.json").read_text(encoding="utf-8"))
    told = {step.step: step.decision for step in Finding.from_json(body).trail}
    assert told == dict.fromkeys(["twice", "equal", "permuted", "single", "static"], "held")
    sizes = ["--dim", "batch=1,2,5,17", "--out", "s"]
    assert main(["sweep", "model.onnx", *sizes, *engine, *precision]) == 0
