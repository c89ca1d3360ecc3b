"""``prepare``: what is asked for becomes an output with torch's value beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

torch = pytest.importorskip("torch")

from debugtaps import Prepared, read_manifest, read_npz  # noqa: E402
from debugtaps.export import export_torch  # noqa: E402
from debugtaps.torch_file import load_torch_file  # noqa: E402
from support.torch_files import prepared, write_model  # noqa: E402
from tapsect.cli import main  # noqa: E402

# The two models of the reference document, in one: taps in forward and as layers.
DOCUMENT = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU())
            self.net = nn.Sequential(
                nn.Conv2d(16, 16, 3, padding=1),
                nn.ReLU(),
                Tap("test_1"),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                Tap("test_2"),
                nn.Linear(16, 10),
            )

        def forward(self, x):
            x = self.backbone(x)
            x = tap(x, "backbone_out")
            return self.net(x)
"""
IMAGE = "torch.randn(1, 3, 32, 32)"


def promoted_equals_reference(found: Prepared) -> dict[str, np.ndarray]:
    """Runs the promoted model and compares every output and tap with its reference value."""
    onnx.checker.check_model(str(found.onnx), full_check=True)
    reference, feeds = read_npz(found.reference), read_npz(found.inputs)
    manifest = read_manifest(found.onnx) or found.manifest
    named = {t.output: t.name for t in manifest.taps}
    for level in (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(str(found.onnx), options)
        outputs = [o.name for o in session.get_outputs()]
        assert tuple(outputs[: len(manifest.outputs)]) == manifest.outputs
        for name, value in zip(outputs, session.run(None, feeds), strict=True):
            np.testing.assert_allclose(
                value, reference[named.get(name, name)], rtol=1e-4, atol=1e-5
            )
    return reference


def test_the_examples_of_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path, DOCUMENT, args=IMAGE)
    build = tmp_path / "build"
    words = ["prepare", str(model), "--onnx-out", str(build / "model.onnx"),
             "--npz-out", str(build / "model.npz"),
             "--reference-out", str(build / "model.reference.npz")]  # fmt: skip
    assert main(words) == 0
    plain = (build / "model.onnx").read_bytes()
    assert read_manifest(build / "model.onnx") is None
    assert set(read_npz(build / "model.reference.npz")) == {"linear", "benchmark_timings_ms"}
    exported = export_torch(load_torch_file(model), tmp_path / "plain.onnx")
    assert exported.path.read_bytes() == plain
    capsys.readouterr()

    assert main([*words, "--debug-taps", "test_1", "--debug-taps", "test_2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 output, 2 taps, 2 with a reference\nWritten to ")
    assert "eval() was set" in said.err
    assert set(read_npz(build / "model.reference.npz")) == {
        "linear", "test_1", "test_2", "benchmark_timings_ms"}  # fmt: skip

    assert main([*words, "--debug-taps", "test_1", "--debug-taps", "all"]) == 0
    manifest = read_manifest(build / "model.onnx")
    assert manifest is not None
    assert [t.name for t in manifest.taps] == ["backbone_out", "test_1", "test_2"]
    assert [t.source for t in manifest.taps] == ["model.py:22", "model.py:13", "model.py:16"]
    done = main(["compile", str(build / "model.onnx"), "--inputs", str(build / "model.npz"),
                 "-o", str(build)])  # fmt: skip
    assert done == 0
    archive = next(build.glob("*.tgz"))
    capsys.readouterr()
    assert (
        main(["verify", str(build / "model.reference.npz"), str(archive), "--max-mape", "1"]) == 0
    )
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:5]]
    assert rows == ["backbone_out", "test_1", "test_2", "linear"]


NAMES = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            tap(x, "file")
            tap(self.linear.weight, "weight")
            y = self.linear(x)
            tap(y, "allow_pickle")
            y = torch.relu(y)
            tap(y, "relu")
            tap(y, "again/../x")
            z = tap(y * 2, "before")
            z.sub_(1)
            tap(z, "after")
            tap({"a": z, "b": [y]}, "both")
            return tap(self.linear(z), "linear_1")
"""


def test_any_name_any_place_and_in_place_work(tmp_path: Path) -> None:
    found = prepared(write_model(tmp_path, NAMES, args="torch.randn(4, 8)"), "all")
    reference = promoted_equals_reference(found)
    by_name = {t.name: t for t in found.manifest.taps}
    assert set(by_name) == {
        "file", "weight", "allow_pickle", "relu", "again/../x", "before", "after", "both.a",
        "both.b.0", "tap/linear_1",
    }  # fmt: skip
    assert by_name["relu"].output == "tap/relu"  # a tensor of the model has the name already
    assert by_name["file"].tensor == "x"
    assert by_name["weight"].tensor == "linear.weight"
    assert by_name["tap/linear_1"].tensor in found.manifest.outputs
    np.testing.assert_array_equal(reference["before"] - 1, reference["after"])
    np.testing.assert_array_equal(reference["tap/linear_1"], reference["linear_1"])
    np.testing.assert_array_equal(reference["both.a"], reference["after"])


NETS = """
    class Block(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.k = k
            self.att = nn.MultiheadAttention(16, 2, batch_first=True)
            self.norm = nn.LayerNorm(16)
            wide, back = nn.Linear(16, 32), nn.Linear(32, 16)
            self.ff = nn.Sequential(wide, nn.GELU(), Tap(f"gelu{k}"), back)

        def forward(self, x, call=0):
            y = tap(self.att(x, x, x, need_weights=False)[0], f"att{self.k}{call}")
            return tap(self.norm(x + y), f"out{self.k}{call}")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder.dropout1 = nn.Sequential(self.encoder.dropout1, Tap("dropped"))
            self.first, self.second = Block(1), Block(2)
            self.lstm = nn.LSTM(16, 8, batch_first=True)

        def forward(self, x, scale):
            x = self.encoder(x)
            x = self.second(self.first(self.first(x), 1))
            x = tap(self.second.ff(x), "ff")
            out, (hidden, _) = self.lstm(x)
            tap((out, hidden), "lstm")
            return {"y": out.sum(1) + hidden[0] * scale, "none": None}

    def get_fwd_args():
        return (torch.randn(2, 5, 16),)

    def get_fwd_kwargs():
        return {"scale": torch.ones(1)}

    opset_version = 18

    def get_dynamic_shapes():
        return {"x": {0: torch.export.Dim("b", max=64)}, "scale": None}
"""


def test_attention_lstm_dynamic_shapes_and_a_module_called_twice(tmp_path: Path) -> None:
    model = write_model(tmp_path, NETS)
    found = prepared(model, "all")
    reference = promoted_equals_reference(found)
    names = {t.name for t in found.manifest.taps}
    assert names == {
        "dropped", "att10", "out10", "att11", "out11", "att20", "out20", "gelu2", "ff",
        "lstm.0", "lstm.1",
    }  # fmt: skip
    assert {t.name: t.shape for t in found.manifest.taps}["ff"] == ("b", 5, 16)
    assert reference["benchmark_timings_ms"].min() > 0
    assert set(read_npz(found.inputs)) == {"x", "scale"}
    loaded = onnx.load(found.onnx)
    assert [o.version for o in loaded.opset_import if not o.domain] == [18]
    assert str(tmp_path) not in str(loaded)
    assert found.sources is not None
    tensors = json.loads(found.sources.read_text())["tensors"]
    assert any(t["scope"] == "first/att" for t in tensors.values())
    assert all(t["source"] is None or ":" in t["source"] for t in tensors.values())
    # One of a container is asked for by its own name, all by the container's.
    only = prepared(model, "lstm", "ff")
    assert [t.name for t in only.manifest.taps][0] == "ff"
    assert {t.name for t in only.manifest.taps} == {"ff", "lstm.0", "lstm.1"}


def test_weights_that_are_large_go_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("debugtaps.export._EXTERNAL_BYTES", 1000)
    body = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.back = nn.Linear(8, 64), nn.Linear(64, 8)

        def forward(self, x):
            return self.back(tap(self.wide(x), "wide"))
    """
    found = prepared(write_model(tmp_path, body), "wide")
    assert (found.onnx.parent / "model.onnx.data").stat().st_size >= 4000
    assert found.onnx.stat().st_size < 20_000
    promoted_equals_reference(found)


NARROW = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8).bfloat16()

        def forward(self, x):
            y = tap(self.layer(x.bfloat16()), "half")
            return tap(y.to(torch.float8_e4m3fn), "eighth").float()
"""


def test_narrow_types_are_captured_without_loss(tmp_path: Path) -> None:
    found = prepared(write_model(tmp_path, NARROW), "half", "eighth")
    reference = read_npz(found.reference)
    assert [t.dtype for t in found.manifest.taps] == ["bfloat16", "float8_e4m3fn"]
    assert [reference[n].dtype.name for n in ("half", "eighth")] == ["bfloat16", "float8_e4m3fn"]
    assert np.any(reference["half"].astype(np.float32))


RANDOM = """
    class Model(nn.Module):
        def forward(self, x):
            print("this is the user's")
            return tap(nn.functional.dropout(x * 2, training=True), "d") + 1
"""


def test_randomness_is_said_and_standard_output_stays_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = prepared(write_model(tmp_path, RANDOM), "d")
    assert any("forward is random" in n and "tap d" in n for n in found.notes)
    assert capsys.readouterr().out == ""
    assert not [p for p in found.onnx.parent.iterdir() if p.name.startswith(".")]
