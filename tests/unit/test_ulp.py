"""How many representable numbers lie between two values, in every float type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugtaps import measure_fully, ulp_distance, unit_roundoff

NARROW = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
BITS: dict[Any, Any] = {np.float16: np.uint16, np.float32: np.uint32, np.float64: np.uint64}
WIDE = [np.float16, np.float32, np.float64]


def steps(a: Any, b: Any, dtype: Any) -> int:
    found = ulp_distance(np.array([a], dtype), np.array([b], dtype))
    assert found is not None
    return int(found[0])


def ascending(dtype: Any) -> np.ndarray[Any, Any]:
    """Returns every finite number of a type once, in order; one zero only."""
    size = np.dtype(dtype).itemsize
    every = np.arange(1 << 8 * size, dtype=np.uint32).astype(f"u{size}").view(dtype)
    with np.errstate(invalid="ignore"):
        wide = every.astype(np.float64)
    return np.unique(wide[np.isfinite(wide)]).astype(dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_neighbours_are_one_apart_over_the_whole_type(dtype: Any) -> None:
    numbers = ascending(dtype)
    found = ulp_distance(numbers[1:], numbers[:-1])
    assert found is not None
    assert (found == 1).all()


@pytest.mark.parametrize("dtype", WIDE)
@given(data=st.data())
def test_neighbours_are_one_apart(dtype: Any, data: st.DataObject) -> None:
    width = 8 * np.dtype(dtype).itemsize
    value = np.array(data.draw(st.floats(width=width, allow_nan=False, allow_infinity=False)))
    value = value.astype(dtype)
    with np.errstate(over="ignore"):
        above = np.nextafter(value, np.array(np.inf, dtype))
    assert steps(value, above, dtype) == 1
    assert steps(above, value, dtype) == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@given(data=st.data())
def test_distance_is_symmetric_and_adds_up_along_the_line(dtype: Any, data: st.DataObject) -> None:
    finite = st.floats(-1e4, 1e4)
    low, middle, high = sorted(data.draw(st.tuples(finite, finite, finite)))
    assert steps(low, high, dtype) == steps(high, low, dtype)
    assert steps(low, middle, dtype) + steps(middle, high, dtype) == steps(low, high, dtype)
    assert steps(low, low, dtype) == 0


@pytest.mark.parametrize(
    ("dtype", "tiny"),
    [(np.float16, 2.0**-24), (np.float32, 2.0**-149), (np.float64, 5e-324)],
)
def test_across_zero(dtype: Any, tiny: float) -> None:
    assert steps(-0.0, 0.0, dtype) == 0
    assert steps(-tiny, tiny, dtype) == 2
    assert steps(0.0, tiny, dtype) == steps(-tiny, 0.0, dtype) == 1


def test_the_ends_of_float64_do_not_overflow() -> None:
    top = np.finfo(np.float64).max
    assert steps(-top, top, np.float64) == 2 * 0x7FEFFFFFFFFFFFFF


def test_the_engines_type_counts() -> None:
    reference = np.array([1.0, 1.0 + 2.0**-12, 1e6, -1e6])
    engine = np.array([1.0 + 2.0**-10, 1.0, 65504, -65504], np.float16)
    found = ulp_distance(engine, reference)
    assert found is not None
    assert found.tolist() == [1, 0, 0, 0]
    eighth = ulp_distance(np.array([448.0], ml_dtypes.float8_e4m3fn), np.array([1e9]))
    assert eighth is not None
    assert eighth.tolist() == [0]


def test_integers_complex_and_what_has_no_steps() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    assert ulp_distance(ends, ends[::-1]).tolist() == [2**64 - 1] * 2  # type: ignore[union-attr]
    narrow = np.array([-8, 7], ml_dtypes.int4)
    assert ulp_distance(narrow, narrow[::-1]).tolist() == [15, 15]  # type: ignore[union-attr]
    unsigned = np.array([2**64 - 1], np.uint64)
    assert ulp_distance(unsigned, unsigned - 3).tolist() == [3]  # type: ignore[union-attr]
    turned = np.array([1 + 1j], np.complex64)
    other = np.array([1 + np.nextafter(np.float32(1), np.float32(2)) * 1j], np.complex64)
    assert ulp_distance(turned, other).tolist() == [1]  # type: ignore[union-attr]
    for a, b in ((["a"], ["b"]), ([True], [False]), ([1.0], [1]), ([1j], [1.0])):
        assert ulp_distance(np.array(a), np.array(b)) is None
    assert ulp_distance(unsigned, np.array([1])) is None


def test_scalars_empty_tensors_and_other_byte_orders() -> None:
    assert ulp_distance(np.array(1.0), np.array(1.0)).shape == ()  # type: ignore[union-attr]
    assert ulp_distance(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 3)  # type: ignore[union-attr]
    swapped = np.array([1.0], ">f4")
    assert ulp_distance(swapped, np.array([1.0], np.float32)).tolist() == [0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("dtype", "u"),
    [
        (np.float64, 2.0**-53),
        (np.float32, 2.0**-24),
        (np.float16, 2.0**-11),
        (np.complex64, 2.0**-24),
        (ml_dtypes.bfloat16, 2.0**-8),
        (ml_dtypes.float8_e5m2, 2.0**-3),
        (np.int32, 0.0),
        (ml_dtypes.int4, 0.0),
        (np.str_, 0.0),
    ],
)
def test_roundoff(dtype: Any, u: float) -> None:
    assert unit_roundoff(np.dtype(dtype)) == u


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_the_largest_distance_and_that_of_99_percent(dtype: Any) -> None:
    want = np.ones(1000, dtype)
    got = want.copy()
    got[:10] = np.array(2.0, dtype)
    mantissa = -int(np.log2(unit_roundoff(np.dtype(dtype)))) - 1
    metrics = measure_fully(got, want)
    assert (metrics.ulp_max, metrics.ulp_p99) == (2**mantissa, 0)
    got[:11] = np.array(2.0, dtype)
    assert measure_fully(got, want).ulp_p99 == 2**mantissa


def test_signalling_nans_warn_nobody() -> None:
    odd = np.array([0x7F81, 0x3F80], np.uint16).view(ml_dtypes.bfloat16)
    assert measure_fully(odd, odd).nonfinite_engine == 1


def test_distances_leave_non_finite_places_out() -> None:
    metrics = measure_fully(np.array([np.nan, 1.0]), np.array([1.0, 1.0]))
    assert (metrics.reason, metrics.ulp_max, metrics.mape) == ("nonfinite", 0, 0.0)
