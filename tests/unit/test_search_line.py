from __future__ import annotations

import math
from collections.abc import Callable, Collection

import pytest

from tapsect.search.line import first_bad
from tapsect.verdict import Verdict


def bad_from(border: int, *, broken: Collection[int] = ()) -> Callable[[int], Verdict]:
    """Returns a line that is bad from ``border`` on; ``broken`` positions cannot be built."""

    def look(position: int) -> Verdict:
        if position in broken:
            return Verdict.INVALID
        return Verdict.DIVERGES if position >= border else Verdict.AGREES

    return look


def test_a_line_without_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="n is 0"):
        first_bad(0, bad_from(0))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 100])
def test_every_border_is_found_within_the_bound(n: int) -> None:
    for border in range(1, n + 1):
        found = first_bad(n, bad_from(border), recheck=0)
        assert (found.index, found.low) == (border, border - 1)
        assert found.exact
        assert found.monotone
        assert found.calls <= math.ceil(math.log2(n))


def test_position_zero_is_never_asked() -> None:
    asked: list[int] = []

    def look(position: int) -> Verdict:
        asked.append(position)
        return Verdict.DIVERGES

    found = first_bad(50, look, hint=1)
    assert found.index == 1
    assert 0 not in asked


@pytest.mark.parametrize("distance", [0, 1, 2, 5, 17])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_near_hint_costs_by_its_distance_not_by_the_length(distance: int, sign: int) -> None:
    found = first_bad(100_000, bad_from(50_000), hint=50_000 + sign * distance, recheck=0)
    assert found.index == 50_000
    assert found.calls <= 2 * math.log2(distance + 1) + 3


@pytest.mark.parametrize("hint", [-3, 0, 1, 8, 9, 40])
def test_a_hint_outside_the_line_is_clamped(hint: int) -> None:
    for border in (1, 4, 8):
        assert first_bad(8, bad_from(border), hint=hint).index == border


def test_skips_leave_the_answer_exact_when_they_are_elsewhere() -> None:
    found = first_bad(64, bad_from(41, broken=range(28, 38)))
    assert found.exact
    assert found.index == 41
    assert found.skipped == ()


def test_skips_around_the_border_leave_a_bracket_and_say_so() -> None:
    found = first_bad(64, bad_from(41, broken=(39, 40, 41, 42)))
    assert (found.low, found.index) == (38, 43)
    assert found.skipped == (39, 40, 41, 42)
    assert not found.exact
    assert not found.monotone


def test_a_line_that_cannot_be_judged_stops_after_max_skips() -> None:
    found = first_bad(1000, bad_from(500, broken=range(1, 1000)), recheck=0, max_skips=5)
    assert (found.low, found.index, found.calls) == (0, 1000, 5)


def test_unstable_positions_are_stepped_around() -> None:
    def look(position: int) -> Verdict:
        return Verdict.UNSTABLE if position == 8 else bad_from(6)(position)

    assert first_bad(16, look).index == 6


def test_a_border_that_answers_otherwise_when_asked_again_is_not_monotone() -> None:
    answers = iter([Verdict.DIVERGES, Verdict.AGREES, Verdict.AGREES])
    found = first_bad(4, lambda _: next(answers))
    assert (found.low, found.index) == (1, 2)
    assert found.exact
    assert not found.monotone


def test_a_line_that_is_not_monotone_still_ends_at_a_true_border() -> None:
    bad = {3, 4, 9, 10, 11, 20}
    found = first_bad(20, lambda p: Verdict.DIVERGES if p in bad else Verdict.AGREES)
    assert found.index in bad
    assert found.low not in bad
    assert found.exact
