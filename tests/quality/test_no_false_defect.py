"""A correct engine is never blamed: named kernels, every test model, every level and precision.

The short list runs with the core tests; the whole matrix is ``slow``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tapsect
from support import published
from support.build import Built, Net
from support.calibration import KERNELS
from support.zoo import ZOO
from tapsect.finding import Finding

LEVELS = ("disable", "basic", "extended", "all")
NARROW = ("fp16", "bf16")
CORE = ("all", *NARROW)
ROUNDING = f"{Path(__file__).parents[1] / 'support' / 'rounding_engine.py'}:RoundingEngine"
MODELS: Mapping[str, Callable[[], Built]] = {
    **{f"kernel: {name}": kernel.build for name, kernel in KERNELS.items()},
    **ZOO,
}
SHORT = (
    "kernel: erf near 0", "kernel: sigmoid saturated", "kernel: attention, additive -1e9 mask",
    "kernel: layer norm of constant rows", "kernel: conv dilated",
    "kernel: sort with exact ties", "kernel: Round within rounding of ties",
    "kernel: computed resize, linear", "kernel: QDQ network", "kernel: LSTM of 24 steps",
    "kernel: fp16 tensors, attention", "transformer", "residual", "control_flow", "strings",
    "sequences", "opset7",
)  # fmt: skip


def emulated(name: str) -> tuple[str, ...]:
    """Returns the narrow precisions in which a model stays right."""
    if not name.startswith("kernel: "):
        return NARROW
    return tuple(p for p in KERNELS[name.removeprefix("kernel: ")].emulated if p != "fp32")


def cases(values: Iterator[tuple[str, str]]) -> list[Any]:
    """Returns (model, level or precision) as parameters, all but the short list marked slow."""
    return [
        pytest.param(*v, marks=() if v[0] in SHORT and v[1] in CORE else pytest.mark.slow)
        for v in values
    ]


def bisect(
    built: Built, folder: Path, engine: str, options: Mapping[str, Any], **more: Any
) -> Finding:
    model, _ = built.save(folder)
    return tapsect.bisect(
        model, inputs=[built.feeds], engine=engine, engine_options=options,
        out=folder / "out", **more,
    )  # fmt: skip


def assert_no_defect(finding: Finding) -> None:
    assert finding.cause not in ("engine_defect", "reference_suspect"), finding.message
    assert not finding.culprit_nodes
    assert finding.minimal is None


# ``tests/e2e`` asks the same of each network at "all".
@pytest.mark.parametrize(
    ("name", "level"),
    cases((n, v) for n in MODELS for v in LEVELS if n not in ZOO or v != "all"),
)
def test_onnxruntime_agrees_at_each_level(name: str, level: str, tmp_path: Path) -> None:
    finding = bisect(MODELS[name](), tmp_path, "ort", {"graph_optimization_level": level})
    assert_no_defect(finding)
    assert finding.status == "agrees", finding.message


@pytest.mark.parametrize(("name", "precision"), cases((n, p) for n in MODELS for p in emulated(n)))
def test_rounding_that_was_stated_agrees(name: str, precision: str, tmp_path: Path) -> None:
    finding = bisect(
        MODELS[name](), tmp_path, ROUNDING, {"precision": precision}, precision=precision
    )
    assert_no_defect(finding)
    assert finding.status == "agrees", finding.message


@pytest.mark.parametrize(("name", "precision"), cases((n, p) for n in MODELS for p in emulated(n)))
def test_rounding_that_nobody_asked_for_is_a_precision_limit(
    name: str, precision: str, tmp_path: Path
) -> None:
    finding = bisect(MODELS[name](), tmp_path, ROUNDING, {"precision": precision})
    assert_no_defect(finding)
    if finding.status == "agrees":  # values that the narrow type holds, or saturated ones
        return
    assert finding.status == "diverges", finding.message
    assert finding.cause in ("precision_limit", "ill_conditioned"), finding.message


# -- beyond the range of the type ---------------------------------------------------------------


def overflowing() -> Built:
    """Returns a norm whose sum of squares lies beyond fp16."""
    net = Net()
    x = net.input("x", (4, 64), 100 * np.random.default_rng(0).standard_normal((4, 64)))
    square = net.op("Mul", net.op("Mul", x, net.const(2.0)), x)
    net.output(net.op("Tanh", net.op("ReduceSum", square, net.ints(1))), net.op("Neg", square))
    return net.build()


def one_number() -> Built:
    """Returns a norm whose one sum of squares lies beyond fp16: a single element is lost."""
    net = Net()
    x = net.input("x", (1, 64), 100 * np.random.default_rng(0).standard_normal((1, 64)))
    square = net.op("Mul", x, x)
    root = net.op("Sqrt", net.op("ReduceSum", square, net.ints(1)))
    net.output(net.op("Add", net.op("Tanh", x), net.op("Div", x, root)))
    return net.build()


@pytest.mark.parametrize("stated", [True, False])
def test_overflow_of_fp16_is_a_precision_limit(stated: bool, tmp_path: Path) -> None:
    more = {"precision": "fp16"} if stated else {}
    finding = bisect(overflowing(), tmp_path, ROUNDING, {"precision": "fp16"}, **more)
    assert (finding.status, finding.failure) == ("diverges", "nonfinite")
    assert finding.cause == "precision_limit", finding.message


def test_a_single_number_beyond_fp16_is_a_precision_limit(tmp_path: Path) -> None:
    finding = bisect(one_number(), tmp_path, ROUNDING, {"precision": "fp16"})
    assert finding.cause == "precision_limit", finding.message
    assert "its type cannot hold the value" in finding.message


# -- published models ---------------------------------------------------------------------------


@pytest.mark.published
@pytest.mark.parametrize("name", list(published.PUBLISHED))
def test_published_model_agrees(name: str, tmp_path: Path) -> None:
    built = published.built(name)
    if built is None:
        pytest.skip("no network and nothing cached")
    finding = bisect(built, tmp_path, "ort", {"graph_optimization_level": "all"})
    assert_no_defect(finding)
    assert finding.status == "agrees", finding.message


@pytest.mark.published
def test_detector_on_noise_agrees_though_it_differs_by_more_than_a_percent(tmp_path: Path) -> None:
    name = "ch_PP-OCRv4_det_infer"
    path = published.model(name)
    if path is None:
        pytest.skip("no network and nothing cached")
    noise = Built(onnx.load(path), published.sample(name, scene="noise"))
    finding = bisect(noise, tmp_path, "ort", {"graph_optimization_level": "all"})
    assert (finding.status, finding.cause) == ("agrees", "ill_conditioned"), finding.message
    assert max(o.rel_rms or 0.0 for o in finding.outputs) > 0.01


def rounded_models() -> list[Any]:
    """Returns every published model with each narrow precision."""
    return [pytest.param(n, p) for n in published.PUBLISHED for p in NARROW]


@pytest.mark.published
@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("name", list(published.PUBLISHED))
def test_published_model_rounded_has_no_defect(name: str, precision: str, tmp_path: Path) -> None:
    built = published.built(name)
    if built is None:
        pytest.skip("no network and nothing cached")
    finding = bisect(built, tmp_path, ROUNDING, {"precision": precision}, precision=precision)
    if finding.culprit_nodes:  # a number that the type cannot hold, and where
        assert finding.cause == "precision_limit", finding.message
        assert finding.first_divergence is not None
        assert "non-finite on one side" in finding.first_divergence.note
    else:
        assert_no_defect(finding)


@pytest.mark.published
@pytest.mark.parametrize(("name", "precision"), rounded_models())
def test_published_model_rounded_agrees(name: str, precision: str, tmp_path: Path) -> None:
    built = published.built(name)
    if built is None:
        pytest.skip("no network and nothing cached")
    finding = bisect(built, tmp_path, ROUNDING, {"precision": precision}, precision=precision)
    assert finding.status == "agrees" or finding.cause == "precision_limit", finding.message


def test_a_nan_on_both_sides_agrees_and_is_named(tmp_path: Path) -> None:
    net = Net()
    root = net.op("Sqrt", net.op("Identity", net.input("x", (1, 3), [[4.0, -1.0, 9.0]])))
    net.output(net.op("Mul", root, net.const(2.0)))
    finding = bisect(net.build(), tmp_path, "ort", {"graph_optimization_level": "all"})
    assert finding.status == "agrees", finding.message
    assert any(repr(root) in note for note in finding.notes)
