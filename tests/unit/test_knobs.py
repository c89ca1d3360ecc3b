from __future__ import annotations

import math
import shlex
from collections.abc import Callable

import pytest

from debugtaps import UsageError, parse_options
from tapsect.axes.knobs import Turn, Turns, applied, find_cures, groups, setting

KNOBS = {
    "passes": {"any": [f"P{n}" for n in range(16)]},
    "threads": [1, 2],
    "level": ["off", "basic"],
    "arena": [False],
}


def words(turns: Turns) -> set[str]:
    return set(setting(turns).replace(",", " passes=").split())


class Counting:
    """A test that cures by a rule over what is on, and counts."""

    def __init__(self, rule: Callable[[set[str]], bool]) -> None:
        self.rule, self.calls = rule, 0

    def __call__(self, turns: Turns) -> bool:
        self.calls += 1
        return self.rule(words(turns))


def test_groups_are_names_then_most_careful_values_then_the_rest() -> None:
    named, first, *others = groups(KNOBS, {})
    assert [t.value for t in named] == [f"P{n}" for n in range(16)]
    assert setting(first) == "threads=1 level=off arena=false"
    assert [setting(each) for each in others] == ["threads=2", "level=basic"]


def test_what_is_set_already_is_no_turn() -> None:
    grouped = groups(KNOBS, {"passes": "P0,P1", "level": "off", "arena": False})
    assert [len(group) for group in grouped] == [14, 2, 1]
    assert setting(grouped[1]) == "threads=1 level=basic"


def test_an_unknown_knob_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="no knob 'colour'; it has passes, threads, level, arena"):
        groups(KNOBS, {}, ["threads", "colour"])


def test_only_the_named_knobs_are_turned() -> None:
    assert [setting(g) for g in groups(KNOBS, {}, ["level"])] == ["level=off", "level=basic"]


def test_names_join_those_of_the_user() -> None:
    turns = [Turn("passes", "P3", name=True), Turn("level", '"off"')]
    assert applied({"passes": "P0", "x": 1}, turns) == {
        "passes": ["P0", "P3"], "x": 1, "level": "off",
    }  # fmt: skip


def test_a_setting_reads_back_as_what_was_turned() -> None:
    turns = [Turn("a", "false"), Turn("b", '"1"'), Turn("c", '"word"'), Turn("d", "7")]
    options = parse_options(shlex.split(setting(turns)))
    assert options == {"a": False, "b": "1", "c": "word", "d": 7} == applied({}, turns)


@pytest.mark.parametrize(
    "names", [["a,b", "c"], ["a b"], ["it's $(id)"], ["7"], [" x"], ["x", "y"]]
)
def test_names_of_any_kind_survive_a_shell(names: list[str]) -> None:
    turns = [Turn("keep", name, name=True) for name in names]
    read = applied(parse_options(shlex.split(setting(turns))), [Turn("keep", "more", name=True)])
    assert read == {"keep": [*names, "more"]}


@pytest.mark.parametrize("guilty", [0, 7, 15])
def test_one_name_costs_two_logs(guilty: int) -> None:
    test = Counting(lambda on: f"passes=P{guilty}" in on)
    (found,) = find_cures(groups(KNOBS, {}), test)
    assert setting(found) == f"passes=P{guilty}"
    assert test.calls <= 2 * math.log2(16) + 2


def test_two_that_are_needed_together_are_found_together() -> None:
    test = Counting(lambda on: {"passes=P2", "passes=P13"} <= on)
    (found,) = find_cures(groups(KNOBS, {}), test)
    assert setting(found) == "passes=P2,P13"


def test_a_value_that_is_not_the_most_careful_one_is_found() -> None:
    (found,) = find_cures(groups(KNOBS, {}), Counting(lambda on: "level=basic" in on))
    assert setting(found) == "level=basic"


def test_a_cure_that_a_neighbour_spoils_needs_a_thorough_search() -> None:
    rule = Counting(lambda on: "passes=P5" in on and "passes=P9" not in on)
    assert find_cures(groups(KNOBS, {}), rule) == []
    (found,) = find_cures(groups(KNOBS, {}), rule, thorough=True)
    assert setting(found) == "passes=P5"


def test_two_of_different_options_are_found_together_when_asked_to_be_thorough() -> None:
    rule = Counting(lambda on: {"passes=P5", "threads=1"} <= on)
    assert find_cures(groups(KNOBS, {}), rule) == []
    (found,) = find_cures(groups(KNOBS, {}), rule, thorough=True)
    assert setting(found) == "passes=P5 threads=1"


def test_what_helped_the_smallest_case_is_kept_and_completed() -> None:
    rule = Counting(lambda on: {"passes=P5", "passes=P11"} <= on)
    kept = (Turn("passes", "P11", name=True),)
    (found,) = find_cures(groups(KNOBS, {}), rule, kept=kept)
    assert set(found) == {Turn("passes", "P5", name=True), *kept}
    assert rule.calls <= 2 * math.log2(16) + 4


def test_a_kept_turn_that_is_not_needed_goes() -> None:
    rule = Counting(lambda on: "passes=P5" in on)
    (found,) = find_cures(groups(KNOBS, {}), rule, kept=(Turn("passes", "P11", name=True),))
    assert setting(found) == "passes=P5"


def test_nothing_cures_and_each_set_is_asked_once() -> None:
    seen: list[frozenset[Turn]] = []

    def never(turns: Turns) -> bool:
        seen.append(frozenset(turns))
        return False

    assert find_cures(groups(KNOBS, {}), never, thorough=True) == []
    assert len(seen) == len(set(seen))


def test_further_sets_come_from_further_groups() -> None:
    rule = Counting(lambda on: bool(on & {"passes=P5", "arena=false", "level=basic"}))
    found = find_cures(groups(KNOBS, {}), rule, most=3)
    assert [setting(each) for each in found] == ["passes=P5", "arena=false", "level=basic"]


def test_names_that_each_cure_are_all_told() -> None:
    rule = Counting(lambda on: bool(on & {"passes=P5", "passes=P9"}))
    found = find_cures(groups(KNOBS, {}), rule)
    assert sorted(setting(each) for each in found) == ["passes=P5", "passes=P9"]


def test_the_least_careful_value_that_cures_is_told() -> None:
    rule = Counting(lambda on: bool(on & {"level=off", "level=basic"}))
    assert [setting(each) for each in find_cures(groups(KNOBS, {}), rule)] == ["level=basic"]
