"""Operators that onnx2fx once got wrong, held against the node tests that come with onnx.

A refusal is fine; a wrong answer is not, unless it is one of those that are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import EngineFailure, InputError

pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("onnx2fx", reason="needs the extra torch")
pytestmark = [pytest.mark.torch, pytest.mark.engines, pytest.mark.slow]

# Where onnx2fx 0.0.1 was found wrong, and their neighbours; all 1386 take too long.
LOOKED_AT = (
    "test_batchnorm", "test_convinteger", "test_cumsum", "test_eyelike", "test_quantizelinear",
    "test_dynamicquantizelinear", "test_qlinear", "test_resize", "test_spacetodepth",
    "test_wrap_pad",
)  # fmt: skip
ANOTHER_TYPE = {
    "test_cumsum_1d_int32_exclusive", "test_cumsum_2d_int32",
}  # fmt: skip
KNOWN = {
    "test_resize_downsample_scales_cubic", "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear", "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_sizes_linear_pytorch_half_pixel",
}  # fmt: skip


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("torch"), timeout=60.0) as made:
        yield made


def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    return [
        case
        for case in collect_testcases(None)
        if case.name.startswith(LOOKED_AT) and "_expanded" not in case.name
    ]


def wrong(host: Host, case: Any, path: Path) -> bool:
    """Returns whether an answer came that is not the one of the test."""
    names = [each.name for each in case.model.graph.input]
    outputs = [each.name for each in case.model.graph.output]
    for given, wanted in case.data_sets:
        try:
            with host.build(path) as build:
                seen = build.run(dict(zip(names, given, strict=False)))
        except (EngineFailure, InputError):
            return False
        for name, value in zip(outputs, wanted, strict=False):
            if name in seen and isinstance(value, np.ndarray) and not alike(seen[name], value):
                return True
    return False


def alike(seen: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    if (seen.dtype, seen.shape) != (wanted.dtype, wanted.shape):
        return False
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    close = np.isclose(seen.astype(kind), wanted.astype(kind), 1e-3, 1e-5, equal_nan=True)
    return bool(close.all())


@pytest.mark.filterwarnings("ignore")
def test_no_operator_is_answered_wrongly_but_the_known_ones(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    answered = []
    for case in cases():
        onnx.save(case.model, path)
        if wrong(host, case, path):
            answered.append(case.name)
    assert set(answered) <= KNOWN | ANOTHER_TYPE
