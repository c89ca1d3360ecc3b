"""``prepare`` for an ONNX model: nothing of torch, golden values, tensors by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from debugtaps import (
    InputError,
    ModelError,
    Prepared,
    ReferenceFailed,
    TapError,
    prepare,
    read_manifest,
    read_npz,
    tap,
)
from support.build import CONTRIB, Net
from tapsect.cli import main


def save(folder: Path, *, external: bool = False, plugin: str = "") -> tuple[Path, Path]:
    net = Net()
    x = net.input("x", (2, 4))
    y = net.op("Relu", net.linear(x, 4, 128))
    if plugin:
        y = net.op("Thing", y, domain=plugin, gain=2.0)
    net.output(net.op("Tanh", y), dtype=np.float32, shape=(2, 128))
    return net.build(infer=not plugin).save(folder, external=external)


def run(model: Path, *taps: str, **options: Any) -> Prepared:
    out = model.parent / "out"
    return prepare(
        model,
        onnx_out=out / "m.onnx",
        npz_out=out / "m.npz",
        reference_out=out / "r.npz",
        debug_taps=taps,
        **options,
    )


def test_without_torch_a_tap_is_its_input() -> None:
    value = object()
    assert tap(value, "anything") is value


def test_inputs_and_golden_values_are_written(tmp_path: Path) -> None:
    model, inputs = save(tmp_path)
    found = run(model, inputs=[inputs])
    assert found.onnx.read_bytes() == model.read_bytes()
    assert found.sources is None
    reference = read_npz(found.reference)
    assert list(reference) == ["Tanh_output_0"]
    np.testing.assert_array_equal(read_npz(found.inputs)["x"], read_npz(inputs)["x"])
    drawn = run(model, input_shapes={"x": [2, 4]}, seed=3)
    assert read_npz(drawn.inputs)["x"].shape == (2, 4)


def test_tensors_are_tapped_by_name_and_taps_add_up(tmp_path: Path) -> None:
    model, inputs = save(tmp_path, external=True)
    first = run(model, "Relu_output_0", inputs=[inputs])
    assert (first.onnx.parent / "m.onnx.data").is_file()
    (kept,) = first.manifest.taps
    assert (kept.name, kept.output) == ("Relu_output_0", "tap/Relu_output_0")
    again = run(first.onnx, "x", "MatMul.weight", inputs=[inputs])
    manifest = read_manifest(again.onnx)
    assert manifest is not None
    assert manifest.outputs == ("Tanh_output_0",)
    assert {t.tensor for t in manifest.taps} == {"Relu_output_0", "x", "MatMul.weight"}
    assert set(read_npz(again.reference)) == {"Tanh_output_0", *(t.name for t in manifest.taps)}
    onnx.checker.check_model(str(again.onnx), full_check=True)


def test_a_plugin_without_a_reference(tmp_path: Path) -> None:
    model, inputs = save(tmp_path, plugin="my.domain")
    with pytest.raises(ReferenceFailed, match="'Tanh_output_0' has no reference value: my.domain"):
        run(model, inputs=[inputs], plugin_taps=True)
    module = tmp_path / "kernels.py"
    module.write_text("def thing(x, gain):\n    return x * x.dtype.type(gain)\n")
    found = run(model, inputs=[inputs], plugin_taps=True,
                plugin_references=[f"my.domain::Thing={module}:thing"])  # fmt: skip
    assert {t.name: t.reference for t in found.manifest.taps} == {
        "Thing__in0": "onnxruntime",
        "Thing__out0": "torch-op",
    }
    reference = read_npz(found.reference)
    np.testing.assert_array_equal(reference["Thing__out0"], reference["Thing__in0"] * 2)


def test_an_operator_of_the_runtime_is_a_plugin_with_a_reference(tmp_path: Path) -> None:
    net = Net()
    y = net.op("Gelu", net.input("x", (2, 4)), domain=CONTRIB)
    net.output(y, dtype=np.float32, shape=(2, 4))
    model, inputs = net.build(infer=False).save(tmp_path)
    found = run(model, inputs=[inputs], plugin_taps=True)
    assert {t.name: t.reference for t in found.manifest.taps} == {
        "Gelu__in0": "onnxruntime",
        "Gelu__out0": "onnxruntime",
    }


@pytest.mark.parametrize(
    ("taps", "options", "kind", "said"),
    [
        (("all",), {}, TapError, "an ONNX file, which has no tap"),
        (("Relu_output",), {}, TapError, "no such tensor; did you mean Relu_output_0"),
        ((), {"inputs": ["none.npz"]}, InputError, "does not exist"),
        ((), {"input_shapes": {"z": [1]}}, InputError, "z"),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, taps: tuple[str, ...], options: dict[str, Any], kind: type, said: str
) -> None:
    model, _ = save(tmp_path)
    with pytest.raises(kind, match=said):
        run(model, *taps, **options)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        run(tmp_path / "none.onnx")


def test_the_command_never_imports_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = "torch" in sys.modules
    model, inputs = save(tmp_path)
    out = str(tmp_path / "o")
    words = ["prepare", str(model), "--onnx-out", out + ".onnx", "--npz-out", out + ".npz",
             "--reference-out", out + "r.npz", "--inputs", str(inputs)]  # fmt: skip
    assert main([*words, "--debug-taps", "x", "--plugin-op", "Relu", "-v"]) == 0
    assert ("torch" in sys.modules) == before
    shown = capsys.readouterr().out
    assert shown.startswith("1 output, 3 taps, 3 with a reference")
    assert "Relu__out0" in shown
