"""What a search asks next: told before the answers are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from tapsect.search.foresight import begun_early, foreseen
from tapsect.search.frontier import Look, Refined, refine
from tapsect.search.line import LineResult, first_bad
from tapsect.search.price import cheapest, rounds
from tapsect.verdict import Verdict

EITHER = (Verdict.DIVERGES, Verdict.AGREES)


def line(n: int) -> Callable[[Callable[[int], Verdict]], LineResult]:
    return lambda ask: first_bad(n, ask, recheck=0)


def rounds_of(n: int, border: int, lanes: int) -> tuple[LineResult, int]:
    """Returns what a search with lanes finds, and how often it had to wait."""
    known: dict[int, Verdict] = {}
    waits = 0

    def begin(near: Iterator[int]) -> None:
        nonlocal waits
        asked = list(islice(near, lanes))
        if asked[0] not in known:
            waits += 1
            known.update({p: Verdict.DIVERGES if p >= border else Verdict.AGREES for p in asked})

    found = begun_early(line(n), lambda p: known[p], begin, lambda _: EITHER)
    return found, waits


@given(st.integers(2, 400), st.data())
@settings(max_examples=60, deadline=None)
def test_three_lanes_find_the_same_border_in_half_the_waits(n: int, data: st.DataObject) -> None:
    border = data.draw(st.integers(1, n))
    alone, single = rounds_of(n, border, 1)
    together, waits = rounds_of(n, border, 3)
    assert (
        together
        == alone
        == first_bad(n, lambda p: Verdict.DIVERGES if p >= border else Verdict.AGREES, recheck=0)
    )
    assert single == alone.calls
    assert waits <= (alone.calls + 1) // 2


def test_the_next_question_comes_first_and_answers_move_it() -> None:
    assert next(foreseen(line(64), [], lambda _: EITHER)) == 32
    assert next(foreseen(line(64), [Verdict.AGREES], lambda _: EITHER)) == 48
    assert list(foreseen(line(2), [Verdict.AGREES], lambda _: EITHER)) == []


def test_a_question_that_may_come_on_both_sides_is_told_once() -> None:
    def search(ask: Callable[[str], bool]) -> str:
        ask("first")
        return "yes" if ask("second") else "no"

    assert list(foreseen(search, [], lambda _: (True, False))) == ["first", "second"]


def test_no_guess_is_followed_without_end() -> None:
    def search(ask: Callable[[int], bool]) -> None:
        for number in range(10_000):
            ask(number)

    assert len(list(foreseen(search, [], lambda _: (True, False)))) < 64


def test_answers_that_differ_for_one_question_are_kept_apart() -> None:
    told = iter([True, False, True])

    def search(ask: Callable[[int], bool]) -> list[bool]:
        return [ask(0) for _ in range(3)]

    found = begun_early(search, lambda _: next(told), lambda near: None, lambda _: (True,))
    assert found == [True, False, True]


@given(st.integers(1, 120), st.floats(0, 100), st.floats(0, 20))
@settings(max_examples=150, deadline=None)
def test_the_cheapest_count_is_that_of_all_counts(n: int, base: float, each: float) -> None:
    def price(m: int) -> float:
        return rounds(n, m) * (base + each * m)

    assert price(cheapest(n, base, each)) == min(map(price, range(1, n + 1)))


@given(st.integers(1, 300), st.integers(1, 300))
def test_so_many_rounds_divide_down_to_one_place(n: int, m: int) -> None:
    count = rounds(n, m)
    assert (m + 1) ** count >= n + 1
    assert (m + 1) ** (count - 1) < n + 1


def slow(fault: int, n: int, most: int) -> tuple[Refined[int], list[int]]:
    """Returns what is found where builds with more than so many taps are late, and all sizes."""
    sizes = []

    def probe(taps: tuple[int, ...]) -> Look[int]:
        sizes.append(len(taps))
        if len(taps) > most:
            worth = cheapest(len(taps), 60.0, 5.0)
            return Look(accepted=False, refused=True, worth=worth)
        low = max((t for t in taps if t <= fault), default=0)
        high = min((t for t in taps if t > fault), default=n - 1)
        return Look(accepted=True, relevant=frozenset(range(low, high + 1)))

    return refine(range(n), probe), sizes


@given(st.integers(20, 600), st.data())
@settings(max_examples=60, deadline=None)
def test_a_late_build_makes_the_next_ones_as_small_as_they_are_worth(
    n: int, data: st.DataObject
) -> None:
    fault = data.draw(st.integers(0, n - 2))
    worth = min(n // 2, cheapest(n, 60.0, 5.0))
    found, sizes = slow(fault, n, worth)
    assert sizes[:2] == [n, worth]
    assert max(sizes[1:]) <= worth
    assert {fault, fault + 1} >= set(found.accepted) - {0, n - 1}
    assert (found.refusing, found.untried) == ((), ())
    assert len(sizes) <= 2 + 2 * rounds(n, max(1, worth // 2))


def test_builds_that_are_always_late_end() -> None:
    found, sizes = slow(3, 40, 1)
    assert sizes[:4] == [40, cheapest(40, 60.0, 5.0), 3, 1]
    assert not found.untried
