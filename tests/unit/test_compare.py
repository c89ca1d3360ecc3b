"""Numbers of two tensors, and the tolerances of a user."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugtaps import InputError, Limits, Tolerance, mape, measure

FINITE = st.floats(-1e300, 1e300)


def test_equal_nonfinite_values_agree() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    metrics = measure(values, values.copy())
    assert metrics.reason == ""
    assert (metrics.nonfinite_engine, metrics.nonfinite_reference) == (3, 3)
    assert metrics.max_abs == 0


@pytest.mark.parametrize(
    ("got", "want"),
    [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (np.nan, np.inf), (np.inf, 1.0)],
)
def test_one_sided_nonfinite_values_are_counted_first(got: float, want: float) -> None:
    metrics = measure(np.array([got, 2.0]), np.array([want, 2.5]))
    assert metrics.reason == "nonfinite"
    assert metrics.nonfinite_differs == 1
    assert metrics.max_abs == 0.5


def test_shapes_and_types() -> None:
    assert measure(np.zeros((2, 1)), np.zeros((1, 2))).reason == "shape"
    other_type = measure(np.ones(2, np.float16), np.ones(2, np.float32))
    assert (other_type.reason, other_type.rms) == ("dtype", 0.0)
    assert measure(np.array(["a"]), np.array([1.0])).reason == "dtype"


def test_bfloat16_is_measured_in_float64() -> None:
    got = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert measure(got, np.array([1.0, 3.0], ml_dtypes.bfloat16)).max_abs == 1.0


def test_text_and_booleans_count_differences() -> None:
    words = measure(np.array(["a", "b"], object), np.array(["a", "c"], object))
    assert words.max_abs == 1.0
    assert measure(np.array([True]), np.array([False])).max_abs == 1.0
    assert measure(np.array(["a"], object), np.array(["a"])).max_abs == 0.0


def test_large_integers_keep_a_difference_of_one() -> None:
    big = np.array([2**62, 5], np.int64)
    assert measure(big, big).max_abs == 0
    assert measure(big + 1, big).max_abs != 0


def test_empty_tensors_agree() -> None:
    metrics = measure(np.zeros((0, 3)), np.zeros((0, 3)))
    assert (metrics.reason, metrics.rms, metrics.rel_rms) == ("", 0.0, 0.0)


def test_extremes_do_not_overflow() -> None:
    metrics = measure(np.array([1e300, -1e300]), np.array([1e300, 1e300]))
    assert metrics.rms is not None
    assert math.isclose(metrics.rms, 2e300 / math.sqrt(2))
    assert metrics.cosine == 0.0


@given(st.lists(FINITE, min_size=1, max_size=8), st.lists(FINITE, min_size=8, max_size=8))
def test_rms_lies_below_the_largest_error(a: list[float], b: list[float]) -> None:
    metrics = measure(np.array(a), np.array(b[: len(a)]))
    assert metrics.rms is not None
    assert metrics.max_abs is not None
    assert 0 <= metrics.rms <= metrics.max_abs * (1 + 1e-12)
    assert metrics.cosine is None or -1 - 1e-9 <= metrics.cosine <= 1 + 1e-9


def test_a_zero_reference_gives_an_infinite_relative_error() -> None:
    assert measure(np.ones(2), np.zeros(2)).rel_rms == math.inf


def test_an_element_must_exceed_both_tolerances() -> None:
    limits = Limits(atol=0.1, rtol=0.1)
    want = np.array([1.0, 100.0])
    assert limits.exceeded(np.array([1.0, 105.0]), want) is None  # relatively small
    assert limits.exceeded(np.array([1.09, 100.0]), want) is None  # absolutely small
    assert limits.exceeded(np.array([1.2, 100.0]), want) is not None


@pytest.mark.parametrize(("stat", "fails"), [("mean", False), ("median", False), ("max", True)])
def test_statistics(stat: str, fails: bool) -> None:
    want = np.ones(100)
    got = want.copy()
    got[0] = 1.5
    tolerance = Tolerance.parse(atol=["0.1"], rtol=["0.1"], check_error_stat=[stat])
    assert tolerance is not None
    assert (tolerance.exceeded("y", got, want) is not None) == fails


def test_quantiles() -> None:
    want, got = np.ones(100), np.ones(100)
    got[:10] = 2
    for share, fails in (("0.8", False), ("0.95", True)):
        tolerance = Tolerance.parse(check_error_stat=[f"y:quantile={share}"], atol=["0.1"])
        assert tolerance is not None
        assert (tolerance.exceeded("y", got, want) is not None) == fails


def test_nonfinite_and_shape_fail_whatever_is_allowed() -> None:
    limits = Limits(atol=math.inf, rtol=math.inf)
    assert limits.exceeded(np.array([np.nan]), np.array([np.nan])) is None
    assert "non-finite" in str(limits.exceeded(np.array([np.nan]), np.array([1.0])))
    assert "shape [1], expected [2]" in str(limits.exceeded(np.ones(1), np.ones(2)))


def test_max_mape_alone_switches_no_other_rule_on() -> None:
    tolerance = Tolerance.parse(max_mape=["5"])
    assert tolerance is not None
    assert tolerance.exceeded("y", np.array([1.04]), np.array([1.0])) is None
    assert "allowed 5 %" in str(tolerance.exceeded("y", np.array([1.06]), np.array([1.0])))
    assert mape(np.array([5.0]), np.array([0.0])) == 0.0


def test_names_may_hold_colons() -> None:
    tolerance = Tolerance.parse(atol=["out:0:0.5"], rtol=["1e-3"])
    assert tolerance is not None
    assert tolerance.limits("out:0") == Limits(atol=0.5, rtol=1e-3)
    assert tolerance.limits("other") == Limits(atol=1e-5, rtol=1e-3)


def test_nothing_given_is_no_tolerance() -> None:
    assert Tolerance.parse() is None


@pytest.mark.parametrize("text", ["", "x", "-1", "y:", "nan", "y:-3"])
def test_bad_numbers_are_named(text: str) -> None:
    with pytest.raises(InputError, match="--atol"):
        Tolerance.parse(atol=[text])


@pytest.mark.parametrize("text", ["average", "max=2", "quantile=2", "quantile=x", ""])
def test_bad_statistics_are_named(text: str) -> None:
    with pytest.raises(InputError, match="--check-error-stat"):
        Tolerance.parse(check_error_stat=[text])


def test_unknown_outputs_are_named_with_the_nearest() -> None:
    tolerance = Tolerance.parse(atol=["boxs:1"])
    assert tolerance is not None
    with pytest.raises(InputError, match="'boxs'.*did you mean 'boxes'"):
        tolerance.check_names(["boxes", "scores"])
