"""Floors and ratios: what each of them is, and what it must not hide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapsect.rounding.floors import (
    LIMITS,
    PRECISIONS,
    cosine,
    floor_of,
    limit_for,
    rms,
    u_name,
)
from tapsect.rounding.ratios import contrast, luck, ratios, step_of
from tapsect.rounding.storage import fits_half, stored_roundoff

RNG = np.random.default_rng(0)


def test_limits_are_ordered_and_cover_every_precision() -> None:
    assert [u for u, _ in LIMITS] == sorted(u for u, _ in LIMITS)
    for u in PRECISIONS.values():
        assert limit_for(u).norm > limit_for(u).end


@pytest.mark.parametrize(("u", "name"), [(2.0**-53, "fp64"), (2.0**-8, "bf16"), (2.0**-4, "fp8")])
def test_roundoffs_have_names(u: float, name: str) -> None:
    assert u_name(u) == name


def test_floor_of_a_zero_is_half_the_smallest_subnormal() -> None:
    floor = floor_of(np.zeros(3), np.zeros(3), 2.0**-11, "float16")
    assert isinstance(floor, np.ndarray)
    assert np.all(floor == 2.0**-25)


def test_floor_adds_up_its_parts() -> None:
    y, spread, extra = np.array([3.0, -4.0]), np.array([0.5, 0.0]), np.array([0.0, 0.25])
    floor = floor_of(y, spread, 0.5, "float32", extra)
    assert isinstance(floor, np.ndarray)
    np.testing.assert_allclose(floor, 0.5 * np.abs(y) + 0.5 * rms(y) + spread + extra)


def test_rows_of_different_scale_have_scales_of_their_own() -> None:
    y = np.array([[1.0, 1.0], [1e4, 1e4]])
    floor = floor_of(y, np.zeros(y.shape), 2.0**-11, "float32")
    assert isinstance(floor, np.ndarray)
    np.testing.assert_allclose(floor, 2 * 2.0**-11 * y)


def test_error_within_the_floor_scores_below_one() -> None:
    floor = np.full((8, 8), 2.0)
    found = ratios(np.full((8, 8), 1.0), floor)
    assert found.norm == pytest.approx(0.5)
    assert not found.exceed(limit_for(2.0**-24))


def test_a_wrong_channel_shows_in_its_slice() -> None:
    error = np.zeros((4, 16, 8))
    error[:, 5] = 100.0
    found = ratios(error, np.ones(error.shape))
    assert (found.axis, found.index) == (1, 5)
    assert found.slice == pytest.approx(100.0)
    assert found.norm == pytest.approx(25.0)


def test_one_wrong_element_among_a_million_stands_out() -> None:
    error = np.abs(RNG.standard_normal(10**6))
    error[123456] = 40.0
    found = ratios(error, np.ones(error.shape))
    assert found.exceed(limit_for(2.0**-11))
    assert found.norm < 1.1


def test_an_infinite_floor_explains_its_element() -> None:
    floor = np.array([1.0, np.inf])
    assert ratios(np.array([0.0, 1e9]), floor).norm == 0.0


@given(st.integers(1, 40), st.integers(1, 40))
def test_luck_bounds_the_worst_slice_of_normal_numbers(size: int, count: int) -> None:
    rng = np.random.default_rng(size * 100 + count)
    worst = [np.sqrt(np.mean(rng.standard_normal((count, size)) ** 2, 1)).max() for _ in range(200)]
    assert np.mean(np.array(worst) > luck(size, count, 0.01)) <= 0.05


def test_steps_are_told_from_smooth_spread() -> None:
    u = 2.0**-11
    y = RNG.standard_normal(500)
    assert step_of(y, u * np.abs(y), u, smooth=4.0) == 0.0
    stepped = np.where(RNG.random(500) < 0.1, 0.05, 0.0)
    assert step_of(y, stepped, u, smooth=4.0) == 0.05


def test_a_step_that_no_sample_showed_is_allowed_once_but_not_everywhere() -> None:
    floor = np.full((10, 10), 1e-4)
    one, many = np.zeros((10, 10)), np.zeros((10, 10))
    one[3, 3] = 0.05
    many[3] = 0.05
    assert ratios(one, floor, step=0.05, jump=0.05).slice < 1.0
    assert ratios(many, floor, step=0.05, jump=0.05).slice > 1.5


def test_contrast_of_one_and_of_none() -> None:
    assert contrast(np.array([5.0])) == 1.0
    assert contrast(np.zeros(4)) == 0.0
    assert contrast(np.array([0.0, 0.0, 3.0])) == np.inf


def test_cosine_of_nothing() -> None:
    assert cosine(np.zeros(2), np.zeros(2)) == 1.0
    assert cosine(np.zeros(2), np.ones(2)) == 0.0


@given(st.integers(0, 2**31))
def test_bits_tell_where_a_tensor_was_stored(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
    assert stored_roundoff(x) == 0.0
    half = x.astype(np.float16).astype(np.float32)
    assert stored_roundoff(half) == 2.0**-11
    assert fits_half(half)
    brain = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert stored_roundoff(brain) == 2.0**-8


def test_trivial_values_prove_no_type() -> None:
    assert stored_roundoff(np.zeros(100, np.float32)) is None
    assert stored_roundoff(np.full(100, 0.5, np.float32)) is None
    assert stored_roundoff(np.ones(100)) == 0.0
    assert not fits_half(np.full(3, 1e6, np.float32))
