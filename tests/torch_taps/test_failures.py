"""Every way in which a tap or a model cannot be had, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from debugtaps import (  # noqa: E402
    InputError,
    ModelCodeError,
    ModelError,
    OutputError,
    TapError,
    UsageError,
    prepare,
)
from support.torch_files import prepared, write_model  # noqa: E402
from tapsect.cli import main  # noqa: E402

LOST = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            tap(y, "conv")
            tap(y.sin(), "dead")
            y = self.bn(y)
            c = tap(torch.ones(4, 1, 1) * 2, "constant")
            y = y + c
            tap(y.to_sparse(), "sparse") if not torch.compiler.is_exporting() else None
            def left(x):
                return tap(x * 2, "inner") + 1
            y = torch.cond(y.sum() > 0, left, lambda x: x - 1, (y,))
            if x.shape[0] > 100:
                tap(y, "never")
            tap(y, "traced" if torch.compiler.is_exporting() else "eager")
            return tap(y, "fine") * 2
"""


def test_every_lost_tap_is_named_with_its_reason_and_the_mend(tmp_path: Path) -> None:
    model = write_model(tmp_path, LOST, args="torch.ones(1, 3, 8, 8)")
    with pytest.raises(TapError) as caught:
        prepared(
            model, "conv", "dead", "constant", "sparse", "inner", "never", "traced", "eager",
            "fime", "fine",
        )  # fmt: skip
    said = {
        part.partition(":")[0].strip(): part for part in str(caught.value).split("--debug-taps")
    }
    assert "folded into the BatchNorm that reads it; tap after the BatchNorm" in said["conv"]
    assert "model.py:13" in said["conv"]
    assert "no output of the model depends on it" in said["dead"]
    assert "constant" not in said  # folded into a weight that keeps its name
    assert "x.to_dense()" in said["sparse"]
    assert "inside a control-flow branch or body" in said["inner"]
    assert "model.py:20" in said["inner"]
    assert "model.py:23: the branch it stands on is not taken" in said["never"]
    assert "taken only while the model is exported" in said["traced"]
    assert "the eager run meets it, the exported trace does not" in said["eager"]
    assert "no such tap in the traced graph; did you mean fine?" in said["fime"]
    assert "fine" not in said
    assert not list((tmp_path / "out").iterdir())  # nothing is left of what failed


FUSED = """
    class Model(nn.Module):
        def forward(self, x):
            y = x.reshape(8, 4)
            tap(y, "between")
            return y.reshape(2, 16) * 2
"""


def test_what_a_rewrite_swallows_is_said(tmp_path: Path) -> None:
    said = r"between: model.py:9: its value \(tensor '.*' of Reshape, read by Reshape\) was"
    with pytest.raises(TapError, match=said):
        prepared(write_model(tmp_path, FUSED), "between")


WRONG = """
    from onnxscript import opset18 as op

    class Model(nn.Module):
        def forward(self, x):
            y = torch.relu(x) + 1
            return tap(y, "y") * 2

    def onnx_translations():
        return {torch.ops.aten.relu.default: lambda x: op.Sigmoid(x)}
"""


def test_a_tensor_that_holds_another_value_is_caught(tmp_path: Path) -> None:
    model = write_model(tmp_path, WRONG, args="torch.randn(4, 8)")
    with pytest.raises(TapError, match=r"--debug-taps y: model.py:11: the exported tensor 'add'"):
        prepared(model, "y")
    found = prepared(model)
    assert any("does not compute what torch computes: output mul" in n for n in found.notes)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("x = 1", ModelError, "holds no Model; define class Model"),
        ("class Model: pass", ModelError, r"Model\(\) is a Model, expected a torch.nn.Module"),
        ("Model = 3", ModelError, "Model is a int, expected a class"),
        ("class Model(nn.Module:", ModelCodeError, r"model.py:5: SyntaxError"),
        ("import no_such_thing", ModelCodeError, "model.py:5: .*ModuleNotFoundError"),
        ("raise SystemExit(3)", ModelCodeError, "ended the process"),
        ("Model = nn.Identity()\nget_fwd_args = 3", ModelError, r"no get_fwd_args\(\)"),
        ("Model = nn.Identity()\ndef get_fwd_args():\n    return {}[1]", ModelCodeError,
         r"model.py:7: get_fwd_args\(\) raised in get_fwd_args .*KeyError: 1"),
        ("Model = nn.Identity()\ndef get_fwd_args():\n    return ()", InputError,
         "gives no tensor"),
        ("Model = nn.Identity()\ndef get_fwd_args():\n    return {'x': 1}", InputError,
         "returns a dictionary; return a tuple"),
        ("Model = nn.Identity()\nopset_version = 17", ModelError, "writes opset 18 and newer"),
        ("Model = nn.Linear(8, 8, device='meta')", InputError, "meta device"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_model(tmp_path: Path, body: str, kind: type, said: str) -> None:
    with pytest.raises(kind, match=said):
        prepared(write_model(tmp_path, body))


FORWARD = "class Model(nn.Module):\n    def forward(self, x):\n        "


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("return x @ torch.ones(3)", ModelCodeError,
         r"model.py:7: Model.forward raised in forward \(`return x @ torch.ones\(3\)`\) Runtime"),
        ("return x if x.sum() > 0 else -x", ModelError,
         "model.py:7: forward cannot be traced: .* depends on the values of a tensor"),
        ("return x, 'text'", ModelError, r"forward returns a str \(output\[1\]\)"),
        ("return None", ModelError, "forward returns no tensor"),
        ("return x.to_sparse()", ModelError, "cannot be kept"),
    ],
)  # fmt: skip
def test_a_forward_that_cannot_be_used(
    tmp_path: Path, line: str, kind: type, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind, match=said):
        prepared(write_model(tmp_path, FORWARD + line))
    assert capsys.readouterr().out == ""


def test_the_users_traceback_is_theirs_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path, FORWARD + "return nn.functional.linear(x, x.t())")
    out = str(tmp_path / "o")
    words = ["prepare", str(model), "--onnx-out", out + ".onnx", "--npz-out", out + ".npz",
             "--reference-out", out + "r.npz"]  # fmt: skip
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "model.py" in said.err
    assert "debugtaps/" not in said.err
    assert "torch/nn" not in said.err


TAPS = """
    class Model(nn.Module):
        def forward(self, x):
            {}
            return x * 2
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tap(x, 'h'); x = tap(x + 1, 'h')", "'h' is used twice at .*model.py:8"),
        ("[tap(x, 'h') for _ in range(2)]", "a loop, or a module that is called more than once"),
        ("tap('text', 'h')", "got a value of type str"),
        ("x = torch.vmap(lambda v: tap(v, 'h') + 1)(x)", "--debug-taps h: .*under torch.vmap"),
    ],
)
def test_a_tap_in_the_wrong_place(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(TapError, match=said):
        prepared(write_model(tmp_path, TAPS.format(line)), "h")


def test_all_of_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TapError, match="has no tap"):
        prepared(write_model(tmp_path, TAPS.format("pass")), "all")


def test_an_opset_the_exporter_does_not_know(tmp_path: Path) -> None:
    model = write_model(tmp_path, TAPS.format("pass") + "\n    opset_version = 40\n")
    with pytest.raises(ModelError, match="opset"):
        prepared(model)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    model = write_model(tmp_path, TAPS.format("pass"))
    out = tmp_path / "one"
    with pytest.raises(OutputError, match="four different files"):
        prepare(model, onnx_out=out, npz_out=out, reference_out=tmp_path / "r")
    with pytest.raises(OutputError, match="is a folder"):
        prepare(model, onnx_out=tmp_path, npz_out=out, reference_out=tmp_path / "r")
    with pytest.raises(UsageError, match="come from its get_fwd_args"):
        prepared(model, inputs=["x.npz"])
    with pytest.raises(ModelError, match="no such file"):
        prepared(tmp_path / "none.py")
