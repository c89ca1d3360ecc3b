"""What is judged part by part is judged as it would be whole."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tapsect.replay import causal
from tapsect.replay.judging import Told, judge_floats
from tapsect.rounding import boxes
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import End, Measured, judge_output, same_answer, same_failure

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
ODD = (np.nan, np.inf, -np.inf, 0.0)


@given(SHAPES, st.integers(1, 30))
def test_boxes_cover_a_tensor_once_and_in_order(shape: tuple[int, ...], most: int) -> None:
    numbers = np.arange(math.prod(shape)).reshape(shape)
    found = [numbers[box].ravel() for box in boxes.divided(shape, most)]
    assert np.concatenate(found).tolist() == numbers.ravel().tolist()
    assert all(part.size <= most for part in found)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Draws what an engine shows, what the reference computes, and how far noise moves it."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=6))
    random = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    y = np.array(random.standard_normal(shape), np.float32)
    y *= np.float32(10.0) ** random.integers(-3, 3, (*shape[:-1], 1) if shape else ())
    noise = draw(st.sampled_from([2.0**-24, 2.0**-12, 1e-3]))
    e = np.array(y * (1 + noise * random.standard_normal(shape)), np.float32)
    spread = np.array(np.abs(y * noise * random.random(shape)), np.float32)
    for values in draw(st.sets(st.sampled_from(["e", "y", "spread", "both"]))):
        at = random.random(shape) < 0.2
        odd = draw(st.sampled_from(ODD))
        for name, array in (("e", e), ("y", y), ("spread", spread)):
            if values in (name, "both") and (name != "spread" or values == "spread"):
                array[at] = abs(odd) if name == "spread" and odd == odd else odd
    spread[np.isnan(spread)] = 0.0
    return e, y, spread


def twice(ask: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    whole = ask()
    with monkeypatch.context() as patched:
        patched.setattr(boxes, "MOST", 9)
        patched.setattr(boxes, "PART", 4)
        return whole, ask()


def alike(one: Any, other: Any) -> bool:
    """Returns whether two results are the same but for the order of sums."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-9) or one == other
    if hasattr(one, "__dataclass_fields__"):
        return all(alike(getattr(one, f), getattr(other, f)) for f in one.__dataclass_fields__)
    if isinstance(one, str):
        return bool(one.split(" is ")[0] == other.split(" is ")[0])
    return bool(one == other)


@given(cases(), st.sampled_from([2.0**-24, 2.0**-11, 2.0**-8]))
def test_of_a_replayed_tensor(case: tuple[Any, Any, Any], u: float) -> None:
    e, y, spread = case
    with pytest.MonkeyPatch.context() as monkeypatch:
        whole, parts = twice(lambda: judge_floats(Told("t", u), e, y, spread), monkeypatch)
    assert alike(whole, parts), (whole, parts)


@given(cases(), st.sampled_from([2.0**-24, 2.0**-11]))
def test_of_an_output(case: tuple[Any, Any, Any], u: float) -> None:
    e, y, spread = case
    measured = Measured({"y": y}, {"y": spread}, {}, {})

    def ask() -> End:
        return judge_output("y", e, measured, u, limit_for(u))

    with pytest.MonkeyPatch.context() as monkeypatch:
        whole, parts = twice(ask, monkeypatch)
    assert alike(whole, parts), (whole, parts)


@given(cases())
def test_of_two_builds_and_of_a_suspect(case: tuple[Any, Any, Any]) -> None:
    e, y, spread = case
    other = np.where(np.isfinite(e), e * np.float32(1.5), e)
    ends = {"y": (End("y", "accuracy", 9.0, 1.0, 1.0, 0.1), e)}
    after = {"y": (End("y", "accuracy", 9.0, 1.0, 1.0, 0.1), other)}

    def ask() -> Any:
        return [
            same_failure(ends, after, {"y": y}), same_answer(ends, after, 8.0),
            causal._is_addition(e, y), float(causal._move(e, y, spread, 2.0**-24)),
            float(causal._share(other, y, e)),
        ]  # fmt: skip

    with pytest.MonkeyPatch.context() as monkeypatch:
        whole, parts = twice(ask, monkeypatch)
    assert all(alike(a, b) for a, b in zip(whole, parts, strict=True)), (whole, parts)
