"""Weights of large models go from file to file: never into a message, never twice."""

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from debugtaps import load_array, load_graph
from debugtaps import reading as debugtaps_reading
from debugtaps.errors import ModelError
from debugtaps.slimming import slimmed

WEIGHTS = {f"w{n}": np.random.default_rng(n).random((64, 64), np.float32) for n in range(3)}


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debugtaps_reading, "LARGE", 0)


def save(folder: Path, model: onnx.ModelProto | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "m.onnx").write_bytes((model or plain()).SerializeToString())
    return folder / "m.onnx"


def plain() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"], name=f"n{n}")
        for n in range(3)
    ]
    kept = [numpy_helper.from_array(np.array(2, np.float32), "two"), helper.make_tensor(
        "listed", TensorProto.FLOAT, [600], list(range(600)))]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x0", 1, [2, 64])],
        [helper.make_tensor_value_info("x3", 1, [2, 64])],
        [*(numpy_helper.from_array(w, n) for n, w in WEIGHTS.items()), *kept],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, {"who": "a test"})
    return made


def test_the_model_is_the_same_but_for_where_its_weights_lie(tmp_path: Path) -> None:
    path = save(tmp_path / "given")
    slim = slimmed(path, tmp_path, "weights.bin")
    assert slim is not None
    assert slim.ByteSize() < 8000
    assert {t.name for t in slim.graph.initializer if t.data_location == TensorProto.EXTERNAL} == {
        *WEIGHTS
    }
    onnx.external_data_helper.load_external_data_for_model(slim, str(tmp_path))
    for tensor in slim.graph.initializer:
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    assert slim == onnx.load(path)
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["weights.bin"]


def test_a_graph_reads_them_and_leaves_the_given_folder_alone(tmp_path: Path) -> None:
    path = save(tmp_path / "given")
    graph = load_graph(path, tmp_path / "work")
    for name, weight in WEIGHTS.items():
        constant = graph.constants[name]
        assert isinstance(constant, TensorProto)
        np.testing.assert_array_equal(load_array(constant, graph.folder), weight)
    assert [each.name for each in path.parent.iterdir()] == ["m.onnx"]


def test_weights_that_are_too_short_are_told_as_ever(tmp_path: Path) -> None:
    model = plain()
    model.graph.initializer[1].raw_data = model.graph.initializer[1].raw_data[:-4]
    with pytest.raises(ModelError, match="'w1' holds 16380 bytes, too small.*16384"):
        load_graph(save(tmp_path / "given", model), tmp_path / "work")


@pytest.mark.parametrize("cut", [0.3, 0.999])
def test_a_torn_file_is_told_as_ever(tmp_path: Path, cut: float) -> None:
    path = save(tmp_path / "given")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(cut * len(whole))])
    with pytest.raises(ModelError, match="is not an ONNX model, or is truncated"):
        load_graph(path, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_weights_of_the_user_may_bear_a_name_like_ours(tmp_path: Path) -> None:
    path, weight = save(tmp_path / "given"), WEIGHTS["w0"]
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights-of-mine.bin")
    graph = load_graph(path, tmp_path / "work")
    constant = graph.constants["w0"]
    assert isinstance(constant, TensorProto)
    np.testing.assert_array_equal(load_array(constant, graph.folder), weight)


def test_weights_do_not_pass_through_memory(tmp_path: Path) -> None:
    model = plain()
    wide = np.zeros((2048, 2048), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(wide, "wide"))
    path = save(tmp_path / "given", model)
    tracemalloc.start()
    try:
        slim = slimmed(path, tmp_path, "weights.bin")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert slim is not None
    assert slim.ByteSize() < 8000
    assert peak <= 1.1 * wide.nbytes  # a piece at a time, which is no larger than 16 MiB
