from __future__ import annotations

import math
from collections.abc import Callable, Collection

import pytest

from tapsect.search.frontier import Limit, Look, Refined, refine

Probe = Callable[[tuple[int, ...]], Look[int]]


def fault(
    n: int, place: int, *, healing: Collection[int] = (), refusing: Collection[int] = ()
) -> Probe:
    """Returns a line of n taps whose fault sits between ``place - 1`` and ``place``."""

    def probe(taps: tuple[int, ...]) -> Look[int]:
        assert list(taps) == sorted(set(taps)), "taps come in order, once"
        if set(refusing) & set(taps):
            return Look(accepted=False, refused=True)
        low = max((tap for tap in taps if tap < place), default=0)
        high = min((tap for tap in taps if tap >= place), default=n - 1)
        relevant = frozenset(range(low, high + 1))
        return Look(accepted=not set(healing) & set(taps), relevant=relevant)

    return probe


def test_one_call_when_nothing_disturbs() -> None:
    assert refine(range(9), fault(9, 4)) == Refined((3, 4), (), (), (), (), calls=1)


def test_nothing_to_tap_costs_nothing() -> None:
    assert refine((), fault(1, 0)).calls == 0


def test_evidence_without_relevance_keeps_every_accepted_tap() -> None:
    found = refine("abcd", lambda taps: Look(accepted="c" not in taps))
    assert (found.accepted, found.healing) == (("a", "b", "d"), ("c",))


@pytest.mark.parametrize("n", [10, 64, 255, 600])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_neighbouring_healing_taps_cost_two_logs(n: int, k: int) -> None:
    for first in range(0, n - k, max(1, n // 25)):
        healing = range(first, first + k)
        for place in (first, first + k // 2, first + k):
            found = refine(range(n), fault(n, place, healing=healing))
            honest = [tap for tap in range(n) if tap not in healing]
            below = [tap for tap in honest if tap < place][-1:]
            above = [tap for tap in honest if tap >= place][:1]
            assert found.accepted == (*below, *above)
            assert set(found.healing) <= set(healing)
            assert found.calls <= 2 * math.log2(n) + 2 * k + 1


def test_the_healing_taps_around_the_fault_are_all_named() -> None:
    assert refine(range(64), fault(64, 31, healing=(30, 31, 32))).healing == (30, 31, 32)


def test_disturbing_taps_that_stop_being_relevant_are_never_named() -> None:
    found = refine(range(64), fault(64, 10, healing=(50,)))
    assert found.accepted == (9, 10)
    assert found.healing == ()


def test_refused_taps_are_told_from_healing_ones() -> None:
    found = refine(range(32), fault(32, 20, healing=(20,), refusing=(18, 19)))
    assert (found.accepted, found.healing, found.refusing) == ((17, 21), (20,), (18, 19))


def test_taps_that_heal_together_leave_the_last_one_named() -> None:
    found = refine(range(8), lambda taps: Look(accepted=not {2, 6} <= set(taps)))
    assert found.healing in ((2,), (6,))
    assert len(found.accepted) == 7


def test_the_worst_case_is_bounded_by_twice_the_taps() -> None:
    found = refine(range(40), lambda _: Look(accepted=False))
    assert found.healing == tuple(range(40))
    assert found.calls == 2 * 40 - 1


def test_max_calls_ends_the_search_and_says_what_is_left() -> None:
    found = refine(range(40), lambda _: Look(accepted=False), max_calls=7)
    assert found.calls == 7
    assert set(found.healing) | set(found.untried) == set(range(40))
    assert found.untried


@pytest.mark.parametrize("most", [1, 2, 3, 8, 100])
def test_a_limit_is_kept_and_rounds_stay_logarithmic(most: int) -> None:
    for place in range(0, 600, 41):
        probe = fault(600, place)

        def counted(taps: tuple[int, ...], probe: Probe = probe) -> Look[int]:
            assert len(taps) <= most
            return probe(taps)

        found = refine(range(600), counted, limit=Limit(most, lambda _: 1))
        assert found.accepted == ((place - 1, place) if place else (0,))
        assert found.calls <= math.log(600) / math.log(max(2, most / 2)) + 2


def test_weights_decide_what_fits() -> None:
    seen: list[tuple[int, ...]] = []

    def probe(taps: tuple[int, ...]) -> Look[int]:
        seen.append(taps)
        return fault(20, 13)(taps)

    found = refine(range(20), probe, limit=Limit(10, lambda tap: 9 if tap % 2 else 1))
    assert found.accepted == (12, 13)
    assert all(sum(9 if tap % 2 else 1 for tap in taps) <= 10 for taps in seen)


def test_a_tap_heavier_than_any_build_is_set_aside() -> None:
    found = refine(range(5), fault(5, 3), limit=Limit(4, lambda tap: 99 if tap == 2 else 1))
    assert found.too_heavy == (2,)
    assert found.accepted == (1, 3)


@pytest.mark.parametrize("most", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("n", [30, 600])
def test_how_many_taps_a_builder_takes_is_learned(n: int, most: int) -> None:
    for place in range(1, n, n // 7):
        probe = fault(n, place)

        def crowded(taps: tuple[int, ...], probe: Probe = probe) -> Look[int]:
            return Look(accepted=False, refused=True) if len(taps) > most else probe(taps)

        found = refine(range(n), crowded)
        assert found.accepted == (place - 1, place)
        assert found.refusing == ()
        assert found.calls <= 2 * math.log2(n) + 2 * math.log(n) / math.log(max(2, most / 4)) + 4


@pytest.mark.parametrize("n", [1, 2, 5, 600])
def test_a_builder_that_takes_no_tap_is_not_asked_about_each(n: int) -> None:
    found = refine(range(n), lambda _: Look(accepted=False, refused=True))
    assert found.accepted == ()
    assert found.refusing == tuple(range(n))
    assert found.calls <= math.log2(n + 1) + 6


@pytest.mark.parametrize("refusing", [(7,), (7, 400), (100, 101, 350)])
def test_single_refused_taps_do_not_lower_what_is_tapped_for_good(
    refusing: tuple[int, ...],
) -> None:
    found = refine(range(600), fault(600, 205, refusing=refusing))
    assert found.accepted == (204, 205)
    assert set(found.refusing) <= set(refusing)
    assert found.calls <= 2 * math.log2(600) + 4


def test_favoured_taps_go_first_where_not_all_fit() -> None:
    looked: list[tuple[int, ...]] = []

    def probe(taps: tuple[int, ...]) -> Look[int]:
        looked.append(taps)
        return Look(accepted=True, relevant=frozenset())

    limit: Limit[int] = Limit(budget=3.0, weight=lambda _: 1.0)
    refine(range(16), probe, limit=limit, favoured=lambda tap: tap in (6, 3, 11))
    assert looked == [(3, 6, 11)]


def test_nobody_is_asked_for_favourites_where_all_fit() -> None:
    def favoured(_: int) -> bool:
        raise AssertionError

    assert refine(range(9), fault(9, 4), favoured=favoured).calls == 1


@pytest.mark.parametrize("n", [100, 600, 3000])
@pytest.mark.parametrize("k", [1, 2])
def test_a_short_run_of_healing_taps_costs_no_more_in_a_large_model(n: int, k: int) -> None:
    for first in range(0, n - k, n // 25):
        found = refine(range(n), fault(n, first + 1, healing=range(first, first + k)))
        assert found.calls <= 14
        assert set(found.healing) <= set(range(first, first + k))
