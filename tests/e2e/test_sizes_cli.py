"""``tapsect sweep`` and ``tapsect selfcheck``: faults of sizes, rows and order; real kernels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.build import Net
from tapsect.cli import main
from tapsect.finding import Finding

ENGINE = """
import onnxruntime as ort

class Engine:
    def __init__(self, wrong):
        self.wrong = wrong

    def build(self, model, taps=()):
        return Session(str(model), self.wrong)

class Session:
    def __init__(self, model, wrong):
        self.session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.wrong, self.runs = wrong, 0

    def run(self, feeds):
        self.runs += 1
        fed = {i.name: feeds[i.name] for i in self.session.get_inputs()}
        found = dict(zip([o.name for o in self.session.get_outputs()], self.session.run(None, fed)))
        x, y = fed["x"], next(iter(found.values()))
        static = isinstance(self.session.get_inputs()[0].shape[0], int)
        eval(self.wrong, {"x": x, "y": y, "runs": self.runs, "static": static})
        return found

    def close(self):
        pass
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("engine.py").write_text(ENGINE, encoding="utf-8")


def model(*, mixes: bool = False, batch: int | str = "batch") -> str:
    net = Net()
    x = net.input("x", (batch, 6), np.ones((4, 6)))
    y = net.op("Relu", net.linear(x, 6, 6))
    if mixes:
        y = net.op("Mul", y, net.op("ReduceMean", y, axes=[0], keepdims=1))
    net.output(net.linear(y, 6, 3))
    onnx.save(net.build().model, "model.onnx")
    return "model.onnx"


def wrong(text: str) -> list[str]:
    return ["--engine", "engine.py:Engine", "--engine-option", f"wrong={json.dumps(text)}"]


def trail(folder: str) -> dict[str, str]:
    body = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
    return {step.step: step.decision for step in Finding.from_json(body).trail}


def test_the_sizes_that_fail_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", model(), "--dim", "batch=1,4,5,9", *wrong("len(x) > 4 and y.__imul__(1.1)")]
    assert main([*words, "--out", "o"]) == 1
    shown = capsys.readouterr().out
    assert "fails at 2 of 4 sizes, first at batch=5: output" in shown
    assert "batch=4: agrees" in shown
    finding = Finding.from_json(json.loads(Path("o/result.json").read_text(encoding="utf-8")))
    assert finding.cause == "input_sensitive"
    assert finding.samples is not None
    assert finding.samples.failing == (2, 3)


def test_a_size_that_raises_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", model(), "--dim", "x.0=2,3,4", *wrong("1 / (len(x) - 3)"), "--out", "o"]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "x.0=3: run_error: ZeroDivisionError" in shown
    assert "x.0=4: agrees" in shown


def test_where_all_sizes_fail_none_is_blamed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", model(), "--dim", "batch=1,2", *wrong("y.__imul__(1.1)"), "-q"]) == 1
    assert "No size is to blame" in capsys.readouterr().out


def test_real_kernels_agree_at_all_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", model(), "--dim", "batch=1,2,7,33", "--out", "o", "-q"]) == 0
    assert "at all 4 sizes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("dim", "said"),
    [
        ("y=1", "no such dimension; dynamic are x.0, batch"),
        ("x.1=2", "fixed to 6"),
        ("batch", "not of the form"),
        ("batch=" + ",".join(map(str, range(1, 80))), "64 are the most"),
    ],
)
def test_sizes_that_cannot_be_are_refused(
    dim: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", model(), "--dim", dim, "--out", "o"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "broken"),
    [
        ("None", set()),
        ("runs > 1 and y.__imul__(1.1)", {"twice", "equal", "permuted", "single"}),
        ("len(y) > 2 and y[2].__imul__(1.1)", {"equal", "permuted", "single"}),
        ("len(y) == 1 and y.__imul__(1.1)", {"single"}),
        ("static and y.__imul__(1.1)", {"static"}),
        ("y.__imul__(1 + 3e-8)", set()),
    ],
)
def test_an_engine_that_is_at_odds_with_itself(fault: str, broken: set[str]) -> None:
    assert main(["selfcheck", model(), *wrong(fault), "--out", "o"]) == int(bool(broken))
    told = trail("o")
    assert {name for name, decision in told.items() if decision == "broken"} == broken
    assert set(told) == {"twice", "equal", "permuted", "single", "static"}


def test_what_the_model_itself_does_not_keep_is_not_asked() -> None:
    assert main(["selfcheck", model(mixes=True), *wrong("None"), "--out", "o"]) == 0
    told = trail("o")
    # The mean over rows does not change with their order; a row alone has another mean.
    assert (told["single"], told["permuted"], told["static"]) == ("not asked", "held", "held")


def test_a_fixed_batch_is_asked_what_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selfcheck", model(batch=4), "--out", "o"]) == 0
    assert trail("o") == {"twice": "held", "equal": "held", "permuted": "held"}


def test_no_reference_is_needed() -> None:
    (Path("custom.py")).write_text(CUSTOM, encoding="utf-8")
    net = Net()
    net.domains["mine"] = 1
    x = net.input("x", ("batch", 6), np.ones((4, 6)))
    net.output(net.op("Own", x, domain="mine"), dtype=np.float32, shape=("batch", 6))
    onnx.save(net.graph(infer=False), "model.onnx")
    words = ["selfcheck", "model.onnx", "--engine", "custom.py:Engine", "--out", "o"]
    assert main(words) == 1
    assert trail("o")["permuted"] == "broken"


CUSTOM = """
import numpy as np

class Engine:
    def build(self, model, taps=()):
        return self

    def run(self, feeds):
        x = feeds["x"]
        return {"Own_output_0": x * (1 + 0.1 * np.arange(len(x), dtype=np.float32)[:, None])}

    def close(self):
        pass
"""
