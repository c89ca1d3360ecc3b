"""From torch to the engine: a fault of the export is told apart from one of the engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tapsect  # noqa: E402
from debugtaps import InputError, write_npz  # noqa: E402
from support import contract  # noqa: E402
from support.torch_files import write_model  # noqa: E402
from tapsect.cli import main  # noqa: E402

ARGS = "torch.linspace(-2, 2, 32).reshape(4, 8)"
NET = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = tap(torch.relu(self.first(x)), "hidden")
            x = torch.nn.functional.elu(x - 0.5)
            return torch.tanh(self.second(x))
"""
WRONG = (
    NET
    + """
    from onnxscript import opset18 as op

    def onnx_translations():
        return {torch.ops.aten.elu.default:
                lambda x, alpha=1.0, scale=1.0, input_scale=1.0: op.LeakyRelu(x, alpha=0.5)}
"""
)
PLUGIN = """
    @torch.library.custom_op("tapsect_tests::bisected", mutates_args=())
    def bisected(x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1)

    @bisected.register_fake
    def _(x):
        return torch.empty_like(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)

        def forward(self, x):
            return torch.tanh(torch.ops.tapsect_tests.bisected(self.first(x)))
"""


def line_of(model: Path, text: str) -> str:
    """Returns the place of a line, as findings write it."""
    lines = model.read_text().splitlines()
    return f"model.py:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def planted(node: str) -> dict[str, Any]:
    return {"engine": "planted", "engine_options": {"kind": "value", "nodes": node}}


def test_a_sound_export_on_a_sound_engine_agrees(tmp_path: Path) -> None:
    model = write_model(tmp_path, NET, args=ARGS)
    finding = tapsect.bisect(model, out=tmp_path / "o")
    body = contract.check(tmp_path / "o")
    assert (finding.status, finding.exit_code, finding.cause) == ("agrees", 0, None)
    assert finding.message.startswith("ort agrees with torch")
    assert body["model"]["path"] == str(model)
    assert "inputs are what get_fwd_args() returns" in finding.notes
    mapped = next(n for n in finding.notes if n.endswith("tensors have a torch value"))
    found, total = mapped.split()[0], mapped.split()[2]
    assert 4 <= int(found) <= int(total)


def test_a_wrong_translation_is_a_fault_of_the_export(tmp_path: Path) -> None:
    model = write_model(tmp_path, WRONG, args=ARGS)
    finding = tapsect.bisect(model, out=tmp_path / "o")
    contract.check(tmp_path / "o")
    first, line = finding.first_divergence, line_of(model, "elu(x - 0.5)")
    assert (finding.status, finding.cause, finding.exit_code) == ("diverges", "export_mismatch", 1)
    assert first is not None
    assert (first.op_type, first.source) == ("LeakyRelu", line)
    assert finding.culprit_nodes == (first.node,)
    assert finding.message == (
        f"The exported model differs from torch from node {first.node!r} (LeakyRelu, {line}) on;"
        " the engine is not to blame."
    )


def test_a_region_of_several_operators_is_named_whole(tmp_path: Path) -> None:
    body = WRONG.replace("op.LeakyRelu(x, alpha=0.5)", "op.Neg(op.Relu(op.Neg(x)))")
    model = write_model(tmp_path, body, args=ARGS)
    finding = tapsect.bisect(model, out=tmp_path / "o")
    assert finding.cause == "export_mismatch"
    assert len(finding.culprit_nodes) == 3
    assert finding.first_divergence is not None
    assert finding.first_divergence.source == line_of(model, "elu(x - 0.5)")


def test_a_fault_of_the_engine_has_its_line_and_the_users_tap(tmp_path: Path) -> None:
    model = write_model(tmp_path, NET, args=ARGS)
    finding = tapsect.bisect(model, out=tmp_path / "o", **planted("node_relu"))
    contract.check(tmp_path / "o")
    first = finding.first_divergence
    assert (finding.status, finding.cause) == ("diverges", "engine_defect")
    assert first is not None
    assert (first.node, first.tap) == ("node_relu", "hidden")
    assert first.source == line_of(model, "torch.relu(self.first(x))")
    assert finding.minimal is not None


def test_torch_runs_on_the_inputs_that_are_given(tmp_path: Path) -> None:
    model = write_model(tmp_path, WRONG, args="torch.ones(4, 8) * 0")
    given = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for seed, path in enumerate(given):
        x = np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)
        write_npz(path, {"x": x})
    finding = tapsect.bisect(model, inputs=given, out=tmp_path / "o")
    assert finding.cause == "export_mismatch"
    assert {o.sample for o in finding.outputs} == {0, 1}


def test_an_operator_the_reference_lacks_leaves_torch_as_the_truth(tmp_path: Path) -> None:
    model = write_model(tmp_path, PLUGIN, args=ARGS)
    finding = tapsect.bisect(model, out=tmp_path / "o")
    assert finding.failure == "build_error"
    assert finding.first_divergence is not None
    assert finding.first_divergence.op_type == "bisected"
    assert finding.first_divergence.source == line_of(model, "tapsect_tests.bisected(self")


ENGINE = """
import onnx
import onnxruntime as ort
from onnx import helper

class Session:
    def __init__(self, model):
        self.inner = ort.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(self, feeds):
        names = [o.name for o in self.inner.get_outputs()]
        return dict(zip(names, self.inner.run(names, dict(feeds))))

    def close(self):
        pass

class Engine:
    def __init__(self, wrong=""):
        self.wrong = wrong

    def build(self, model, taps=()):
        proto = onnx.load(model)
        constants = [("from", [-1]), ("to", [-100]), ("axis", [1]), ("step", [-1])]
        proto.graph.initializer.extend(helper.make_tensor(n, 7, [1], v) for n, v in constants)
        for node in proto.graph.node:
            if node.op_type == "bisected":
                node.op_type, node.domain = "Slice", ""
                node.input.extend(n for n, _ in constants)
            elif node.op_type == "Gemm" and self.wrong:
                node.attribute.append(helper.make_attribute("alpha", 1.5))
        return Session(proto.SerializeToString())
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_an_engine_with_the_plugin_is_held_against_torch(tmp_path: Path, wrong: bool) -> None:  # noqa: FBT001
    model = write_model(tmp_path, PLUGIN, args=ARGS)
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE)
    finding = tapsect.bisect(
        model, engine=f"{engine}:Engine", out=tmp_path / "o",
        engine_options={"wrong": "yes"} if wrong else {},
    )  # fmt: skip
    assert any("the export was not held against torch" in note for note in finding.notes)
    assert finding.status == ("diverges" if wrong else "agrees")
    if wrong:
        first = finding.first_divergence
        assert finding.cause == "engine_defect"
        assert first is not None
        assert (first.op_type, first.tap) == ("Gemm", "bisected__in0")


def test_a_random_forward_is_no_truth(tmp_path: Path) -> None:
    body = NET.replace("x - 0.5", "x - torch.rand(8)")
    finding = tapsect.bisect(write_model(tmp_path, body, args=ARGS), out=tmp_path / "o")
    assert finding.cause != "export_mismatch"
    assert any("torch is not compared" in note for note in finding.notes)


@pytest.mark.parametrize(
    "options",
    [{"reference_model": Path("o.onnx")}, {"reference": "g.npz"}, {"input_shapes": {"x": [4, 8]}}],
)
def test_options_that_torch_answers_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    model = write_model(tmp_path, NET, args=ARGS)
    Path(tmp_path / "g.npz").touch()
    with pytest.raises(InputError):
        tapsect.bisect(model, out=tmp_path / "o", **options)
    assert not (tmp_path / "o").exists()


# ------------------------------------------------------------------------------- the command


def test_the_command_from_torch_to_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = write_model(Path(), WRONG, args=ARGS)
    assert main(["bisect", str(model)]) == 1
    said = capsys.readouterr().out
    assert line_of(model, "elu(x - 0.5)") in said
    body = json.loads(Path("tapsect-model/result.json").read_text())
    assert (body["cause"], body["model"]["path"]) == ("export_mismatch", "model.py")
    assert not Path("tapsect-model/.work").exists()


def test_missing_torch_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path, NET, args=ARGS)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["bisect", str(model), "--out", str(tmp_path / "o")]) == 4
    assert "pip install 'tapsect[torch]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = 1", "holds no Model"),
        ("class Model(nn.Module):\n    def forward(self, x):\n        return x.nope", "nope"),
    ],
)
def test_a_file_that_cannot_be_used_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, words: str
) -> None:
    model = write_model(tmp_path, body, args=ARGS)
    assert main(["bisect", str(model), "--out", str(tmp_path / "o")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
