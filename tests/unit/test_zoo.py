"""Every model of the zoo is valid, runs at both ends of ONNX Runtime's optimiser, and agrees."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from debugtaps.store import read_npz
from support import zoo
from support.rounding_engine import UNIT_ROUNDOFF, RoundingEngine, emulate

LEVELS = {
    "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
SPEC_ONLY = sorted(set(zoo.ZOO) - {"contrib"})


def run(model: onnx.ModelProto, feeds: dict[str, zoo.Array], level: str) -> list[zoo.Array]:
    """Returns the outputs of ``model`` at an optimisation level (node names made unique)."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    for i, node in enumerate(proto.graph.node):
        node.name = f"{node.name}#{i}"
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def error(got: zoo.Array, want: zoo.Array) -> float:
    """Returns the rms error over the rms of ``want``."""
    rms = float(np.sqrt(np.mean(np.square(want, dtype=np.float64)))) or 1.0
    return float(np.sqrt(np.mean(np.square(got.astype(np.float64) - want)))) / rms


@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_runs_at_both_levels_and_stays_near_one(name: str) -> None:
    built = zoo.ZOO[name]()
    off, best = (run(built.model, built.feeds, level) for level in ("off", "all"))
    for a, b in zip(off, best, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.dtype.kind == "f" and name not in zoo.RANDOM:
            assert np.isfinite(a).all()
            assert np.abs(a).max(initial=0) < 100
            assert a.size == 0 or error(b, a) < (0.02 if name == "qdq_int8" else 1e-5)


@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_passes_the_checker(name: str) -> None:
    built = zoo.ZOO[name]()
    if name in ("duplicate_names", "missing_names", "empty_names"):
        assert len(set(built.names)) < len(built.names)
    onnx.checker.check_model(built.model, full_check=name in SPEC_ONLY)


@pytest.mark.parametrize("name", sorted(zoo.NETWORKS))
def test_names_are_unique_and_order_is_topological(name: str) -> None:
    model = zoo.NETWORKS[name]().model
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert all(names)
    known = {t.name for t in model.graph.initializer} | {i.name for i in model.graph.input} | {""}
    for node in model.graph.node:
        assert known.issuperset(node.input)
        known.update(node.output)


@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_same_call_gives_the_same_bytes(name: str) -> None:
    first, second = (zoo.ZOO[name]().model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("nodes", [100, 600, 3000])
def test_transformers_have_the_size_asked_for(nodes: int) -> None:
    assert abs(len(zoo.transformer_nodes(nodes).model.graph.node) - nodes) <= 26


def test_every_activation_of_a_deep_transformer_stays_near_one() -> None:
    built = zoo.transformer_nodes(600)
    model = onnx.ModelProto()
    model.CopyFrom(built.model)
    have = {o.name for o in model.graph.output}
    model.graph.output.extend(i for i in model.graph.value_info if i.name not in have)
    for values in run(model, built.feeds, "off"):
        assert np.abs(values).max() < 100


@pytest.mark.parametrize("version", list(zoo.OPSETS))
def test_opset_models_carry_the_ir_version_of_their_release(version: int) -> None:
    model = zoo.opset(version).model
    assert [o.version for o in model.opset_import] == [version]
    assert 3 <= model.ir_version <= 11


@pytest.mark.parametrize("name", ["chain_cnn", "residual", "u_shaped", "transformer", "recurrent"])
def test_fp16_models_run_and_stay_within_fp16(name: str) -> None:
    built = zoo.ZOO[name]()
    narrow = zoo.to_float16(built)
    onnx.checker.check_model(narrow.model, full_check=True)
    for got, want in zip(
        run(narrow.model, narrow.feeds, "off"), run(built.model, built.feeds, "off"), strict=True
    ):
        assert got.dtype == np.float16
        assert 1e-5 < error(got, want) < 0.05


@pytest.mark.parametrize("name", ["attention", "transformer"])
def test_bf16_models_are_valid(name: str) -> None:
    built = zoo.ZOO[name]()
    narrow = zoo.to_narrow(built, "bf16")
    onnx.checker.check_model(narrow.model, full_check=True)
    assert any(t.data_type == onnx.TensorProto.BFLOAT16 for t in narrow.model.graph.initializer)


def test_runtime_refuses_duplicate_names_so_a_tool_must_rename() -> None:
    model = zoo.duplicate_names().model
    with pytest.raises(Exception, match="same node name"):
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_function_bodies_run_in_the_reference_evaluator_too() -> None:
    built = zoo.local_function()
    (want,) = run(built.model, built.feeds, "off")
    (got,) = ReferenceEvaluator(built.model).run(None, built.feeds)
    assert error(np.asarray(got), want) < 1e-6


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", sorted({*zoo.ODD, *zoo.OPSET_MODELS}))
def test_rounding_survives_every_oddity(name: str, precision: str) -> None:
    built = zoo.ZOO[name]()
    rounded = emulate(built.model, precision)
    for got, want in zip(
        run(rounded, built.feeds, "off"), run(built.model, built.feeds, "off"), strict=True
    ):
        assert got.shape == want.shape
        assert got.dtype == want.dtype


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", sorted(zoo.NETWORKS))
def test_rounded_twins_run_and_differ_by_rounding_only(name: str, precision: str) -> None:
    built = zoo.NETWORKS[name]()
    rounded = emulate(built.model, precision)
    onnx.checker.check_model(rounded)
    names = {o.name for o in built.model.graph.output}
    assert names == {o.name for o in rounded.graph.output}
    for level in ("off", "all"):
        for got, want in zip(
            run(rounded, built.feeds, level), run(built.model, built.feeds, "off"), strict=True
        ):
            assert got.dtype == want.dtype
            if want.dtype.kind == "f":
                assert error(got, want) < 60 * UNIT_ROUNDOFF[precision]
                assert error(got, want) > 0


@pytest.mark.parametrize("version", [7, 11, 12])
def test_bf16_rounding_is_right_where_cast_does_not_know_it(version: int) -> None:
    old = zoo.opset(version)
    (value,) = run(emulate(old.model, "bf16"), old.feeds, "all")
    assert np.array_equal(value, value.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert 0 < error(value, run(old.model, old.feeds, "off")[0]) < 0.05


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_rounding_engine_returns_outputs_and_taps(
    tmp_path: Path, precision: str, external: bool
) -> None:
    built = zoo.transformer(1)
    tap = "layer0/attention/Softmax_output_0"
    promoted = onnx.ModelProto()
    promoted.CopyFrom(built.model)
    promoted.graph.output.extend(i for i in promoted.graph.value_info if i.name == tap)
    path, _ = zoo.Built(promoted, built.feeds).save(tmp_path, external=external)
    session = RoundingEngine(precision).build(path, [tap])
    answer = session.run({**built.feeds, "not of the model": np.zeros(1)})
    assert set(answer) == {"classifier/Add_output_0", tap}
    kept = answer[tap]
    if precision == "fp16":
        assert np.array_equal(kept, kept.astype(np.float16).astype(np.float32))
    session.close()


@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_every_sample_can_be_written_and_read(name: str, tmp_path: Path) -> None:
    built = zoo.ZOO[name]()
    _, inputs = built.save(tmp_path)
    assert set(read_npz(inputs)) == set(built.feeds)


def test_external_weights_lie_beside_the_model(tmp_path: Path) -> None:
    path, inputs = zoo.external_weights(tmp_path)
    assert path.stat().st_size < (tmp_path / "model.weights").stat().st_size
    with np.load(inputs) as feeds:
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (got,) = session.run(None, dict(feeds))
    assert got.shape == (1, 5)
