"""Nodes to keep in fp32: an overflow on an engine that really computes in fp16, and bf16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from support import coarse_engine
from tapsect import bisect
from tapsect.axes.precision import mixed, needed
from tapsect.diagnose.given import Fixing

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 16] x) => (float[4, 16] y) <float large = {4000}, float small = {0.00005}> {
    a = Tanh(x)
    b = MatMul(a, w)
    c = Mul(b, large)
    d = Mul(c, small)
    e = Relu(d)
    y = MatMul(e, w)
}
"""


def original(scale: float = 10.0) -> onnx.ModelProto:
    """Returns a model whose ``c`` is beyond fp16, and whose ends are not."""
    model = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((16, 16)) * scale
    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "w"))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def casts(model: onnx.ModelProto) -> list[str]:
    return [node.input[0] for node in model.graph.node if node.op_type == "Cast"]


def test_between_nodes_that_stay_nothing_passes_through_fp16() -> None:
    made = mixed(original(), ["c", "d"], ["x", "y"]).model
    onnx.checker.check_model(made, full_check=True)  # sorted, too
    half = mixed(original(), [], ["x", "y"]).model
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)}
    with np.errstate(all="ignore"):
        right, kept, lost = (
            list(ReferenceEvaluator(m).run(None, feeds))[0] for m in (original(), made, half)
        )
    assert np.abs(kept - right).max() < 0.02 * np.abs(right).max()
    assert not np.isfinite(lost).all()
    assert "c" not in casts(made)


def test_with_all_nodes_kept_it_computes_what_the_original_does() -> None:
    """Neither constants of nodes, nor casts, nor outputs pass through fp16 then."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x, int64[4] n) => (float[4] y, float[4] z) {
        third = Constant <value = float {0.33333334}> ()
        count = Cast <to = 1> (n)
        a = Mul(x, third)
        y = Add(a, count)
        z = Mul(y, third)
    }
    """
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.output[0]
    made = mixed(model, ["a", "y", "z"], ["x", "y", "z"]).model
    onnx.checker.check_model(made, full_check=True)
    feeds = {"x": np.array([0.1, 0.7, 1, 3], np.float32), "n": np.array([2049, 1, 2, 3])}
    right, kept = (ReferenceEvaluator(m).run(None, feeds) for m in (model, made))
    np.testing.assert_array_equal(right, kept)


def test_a_body_that_reads_a_kept_tensor_still_can() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x, bool c) => (float[4] y) {
        a = Exp(x)
        i = If (c) <
            then_branch = then () => (float[4] t) { t = Tanh(a) },
            else_branch = other () => (float[4] e) { e = Relu(a) }
        >
        y = Exp(i)
    }
    """
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.output[0]
    made = mixed(model, ["a", "y"], ["x", "y"]).model
    feeds = {"x": np.array([0.1, 0.7, 1, 3], np.float32), "c": np.array(True)}
    right, kept = (
        ort.InferenceSession(m.SerializeToString()).run(None, feeds)[0] for m in (model, made)
    )
    np.testing.assert_allclose(kept, right, rtol=2e-3)


def test_inputs_and_outputs_are_of_the_type_that_is_asked_for() -> None:
    for wide, kind in ((["x", "y"], TensorProto.FLOAT), ([], TensorProto.FLOAT16)):
        graph = mixed(original(), ["c"], wide).model.graph
        assert {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)} == {kind}


def test_weights_that_fp16_cannot_hold_are_named() -> None:
    assert mixed(original(), [], ["x", "y"]).clamped == ()
    assert mixed(original(scale=1e6), [], ["x", "y"]).clamped == ("w",)


def test_the_likeliest_nodes_are_tried_first() -> None:
    asked: list[tuple[str, ...]] = []

    def good(some: tuple[str, ...]) -> bool:
        asked.append(some)
        return {"n2", "n5"} <= set(some)

    assert needed([f"n{k}" for k in range(64)], good) == ("n2", "n5")
    assert [len(some) for some in asked[:5]] == [64, 1, 2, 4, 8]
    assert needed(["n0", "n1"], lambda _: False) is None


def test_an_overflow_is_cured_by_the_two_nodes_around_it(tmp_path: Path) -> None:
    onnx.save(original(), tmp_path / "full.onnx")
    onnx.save(mixed(original(), [], ["x", "y"]).model, tmp_path / "half.onnx")
    finding = bisect(
        tmp_path / "half.onnx", engine="onnx", reference_model=tmp_path / "full.onnx",
        out=tmp_path / "out", fixing=Fixing(thorough=True, precision_set=True),
    )  # fmt: skip
    (fix,) = [each for each in finding.fixes if each.kind == "precision"]
    assert fix.setting == "fixed/mixed.onnx with c, d in fp32"
    assert fix.error_after is not None
    assert fix.error_after < 0.02
    assert fix.latency_after is not None
    step = next(s for s in finding.trail if s.step == "precision")
    assert "1 region(s)" in step.why
    written = onnx.load(tmp_path / "out" / "fixed" / "mixed.onnx")
    assert "c" not in casts(written)


def test_where_time_is_up_nothing_is_claimed_of_nodes_that_were_not_tried(tmp_path: Path) -> None:
    onnx.save(original(), tmp_path / "full.onnx")
    onnx.save(mixed(original(), [], ["x", "y"]).model, tmp_path / "half.onnx")
    finding = bisect(
        tmp_path / "half.onnx", engine="onnx", reference_model=tmp_path / "full.onnx",
        out=tmp_path / "out", budget=1e-6, fixing=Fixing(thorough=True, precision_set=True),
    )  # fmt: skip
    step = next(s for s in finding.trail if s.step == "precision")
    assert (step.decision, finding.fixes) == ("time was up", ())
    assert "no set of nodes was tried" in step.why


def test_without_the_original_it_says_what_to_give(tmp_path: Path) -> None:
    onnx.save(mixed(original(), [], ["x", "y"]).model, tmp_path / "half.onnx")
    finding = bisect(
        tmp_path / "half.onnx", engine="onnx", out=tmp_path / "out",
        fixing=Fixing(thorough=True, precision_set=True),
    )  # fmt: skip
    step = next(s for s in finding.trail if s.step == "precision")
    assert step.decision == "needs the fp32 original"
    assert "--reference-model" in step.why


def test_an_engine_that_takes_names_keeps_the_one_node_that_cancels(tmp_path: Path) -> None:
    """``b`` is large and its parts cancel in ``c``: in bf16 it makes nearly all of the error."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[8, 8] x) => (float[8, 8] y) <float large = {50}> {
        a = Tanh(x)
        b = Add(a, large)
        c = Sub(b, large)
        d = Softplus(c)
        e = Exp(d)
        y = Sqrt(e)
    }
    """
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.save(model, tmp_path / "m.onnx")
    finding = bisect(
        tmp_path / "m.onnx", engine=f"{coarse_engine.__file__}:Coarse", out=tmp_path / "out",
        fixing=Fixing(thorough=True),
    )  # fmt: skip
    assert finding.cause == "precision_limit"
    last = finding.fixes[-1]
    assert (last.kind, last.setting) == ("precision", "f32_nodes=b")
    assert last.error_before is not None
    assert last.error_after is not None
    assert last.error_after < last.error_before / 2
    assert not last.cures
    told = [s.decision for s in finding.trail if s.step == "precision"]
    assert told == [
        "no small set does: keeping 6 of 6 nodes in fp32 cures",
        "keeping 1 of 6 nodes in fp32 halves the error",
    ]
