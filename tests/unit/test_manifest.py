"""The manifest: what goes in comes out, and nothing of a stranger's file is believed unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from debugtaps import ModelError
from debugtaps.manifest import (
    METADATA_KEY,
    Manifest,
    TapEntry,
    read_manifest,
    reference_names,
    write_manifest,
)

TAP = TapEntry("feat/é", "tap/feat", "relu", "manual", "float32", ("b", 3, None), "m.py:4", "torch")
BARE = TapEntry("p__out0", "p__out0", "v", "plugin", "bfloat16", None, None, "none", "no kernel")


def model(*outputs: str) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in outputs]
    nodes = [helper.make_node("Relu", ["x"], [n]) for n in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    return helper.make_model(helper.make_graph(nodes, "g", [x], values))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    prepared = model("y", "tap/feat", "p__out0")
    manifest = Manifest(taps=(TAP, BARE), outputs=("y",))
    write_manifest(prepared, Manifest(outputs=("y",)))
    write_manifest(prepared, manifest)
    onnx.save(prepared, tmp_path / "m.onnx")
    assert read_manifest(prepared) == read_manifest(tmp_path / "m.onnx") == manifest
    assert reference_names(manifest) == ("y", "feat/é")


def test_a_model_without_one_has_none() -> None:
    assert read_manifest(model("y")) is None


def fields(**changed: Any) -> str:
    tap = {"name": "t", "output": "y", "tensor": "v", "kind": "manual", "dtype": "float32",
           "shape": [1], "source": None, "reference": "torch", "reason": "", **changed}  # fmt: skip
    return json.dumps({"version": 1, "taps": [tap], "outputs": ["z"]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be used"),
        ("[" * 100_000, "cannot be used"),
        ("[]", "expected fields by name"),
        ('{"version": 2}', "its format is 2, this release reads 1"),
        ('{"version": 1, "taps": {}}', "'taps' is no list"),
        ('{"version": 1, "taps": [3], "outputs": []}', "a tap is a int"),
        (fields(name=""), "the name of a tap is ''"),
        (fields(kind="other"), "kind 'other'"),
        (fields(reference="guess"), "reference from 'guess'"),
        (fields(shape=[-1]), r"the shape \[-1\]"),
        (fields(shape=[True]), r"the shape \[True\]"),
        (fields(source=3), "no text"),
        (fields(output="elsewhere"), "no output 'elsewhere'"),
        (fields(output="z"), "output 'z' stands in it twice"),
    ],
)
def test_a_damaged_one_is_refused(text: str, said: str) -> None:
    prepared = model("y", "z")
    prepared.metadata_props.add(key=METADATA_KEY, value=text)
    with pytest.raises(ModelError, match=said):
        read_manifest(prepared)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    with pytest.raises(ModelError, match="not an ONNX model"):
        read_manifest(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="cannot be read"):
        read_manifest(tmp_path / "none.onnx")
