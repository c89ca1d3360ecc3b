"""Outputs against the end-to-end floor: which are in question, and which fail alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapsect.rounding.deviation import end_floor
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import End, Measured, judge_output, same_failure

U = 2.0**-24
RNG = np.random.default_rng(0)
Y = RNG.standard_normal((8, 32)).astype(np.float32)
SPREAD = np.full(Y.shape, 1e-6, np.float32)


def judge(engine: Any, base: Any = Y, spread: Any = SPREAD, **more: Any) -> End:
    measured = Measured({"y": base}, {} if spread is None else {"y": spread}, {}, {})
    return judge_output("y", engine, measured, U, limit_for(U), **more)


def test_errors_up_to_the_limit_agree_and_beyond_fail() -> None:
    noise = 1e-6 * RNG.standard_normal(Y.shape)
    assert judge(Y + noise).kind is None
    assert judge((Y + 20 * noise).astype(np.float32)).kind == "accuracy"


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        (None, "missing_output"),
        (Y[:4], "wrong_shape"),
        (Y.astype(np.float16), "wrong_dtype"),
        (np.where(Y[0, 0] == Y, np.nan, Y).astype(np.float32), "nonfinite"),
    ],
)
def test_other_ways_to_fail(engine: Any, kind: str) -> None:
    end = judge(engine, dtype="float32")
    assert (end.kind, end.floors) == (kind, float("inf"))
    assert end.failing


def test_equal_non_finite_values_agree() -> None:
    base = np.array([np.inf, -np.inf, np.nan, 1.0], np.float32)
    end = judge(base.copy(), base, np.zeros(4, np.float32))
    assert end.kind is None
    assert end.nonfinite_engine == end.nonfinite_reference == 3


def test_a_nan_that_the_engine_loses_fails() -> None:
    base = np.array([np.nan, 1.0], np.float32)
    assert (
        judge(np.array([0.0, 1.0], np.float32), base, np.zeros(2, np.float32)).kind == "nonfinite"
    )


def test_a_shape_that_noise_explains_agrees() -> None:
    base = np.arange(4)
    assert judge(np.arange(5), base, None, explained=np.asarray(True)).kind is None
    assert judge(np.arange(5), base, None, explained=np.asarray(False)).kind == "wrong_shape"


def test_discrete_outputs_count_what_is_unexplained() -> None:
    base, ours = np.array([1, 2, 3]), np.array([1, 5, 6])
    end = judge(ours, base, None, explained=np.array([True, True, False]))
    assert end.kind == "accuracy"
    assert "1 of 3" in end.reason
    assert judge(ours, base, None, explained=np.array([True, True, True])).kind is None


def test_an_element_that_does_not_move_keeps_the_floor_of_its_storage() -> None:
    floor = end_floor(np.ones(4), np.zeros(4), U)
    assert isinstance(floor, np.ndarray)
    assert np.all(floor > 0.25 * U)


def ends(error: Any, floors: float = 100.0) -> dict[str, tuple[End, Any]]:
    size = float(np.sqrt(np.mean(np.square(error))))
    end = End("y", "accuracy", floors, error=size, scale=1.0, floor=size / floors)
    return {"y": (end, (Y + error).astype(np.float32))}


@pytest.mark.parametrize(
    ("second", "seen"),
    [
        (1.0, "faithful"),
        (3.0, "faithful"),
        (5.0, "changed"),  # five times as large
        (-1.0, "changed"),  # the other way
    ],
)
def test_a_tapped_build_must_fail_alike(second: float, seen: str) -> None:
    error = RNG.standard_normal(Y.shape)
    assert same_failure(ends(error), ends(second * error), {"y": Y}) == seen


def test_a_failure_that_vanishes_was_healed() -> None:
    error = RNG.standard_normal(Y.shape)
    healed = {"y": (End("y", None), Y)}
    assert same_failure(ends(error), healed, {"y": Y}) == "healed"


def test_near_the_line_only_the_size_counts() -> None:
    error = RNG.standard_normal(Y.shape)
    assert same_failure(ends(error, 2.5), ends(-error, 2.5), {"y": Y}) == "faithful"


def softmax_far_off(u: float = 2.0**-8) -> tuple[np.ndarray[Any, Any], Measured]:
    """A row of probabilities whose losers noise moves by many times their size."""
    base = np.concatenate([[0.9], np.full(200, 0.1 / 200)]).astype(np.float32)[None]
    base[0, 7] = 1e-8
    spread = np.full(base.shape, u / 200, np.float32)
    spread[0, 0], spread[0, 7] = 0.1, 1e-7
    return base, Measured({"y": base}, {"y": spread}, {}, {})


def test_what_noise_moves_by_more_than_its_size_is_held_against_the_whole() -> None:
    base, measured = softmax_far_off()
    engine = base.copy()
    engine[0, 7] = 1e-5  # a thousand times its value, and nothing to the answer
    assert judge_output("y", engine, measured, 2.0**-8, limit_for(2.0**-8)).kind is None
    engine[0, 7] = 0.3
    assert judge_output("y", engine, measured, 2.0**-8, limit_for(2.0**-8)).kind == "accuracy"


def test_a_small_value_that_noise_leaves_where_it_is_is_not() -> None:
    base, measured = softmax_far_off()
    still = {"y": np.where(np.arange(201) == 7, 1e-10, measured.spread["y"]).astype(np.float32)}
    engine = base.copy()
    engine[0, 7] = 1e-3
    quiet = Measured(measured.base, still, {}, {})
    assert judge_output("y", engine, quiet, 2.0**-24, limit_for(2.0**-24)).kind == "accuracy"
