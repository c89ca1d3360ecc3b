"""``--engine-file``: a saved engine is the first run; a rebuild unlike it is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import tapsect
from debugtaps import InputError, save
from tapsect.cli import main
from tapsect.finding import Finding

ENGINE = '''
"""An engine whose file says by how much its outputs are off; a build is off by ``error``."""
import json
import os
from pathlib import Path

import onnxruntime


class Session:
    def __init__(self, model, about):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.inner, self.about = onnxruntime.InferenceSession(model, options), about

    def run(self, feeds):
        if self.about.get("die"):
            os.abort()
        names = [each.name for each in self.inner.get_outputs()]
        known = {each.name for each in self.inner.get_inputs()}
        values = self.inner.run(names, {n: v for n, v in feeds.items() if n in known})
        found = dict(zip(names, values))
        wrong = {n: v * (1 + self.about["error"]) if n == "y" else v for n, v in found.items()}
        return wrong

    def close(self):
        pass


class Saved:
    def __init__(self, error=0.0):
        self.error = error

    def build(self, model, taps=()):
        return Session(str(model), {"error": self.error})

    def load(self, path):
        about = json.loads(Path(path).read_text())
        if about["made_by"] != "Saved 1":
            raise RuntimeError("the file was made by " + about["made_by"])
        return Session(about["model"], about)


class Loadless:
    def build(self, model, taps=()):
        return Session(str(model), {"error": 0.0})
'''

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[3, 4] x) => (float[3, 4] y, float[3, 4] z)
{ [a] a = Exp (x) [b] y = Tanh (a) [c] z = Neg (a) }
"""
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text(ENGINE, encoding="utf-8")
    save(parser.parse_model(MODEL), tmp_path / "net.onnx")
    return tmp_path


def plan(folder: Path, **about: Any) -> Path:
    told = {"made_by": "Saved 1", "model": str(folder / "net.onnx"), "error": 0.0, **about}
    path = folder / "net.plan"
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def look(folder: Path, file: Path, engine: str = "Saved", **options: Any) -> Finding:
    return tapsect.bisect(
        folder / "net.onnx", inputs=[FEEDS], engine=f"{folder / 'engine.py'}:{engine}",
        engine_options=options, engine_file=file, out=folder / "out",
    )  # fmt: skip


def test_a_file_that_agrees_agrees_whatever_a_build_would_do(given: Path) -> None:
    assert look(given, plan(given), error=0.1).status == "agrees"


def test_a_fault_of_the_file_alone_is_said_first(given: Path) -> None:
    found = look(given, plan(given, error=0.1))
    assert found.message.startswith(
        "The given engine file fails, a rebuild of the model agrees: the fault is in that file."
    )
    assert (found.status, found.cause, found.exit_code) == ("diverges", "flaky_build", 1)
    assert [o.name for o in found.outputs if o.failing] == ["y"]


def test_a_rebuild_that_fails_alike_is_searched(given: Path) -> None:
    found = look(given, plan(given, error=0.1), error=0.1)
    assert "given engine file" not in found.message
    assert found.culprit_nodes == ("b",)
    assert any(s.step == "rebuild" and s.decision == "fails alike" for s in found.trail)


def test_a_file_that_crashes_is_told_apart_from_a_build(given: Path) -> None:
    found = look(given, plan(given, die=True))
    assert (found.failure, found.cause) == ("crash", "flaky_build")
    assert found.message.startswith("The given engine file fails, a rebuild of the model does not")


@pytest.mark.parametrize(
    ("about", "engine", "text"),
    [
        ({"made_by": "Saved 2"}, "Saved", "made by Saved 2"),
        ({}, "Loadless", "no load"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_the_users_matter(
    given: Path, about: dict[str, str], engine: str, text: str
) -> None:
    with pytest.raises(InputError, match=f"--engine-file.*{text}"):
        look(given, plan(given, **about), engine)


def test_the_command_takes_it(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "bisect", str(given / "net.onnx"), "--engine", f"{given / 'engine.py'}:Saved",
        "--engine-file", str(given / "no.plan"), "--out", str(given / "out"), "-q",
    ]  # fmt: skip
    assert main(words) == 2
    assert "no.plan: no such file" in capsys.readouterr().err
    words[words.index("--engine-file") + 1] = str(plan(given))
    assert main(words) == 0
