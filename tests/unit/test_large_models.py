"""Weights of large models go from file to file: never into a message, never twice."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tapsect
from debugtaps import Host, load_array, load_graph, resolve, write_npz
from debugtaps import reading as debugtaps_reading
from debugtaps.errors import ModelError
from debugtaps.slimming import slimmed
from support.memory import Peak
from tapsect.replay import light

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


@pytest.mark.parametrize(("least", "spec", "turned"), [
    (0, "ort-reference", True), (1 << 30, "ort-reference", False), (0, "onnx", False),
])  # fmt: skip
def test_a_reference_maps_heavy_weights_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, spec: str, turned: bool
) -> None:
    path = save(tmp_path / "given")
    load_graph(path, tmp_path / "work")
    monkeypatch.setattr(light, "HEAVY", least)
    feeds = {"x0": np.ones((2, 64), np.float32)}
    with Host(resolve(spec, {})) as host:
        light.lighten(host, tmp_path / "work")
        assert ("session_config" in host.spec.options) is turned
        shown = host.build(path).run(feeds)["x3"]
    right = feeds["x0"]
    for weight in WEIGHTS.values():
        right = right @ weight
    np.testing.assert_allclose(shown, right, rtol=1e-5)


@pytest.mark.slow
def test_a_model_beyond_two_gibibytes_is_bisected_within_its_own_size(tmp_path: Path) -> None:
    nodes, weights, size = [], [], 4096 * 4096 * 4
    row = np.random.default_rng(0).standard_normal((4096, 4096), np.float32) / np.float32(64)
    with (tmp_path / "model.data").open("wb") as file:
        for n in range(34):
            tensor = TensorProto(name=f"w{n}", data_type=1, dims=[4096, 4096])
            tensor.raw_data = b"elsewhere"
            onnx.external_data_helper.set_external_data(tensor, "model.data", n * size, size)
            tensor.ClearField("raw_data")
            weights.append(tensor)
            file.write(np.roll(row, n, axis=1).tobytes())
            read = f"t{n - 1}" if n else "x"
            nodes.append(helper.make_node("MatMul", [read, f"w{n}"], [f"m{n}"], name=f"product{n}"))
            nodes.append(helper.make_node("Tanh", [f"m{n}"], [f"t{n}"], name=f"tanh{n}"))
    ends = [helper.make_tensor_value_info(name, 1, [2, 4096]) for name in ("x", "t33")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "model.onnx",
    )
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
    fault = [{"kind": "value", "nodes": ["product20"], "scale": 1.05}]
    peak = Peak(os.getpid(), interval=0.2)
    found = tapsect.bisect(
        tmp_path / "model.onnx", inputs=[{"x": row[:2]}], engine="planted",
        engine_options={"faults": fault}, out=tmp_path / "out", budget=0,
    )  # fmt: skip
    peak.stop()
    assert found.culprit_nodes == ("product20",)
    assert {n: (tmp_path / n).stat().st_mtime_ns for n in before} == before
    assert {each.name for each in tmp_path.iterdir()} == {*before, "out"}
    # The engine holds the model once; nobody else does.
    assert 0 < peak.megabytes < (34 * size >> 20) + 700


@pytest.mark.slow
def test_activations_larger_than_the_tap_memory_are_bisected_within_it(tmp_path: Path) -> None:
    """300 MB are for two workers and the command; 540 MB of tensors are never held together."""
    channels, side, count = 64, 128, 40
    random, nodes, kernels = np.random.default_rng(0), [], []
    for n in range(count):
        kernel = random.standard_normal((channels, 1, 3, 3), np.float32) / np.float32(3)
        kernels.append(numpy_helper.from_array(kernel, f"w{n}"))
        read = [f"t{n - 1}" if n else "x", f"w{n}"]
        nodes.append(helper.make_node(
            "Conv", read, [f"c{n}"], name=f"conv{n}", group=channels, pads=[1, 1, 1, 1]
        ))  # fmt: skip
        nodes.append(helper.make_node("Tanh", [f"c{n}"], [f"t{n}"], name=f"tanh{n}"))
    nodes.append(helper.make_node("GlobalAveragePool", [f"t{count - 1}"], ["y"], name="mean"))
    ends = [helper.make_tensor_value_info("x", 1, [1, channels, side, side]),
            helper.make_tensor_value_info("y", 1, [1, channels, 1, 1])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], kernels)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "model.onnx",
    )
    x = random.standard_normal((1, channels, side, side), np.float32)
    write_npz(tmp_path / "x.npz", {"x": x})
    faults = json.dumps([{"kind": "value", "nodes": ["conv20"], "scale": 1.05}])
    command = [
        sys.executable, "-m", "tapsect", "bisect", "model.onnx", "--inputs", "x.npz",
        "--engine", "planted", "--engine-option", f"faults={faults}", "--tap-memory", "64MB",
        "--budget", "0", "--out", "out", "--quiet",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path)
    peak = Peak(process.pid)
    assert process.wait() == 1
    peak.stop()
    found = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert found["culprit_nodes"] == ["conv20"]
    assert 0 < peak.megabytes < (tmp_path / "model.onnx").stat().st_size / 2**20 + 64 + 300
    assert not [each for each in (tmp_path / "out").iterdir() if each.name in (".work", ".probes")]
