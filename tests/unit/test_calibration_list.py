"""The named list of correct kernels is valid and is correct in every precision it claims."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from support.calibration import KERNELS
from support.rounding_engine import emulate

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], level: str) -> list[np.ndarray]:
    """Returns the outputs at an optimisation level."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_valid_and_runs_at_each_level(name: str) -> None:
    kernel = KERNELS[name]
    built = kernel.build()
    onnx.checker.check_model(built.model, full_check=True)
    want, *others = (run(built.model, built.feeds, level) for level in LEVELS)
    for got in others:
        assert [g.shape for g in got] == [w.shape for w in want]
        assert [g.dtype for g in got] == [w.dtype for w in want]
    assert any(np.isfinite(w.astype(np.float64)).all() for w in want)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_runs_in_every_precision_it_claims(name: str) -> None:
    kernel = KERNELS[name]
    built = kernel.build()
    want = run(built.model, built.feeds, LEVELS[0])
    for precision in set(kernel.emulated) - {"fp32"}:
        got = run(emulate(built.model, precision), built.feeds, LEVELS[0])
        for g, w in zip(got, want, strict=True):
            assert name == "non-maximum suppression" or g.shape == w.shape
            assert not (np.isnan(g) & ~np.isnan(w)).any() if g.dtype.kind == "f" else True
