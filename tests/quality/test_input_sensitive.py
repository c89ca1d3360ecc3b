"""Failures of some inputs only: which samples, what separates them, and a random control."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapsect
from debugtaps import write_npz
from support.build import Net
from tapsect.finding import Finding
from tapsect.report import render_text

NODE = "Relu"


def bisected(folder: Path, scales: list[float], **fault: Any) -> Finding:
    """Diagnoses an engine that is wrong where its input goes beyond 20."""
    net = Net()
    x = net.input("x", ("n", 8), RNG.standard_normal((2, 8)))
    net.output(net.op("Neg", net.op("Relu", net.linear(x, 8, 8))))
    model, _ = net.build().save(folder)
    inputs = []
    for number, scale in enumerate(scales):
        path = folder / f"{number}.npz"
        write_npz(path, {"x": (scale * RNG.uniform(0.5, 1, (2, 8))).astype(np.float32)})
        inputs.append(path)
    planted = {"kind": "value", "nodes": [NODE], "when": {"input": "x", "above": 20.0}, **fault}
    return tapsect.bisect(
        model, inputs=inputs, engine="planted", engine_options={"faults": [planted]},
        out=folder / "out", budget=0,
    )  # fmt: skip


RNG = np.random.default_rng(5)


def test_failing_samples_are_listed_with_what_separates_them(tmp_path: Path) -> None:
    finding = bisected(tmp_path, [1, 40, 2, 50, 3, 1, 2, 3])
    seen = finding.samples
    assert seen is not None
    assert (seen.failing, seen.of, seen.control) == ((1, 3), 8, None)  # an operator is to blame
    assert finding.culprit_nodes == (NODE,)
    (first, *_) = seen.separated_by
    assert first.input == "x"
    assert first.failing[0] > 18
    assert first.others[1] < 4
    assert "in failing samples the" in render_text(finding)
    body = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert Finding.from_json(body).samples == seen


def test_a_crash_of_some_samples_is_located_with_one_of_them(tmp_path: Path) -> None:
    finding = bisected(tmp_path, [1, 2, 40, 3, 50], kind="crash", phase="run")
    assert (finding.failure, finding.culprit_nodes) == ("crash", (NODE,))
    assert finding.samples is not None
    assert finding.samples.failing == (2, 4)
    assert finding.samples.separated_by


def test_when_all_samples_fail_at_an_operator_nothing_is_said(tmp_path: Path) -> None:
    assert bisected(tmp_path, [40, 50]).samples is None


@pytest.mark.parametrize(("above", "control"), [(20.0, "agrees"), (-100.0, "fails")])
def test_a_random_control_is_run_where_no_operator_is_to_blame(
    tmp_path: Path, above: float, control: str
) -> None:
    # Taps are refused and no part fails alone: only the file that was given does.
    (tmp_path / "engine.py").write_text(ENGINE.format(above=above), encoding="utf-8")
    net = Net()
    x = net.input("x", (2, 8))
    net.output(net.op("Neg", net.op("Relu", x)))
    model, _ = net.build().save(tmp_path)
    inputs = []
    for number, scale in enumerate((30.0, 40.0)):
        inputs.append(tmp_path / f"{number}.npz")
        write_npz(inputs[-1], {"x": np.full((2, 8), scale, np.float32)})
    finding = tapsect.bisect(
        model, inputs=inputs, engine=f"{tmp_path}/engine.py:Engine", out=tmp_path / "out", budget=0
    )
    assert finding.samples is not None
    assert finding.samples.control == control
    if control == "agrees":
        assert (finding.status, finding.cause) == ("diverges", "input_sensitive")
        assert "random data of the same sizes agrees" in finding.message


ENGINE = """
import onnxruntime as ort

class Engine:
    def build(self, model, taps=()):
        if taps:
            raise RuntimeError("no taps")
        return Session(str(model))

class Session:
    def __init__(self, model):
        self.session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.whole = model.endswith("/model.onnx")

    def run(self, feeds):
        names = [i.name for i in self.session.get_inputs()]
        found = self.session.run(None, {{n: feeds[n] for n in names}})
        wrong = self.whole and "x" in names and feeds["x"].max() > {above}
        factor = 1.1 if wrong else 1.0
        outputs = self.session.get_outputs()
        return {{o.name: v * factor for o, v in zip(outputs, found)}}

    def close(self):
        pass
"""
