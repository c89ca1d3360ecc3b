"""The noisy searcher against simulated faults that fire now and then."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapsect.search.noisy import Firing, NoisyResult, noisy_first_bad, repeats_for
from tapsect.verdict import Verdict

quick = settings(max_examples=60, deadline=None)


def firing_at(true: int, rate: float, draw: random.Random) -> Callable[[int], Verdict]:
    """Returns an oracle: a prefix that holds the fault fails at ``rate``, others never."""
    return lambda length: (
        Verdict.DIVERGES if length >= true and draw.random() < rate else Verdict.AGREES
    )


def searched(seed: int, rate: float, n: int = 100, **more: object) -> tuple[int, NoisyResult]:
    draw = random.Random(seed)
    true = draw.randint(1, n)
    measured = Firing(sum(draw.random() < rate for _ in range(10)), 10)
    look = firing_at(true, rate, draw)
    return true, noisy_first_bad(n, look, firing=measured, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0.9, 0.7, 0.5, 0.3])
def test_the_true_node_comes_back_in_95_of_100_runs(rate: float) -> None:
    found = [searched(seed, rate) for seed in range(100)]
    assert sum(true == result.index for true, result in found) >= 95
    assert sum(result.sure for _, result in found) >= 95


@pytest.mark.parametrize(("rate", "most"), [(0.9, 16), (0.7, 26), (0.5, 45)])
def test_looks_stay_near_what_information_allows(rate: float, most: int) -> None:
    calls = [searched(seed, rate)[1].calls for seed in range(30)]
    assert sum(calls) / len(calls) <= most


def test_it_says_when_it_is_not_sure() -> None:
    true, result = searched(3, 0.3, max_calls=8)
    assert not result.sure
    assert result.confidence < 0.99
    assert true in result.likely
    assert result.calls == 8


def test_confidence_is_honest() -> None:
    """Answers that were stopped early are right about as often as they say."""
    found = [searched(seed, 0.6, n=40, max_calls=9) for seed in range(200)]
    claimed = sum(result.confidence for _, result in found) / len(found)
    right = sum(true == result.index for true, result in found) / len(found)
    assert abs(claimed - right) < 0.12


def test_a_fault_that_always_fires_costs_little_more_than_a_bisection() -> None:
    result = noisy_first_bad(600, firing_at(417, 1.0, random.Random(0)), firing=Firing(10, 10))
    assert result.index == 417
    assert result.calls <= math.log2(600) + 8


def test_what_cannot_be_judged_is_stepped_around() -> None:
    draw = random.Random(1)

    def look(length: int) -> Verdict:
        return Verdict.INVALID if length % 2 else firing_at(20, 0.7, draw)(length)

    result = noisy_first_bad(64, look, firing=Firing(7, 10))
    assert {19, 20} & set(result.likely)
    assert not result.sure  # 19 and 20 cannot be told apart
    assert set(result.likely) <= {19, 20, 21}


def test_a_line_needs_an_end() -> None:
    with pytest.raises(ValueError, match="bad end"):
        noisy_first_bad(0, lambda _: Verdict.DIVERGES, firing=Firing(1, 1))


@given(st.integers(1, 60), st.floats(0.35, 0.99), st.integers(0, 10**6))
@quick
def test_the_answer_is_a_position_with_a_probability(n: int, rate: float, seed: int) -> None:
    _, result = searched(seed, rate, n=n)
    assert 1 <= result.index <= n
    assert 0 < result.confidence <= 1 + 1e-9
    assert result.index == result.likely[0]


@given(st.integers(0, 10**6))
@quick
def test_equal_answers_give_equal_results(seed: int) -> None:
    assert searched(seed, 0.7) == searched(seed, 0.7)


@given(st.floats(0.05, 1.0))
@quick
def test_enough_repeats_leave_one_miss_in_a_thousand(rate: float) -> None:
    assert (1 - rate) ** repeats_for(rate) <= 1.001e-3
