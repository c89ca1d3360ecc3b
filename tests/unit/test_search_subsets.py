from __future__ import annotations

from tapsect.search.subsets import minimal_sets, minimal_subset


def test_one_item_is_its_own_minimum_and_costs_nothing() -> None:
    found = minimal_subset("a", lambda _: True)
    assert (found.items, found.calls, found.one_minimal) == (("a",), 0, True)


def test_no_items_stay_no_items() -> None:
    assert minimal_subset((), lambda _: True).items == ()


def test_one_item_among_64_costs_two_logs() -> None:
    for culprit in range(64):
        found = minimal_subset(range(64), lambda items, c=culprit: c in items)  # type: ignore[misc]
        assert found.items == (culprit,)
        assert found.calls <= 13


def test_two_items_far_apart_are_both_kept() -> None:
    found = minimal_subset(range(64), lambda items: {5, 55} <= set(items))
    assert found.items == (5, 55)
    assert found.calls <= 42


def test_the_order_of_the_items_is_kept() -> None:
    assert minimal_subset("dcba", lambda s: {"a", "c"} <= set(s)).items == ("c", "a")


def test_no_set_is_tested_twice() -> None:
    asked: list[tuple[int, ...]] = []

    def test(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return len(items) >= 5

    found = minimal_subset(range(17), test)
    assert len(found.items) == 5
    assert len(set(asked)) == len(asked) == found.calls


def test_max_calls_is_kept_and_the_result_says_that_it_is_not_proved() -> None:
    found = minimal_subset(range(64), lambda items: 63 in items, max_calls=3)
    assert found.calls == 3
    assert 63 in found.items
    assert not found.one_minimal


def test_disjoint_sets_are_all_found() -> None:
    wanted = [{1}, {4, 9}, {11, 12, 13}]
    found = minimal_sets(range(16), lambda items: any(w <= set(items) for w in wanted))
    assert sorted(map(sorted, (one.items for one in found.sets))) == sorted(map(sorted, wanted))
    assert found.complete
    assert found.calls >= sum(one.calls for one in found.sets)


def test_most_sets_leave_the_search_incomplete() -> None:
    found = minimal_sets(range(6), lambda items: bool(items), most=2)
    assert len(found.sets) == 2
    assert not found.complete


def test_sets_share_one_purse() -> None:
    found = minimal_sets(range(32), lambda items: any(i % 7 == 3 for i in items), max_calls=9)
    assert found.calls == 9
    assert not found.complete
