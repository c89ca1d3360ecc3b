"""Widened models compute in float32; the casts that a model writes still round."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from debugtaps import Host, doubled, extract, load_array, load_graph, resolve, save, widen
from support.build import Built, Net
from support.memory import Peak, held
from support.zoo import residual, to_narrow, transformer


def run(built: Built, folder: Path, *, wide: bool) -> dict[str, np.ndarray]:
    model, _ = built.save(folder)
    graph = load_graph(model, folder / "work")
    graph = widen(graph) if wide else graph
    path = save(
        extract(graph, range(len(graph.nodes)), list(graph.outputs)), folder / "work" / "m.onnx"
    )
    feeds = {
        k: v.astype(np.float32) if wide and v.dtype == np.float16 else v
        for k, v in built.feeds.items()
    }
    with Host(resolve("ort-reference", {})) as host:
        return dict(host.build(path).run(feeds))


@pytest.mark.parametrize("builder", [residual, transformer])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_no_narrow_tensor_is_left(builder: object, precision: str, tmp_path: Path) -> None:
    built = to_narrow(builder(), precision)  # type: ignore[operator]
    model, _ = built.save(tmp_path)
    wide = widen(load_graph(model, tmp_path / "work"))
    narrow = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    assert not narrow & {t.elem for t in wide.types.values()}
    made = extract(wide, range(len(wide.nodes)), list(wide.outputs))
    assert not narrow & {t.data_type for t in made.graph.initializer}
    onnx.checker.check_model(save(made, tmp_path / "work" / "wide.onnx").as_posix())


def test_widened_values_are_those_of_the_narrow_weights(tmp_path: Path) -> None:
    built = to_narrow(residual(1), "fp16")
    narrow, wide = (run(built, tmp_path / str(w), wide=w) for w in (False, True))
    for name, value in wide.items():
        assert value.dtype == np.float32
        size = np.sqrt(np.mean(np.square(value)))
        np.testing.assert_allclose(narrow[name].astype(np.float32), value, atol=1e-2 * size)


def test_a_cast_that_the_model_writes_still_rounds(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (1, 3), [[1.0001, 2.0003, 3.0007]])
    half = net.op("Cast", x, to=TensorProto.FLOAT16)
    net.output(net.op("Cast", net.op("Neg", half), to=TensorProto.FLOAT))
    (got,) = run(net.build(), tmp_path, wide=True).values()
    want = -np.array([[1.0001, 2.0003, 3.0007]], np.float16).astype(np.float32)
    np.testing.assert_array_equal(got, want)


def test_a_model_without_narrow_floats_is_left_alone(tmp_path: Path) -> None:
    model, _ = residual(1).save(tmp_path)
    graph = load_graph(model, tmp_path / "work")
    assert widen(graph) is graph


def test_one_operator_in_double(tmp_path: Path) -> None:
    net = Net()
    y = net.op("MatMul", net.op("Relu", net.input("x", (2, 3))), net.const(np.eye(3)))
    net.output(net.op("Neg", y))
    model, _ = net.build().save(tmp_path)
    graph = load_graph(model, tmp_path / "work")
    wide = doubled(graph, 1)
    assert wide is not None
    assert {wide.elem(t) for t in graph.nodes[1].reads} == {TensorProto.DOUBLE}
    assert wide.elem("x") == TensorProto.FLOAT
    assert doubled(graph, 1, keep=graph.nodes[1].writes) is None


def test_one_widened_weight_is_held_at_a_time(tmp_path: Path) -> None:
    net, side = Net(), 1024
    x = net.input("x", (1, side), dtype=np.float16)
    weights = [net.const(np.full((side, side), n), np.float16) for n in range(1, 13)]
    for weight in weights:
        x = net.op("MatMul", x, weight)
    net.output(x)
    model, _ = net.build().save(tmp_path)
    graph = load_graph(model, tmp_path / "work")
    before = held(os.getpid())
    peak = Peak(os.getpid(), interval=0.002)
    wide = widen(graph)
    peak.stop()
    for n, weight in enumerate(weights, start=1):
        constant = wide.constants[weight]
        assert isinstance(constant, TensorProto)
        values = load_array(constant, wide.folder)
        assert values.dtype == np.float32
        assert values.shape == (side, side)
        assert (values == n).all()
    assert peak.megabytes < before + 24  # of 48
