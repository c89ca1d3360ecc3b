"""``extract`` and ``inspect``: what engineers use by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from debugtaps import InputError, UsageError
from support import zoo
from tapsect.byhand import (
    TensorSpec,
    describe,
    describe_engine,
    extract_part,
    parse_input,
    parse_output,
)


def unknown(_: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x:[1,3,224,224]:float32", TensorSpec("x", (1, 3, 224, 224), 1)),
        ("y:auto:auto", TensorSpec("y")),
        ("a:b:[-1,N]:float16", TensorSpec("a:b", (None, "N"), 10)),
        ("s:[]:int64", TensorSpec("s", (), 7)),
        ("plain", TensorSpec("plain")),
    ],
)
def test_inputs_are_read(text: str, spec: TensorSpec) -> None:
    assert parse_input(text, unknown) == spec


def test_a_name_with_colons_is_taken_as_it_is_when_the_model_has_it() -> None:
    assert parse_input("x:0", lambda name: name == "x:0") == TensorSpec("x:0")
    assert parse_output("z:0", lambda name: name == "z:0") == TensorSpec("z:0")
    assert parse_output("z:0:auto", unknown) == TensorSpec("z:0")


@pytest.mark.parametrize("text", ["x:[1,3", "x:[1]:floaty", "x:1x3:float32", "x:[a b]:float32"])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="x"):
        parse_input(text, unknown)


def test_a_part_computes_what_the_whole_does(tmp_path: Path) -> None:
    built = zoo.transformer()
    path, inputs = built.save(tmp_path)
    begin, end = built.model.graph.node[20].output[0], built.model.graph.node[30].output[0]
    order = [TensorSpec(begin)]
    with pytest.raises(InputError, match="unfed"):
        extract_part(path, order, [TensorSpec(end)])
    built = zoo.chain_cnn(10)
    path, inputs = built.save(tmp_path / "b")
    begin, end = built.model.graph.node[3].output[0], built.model.graph.node[7].output[0]
    part = extract_part(
        path, [TensorSpec(begin)], [TensorSpec(end)], values=True, data=[str(inputs)]
    )
    assert part.nodes == 4
    onnx.checker.check_model(part.model, full_check=True)
    session = ort.InferenceSession(part.model.SerializeToString())
    (answer,) = session.run(None, dict(part.inputs))
    np.testing.assert_allclose(answer, part.outputs[end], rtol=1e-5, atol=1e-6)


def test_auto_is_filled_from_a_run_where_inference_cannot_tell(tmp_path: Path) -> None:
    built = zoo.control_flow()
    path, _ = built.save(tmp_path)
    loop = next(n for n in built.model.graph.node if n.op_type == "Loop")
    names = [TensorSpec(name) for name in loop.input if name and name not in _constants(built)]
    part = extract_part(path, [*names, TensorSpec("x")], [TensorSpec(loop.output[0])])
    assert all(v.type.tensor_type.elem_type for v in part.model.graph.output)
    assert all(v.type.tensor_type.HasField("shape") for v in part.model.graph.output)


def test_free_dimensions_stay_free_and_can_be_fixed(tmp_path: Path) -> None:
    built = zoo.dynamic_shape()
    path, _ = built.save(tmp_path)
    begin = built.model.graph.node[0].output[0]
    whole = extract_part(path, [], [TensorSpec(begin)])
    dims = [d.dim_param for v in whole.model.graph.input for d in v.type.tensor_type.shape.dim]
    assert "batch" in dims
    name = whole.model.graph.input[0].name
    rank = len(whole.model.graph.input[0].type.tensor_type.shape.dim)
    fixed = extract_part(path, [TensorSpec(name, (2,) * rank, 1)], [TensorSpec(begin)])
    shape = fixed.model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in shape] == [2] * rank


def test_a_wrong_name_gets_the_nearest(tmp_path: Path) -> None:
    path, _ = zoo.chain_cnn(4).save(tmp_path)
    with pytest.raises(InputError, match="did you mean 'block0/Conv_output_0'"):
        extract_part(path, [], [TensorSpec("block0/Conv_output")])


def test_bodies_keep_what_they_capture(tmp_path: Path) -> None:
    built = zoo.control_flow()
    path, _ = built.save(tmp_path)
    part = extract_part(path, [], [])
    feeds = {v.name: built.feeds[v.name] for v in part.model.graph.input}
    session = ort.InferenceSession(part.model.SerializeToString())
    whole = ort.InferenceSession(str(path)).run(None, built.feeds)
    for a, b in zip(session.run(None, feeds), whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_inspect_shows_what_is_asked_for(tmp_path: Path) -> None:
    path, _ = zoo.control_flow().save(tmp_path)
    text = describe(path, ("nodes", "attrs", "weights", "taps", "cuts"))
    assert "[Op: Loop]" in text
    assert "body:" in text
    assert "Weight " in text
    assert "tensors can be tapped" in text
    assert "cut points" in text
    brief = describe(path)
    assert "Op:" not in brief
    assert "Input " in brief


def test_inspect_lets_no_name_make_a_line_or_colour(tmp_path: Path) -> None:
    built = zoo.chain_cnn(4)
    built.model.graph.node[0].name = "n\nNode 7 | fake\x1b[31m"
    path, _ = built.save(tmp_path)
    names = [node.name for node in built.model.graph.node][:2]
    fault = {"kind": "fusion", "nodes": names, "told": True}
    text = describe(path, ("nodes",)) + "\n"
    text += describe_engine(path, "planted", {"faults": [fault]})
    assert text.count(r"n\nNode 7 | fake\x1b[31m") >= 2
    assert "Kernel 0" in text
    assert "\x1b" not in text
    assert not any(line.startswith("Node 7 | fake") for line in text.split("\n"))


def test_inspect_names_types_and_free_dimensions(tmp_path: Path) -> None:
    path, _ = zoo.dynamic_shape().save(tmp_path)
    assert "(batch, seq" in describe(path)


def test_inspect_shows_an_engine(tmp_path: Path) -> None:
    path, _ = zoo.chain_cnn(4).save(tmp_path)
    text = describe_engine(path, "ort", {})
    assert "Engine ort" in text
    assert "kernels" in text or "does not say" in text
    faults = [{"kind": "fusion", "nodes": ["block0/Conv", "block0/Relu"], "told": True}]
    told = describe_engine(path, "planted", {"faults": faults})
    assert "Kernel 0: block0/Conv + block0/Relu" in told


def _constants(built: zoo.Built) -> set[str]:
    held = {t.name for t in built.model.graph.initializer}
    return held | {n.output[0] for n in built.model.graph.node if n.op_type == "Constant"}


def test_of_weights_outside_only_those_of_the_part_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 64] x) => (float[2, 64] z)
        {
            a = MatMul(x, v)
            b = MatMul(a, w)
            z = Add(b, b)
        }
    """)
    weights = {n: np.random.default_rng(0).random((64, 64), np.float32) for n in "vw"}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    read: list[str] = []
    helper = onnx.external_data_helper
    load = helper.load_external_data_for_tensor

    def noted(tensor: onnx.TensorProto, folder: str, *more: object) -> None:
        read.append(tensor.name)
        load(tensor, folder, *more)

    monkeypatch.setattr(helper, "load_external_data_for_tensor", noted)
    part = extract_part(tmp_path / "m.onnx", [TensorSpec("a")], [TensorSpec("b")])
    assert read == ["w"]
    (kept,) = part.model.graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(kept), weights["w"])
