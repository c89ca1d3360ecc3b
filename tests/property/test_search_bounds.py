"""Searches on arbitrary predicates: what they return holds, at a bounded price."""

from __future__ import annotations

import math
import zlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapsect.search.frontier import Limit, Look, refine
from tapsect.search.line import first_bad
from tapsect.search.subsets import minimal_sets, minimal_subset
from tapsect.verdict import Verdict

quick = settings(max_examples=150, deadline=None)


def coin(seed: int, value: object, sides: int) -> bool:
    """Returns the same arbitrary answer for the same value."""
    return zlib.crc32(repr((seed, value)).encode()) % sides == 0


@quick
@given(data=st.data(), n=st.integers(1, 80))
def test_a_line_returns_a_true_border_whatever_the_verdicts(data: st.DataObject, n: int) -> None:
    kinds = st.sampled_from(list(Verdict))
    verdicts = data.draw(st.lists(kinds, min_size=n - 1, max_size=n - 1))
    line = [Verdict.AGREES, *verdicts, Verdict.DIVERGES]
    hint = data.draw(st.none() | st.integers(0, n))
    found = first_bad(n, lambda p: line[p], hint=hint, recheck=1, max_skips=n)
    assert line[found.index] is Verdict.DIVERGES
    assert line[found.low] is Verdict.AGREES
    assert found.low < found.index
    between = range(found.low + 1, found.index)
    assert found.skipped == tuple(between)
    assert found.monotone == (not between)


@quick
@given(n=st.integers(1, 10_000), where=st.floats(0, 1), hint=st.none() | st.integers(0, 10_000))
def test_a_monotone_line_is_exact_within_its_bound(n: int, where: float, hint: int | None) -> None:
    border = 1 + round(where * (n - 1))
    found = first_bad(
        n, lambda p: Verdict.DIVERGES if p >= border else Verdict.AGREES, hint=hint, recheck=0
    )
    assert (found.low, found.index) == (border - 1, border)
    logs = math.ceil(math.log2(n))
    assert found.calls <= (logs if hint is None else 2 * logs + 2)


@quick
@given(n=st.integers(1, 12), seed=st.integers(0, 999), sides=st.integers(1, 5))
def test_a_subset_is_one_minimal_for_any_predicate(n: int, seed: int, sides: int) -> None:
    everything = tuple(range(n))

    def shows(items: tuple[int, ...]) -> bool:
        return items == everything or coin(seed, items, sides)

    found = minimal_subset(everything, shows)
    assert shows(found.items)
    assert found.one_minimal
    if len(found.items) > 1:
        assert not any(shows(tuple(i for i in found.items if i != gone)) for gone in found.items)


@quick
@given(sets=st.lists(st.frozensets(st.integers(0, 19), min_size=1, max_size=3), min_size=1))
def test_minimal_sets_are_disjoint_members_and_leave_nothing(
    sets: list[frozenset[int]],
) -> None:
    def shows(items: tuple[int, ...]) -> bool:
        return any(one <= set(items) for one in sets)

    found = minimal_sets(range(20), shows, most=20)
    assert found.complete
    taken = [item for one in found.sets for item in one.items]
    assert len(taken) == len(set(taken))
    assert all(frozenset(one.items) in sets for one in found.sets)
    assert not shows(tuple(item for item in range(20) if item not in taken))


@quick
@example(18, set(), {0, 8, 9, 10}, {0}, None)
@given(
    n=st.integers(1, 40),
    healing=st.sets(st.integers(0, 39), max_size=10),
    refusing=st.sets(st.integers(0, 39), max_size=6),
    places=st.sets(st.integers(0, 40), min_size=1, max_size=3),
    budget=st.none() | st.integers(1, 12),
)
def test_a_frontier_bounds_every_fault_by_its_nearest_honest_taps(
    n: int, healing: set[int], refusing: set[int], places: set[int], budget: int | None
) -> None:
    """Faults sit before the taps ``places``; single taps heal or are refused."""

    def weight(tap: int) -> int:
        return 1 + tap % 3

    def probe(taps: tuple[int, ...]) -> Look[int]:
        assert budget is None or sum(map(weight, taps)) <= budget
        if refusing & set(taps):
            return Look(accepted=False, refused=True)
        relevant: set[int] = set()
        for place in places:
            low = max((tap for tap in taps if tap < place), default=0)
            high = min((tap for tap in taps if tap >= place), default=n - 1)
            relevant |= set(range(low, high + 1))
        return Look(accepted=not healing & set(taps), relevant=frozenset(relevant))

    found = refine(range(n), probe, limit=None if budget is None else Limit(budget, weight))
    heavy = {tap for tap in range(n) if budget is not None and weight(tap) > budget}
    honest = [tap for tap in range(n) if tap not in healing | refusing | heavy]
    for place in places:
        below = [tap for tap in honest if tap < place][-1:]
        above = [tap for tap in honest if tap >= place][:1]
        assert set(below + above) <= set(found.accepted)
    assert set(found.accepted) <= set(honest)
    assert set(found.healing) <= healing - refusing
    assert set(found.refusing) <= refusing
    assert set(found.too_heavy) == heavy
    assert found.untried == ()
    assert found.calls <= 2 * n
