from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from debugtaps import EnvironmentFailure, UsageError
from tapsect.axes.versions import Releases, between, check_bounds, environment, version_key
from tapsect.versions import Border, Search, Seen

FOUND = Releases(
    ("1.17.0", "1.17.3", "1.18.0", "1.19.2", "1.20.0", "1.23.1", "1.23.2"), ("1.2.0", "1.18.1")
)


def test_versions_are_ordered_by_number() -> None:
    assert sorted(["1.9", "1.10", "1.10.1", "1.2"], key=version_key) == [
        "1.2", "1.9", "1.10", "1.10.1",
    ]  # fmt: skip


def test_the_range_takes_in_the_patches_of_its_end() -> None:
    chosen = between(FOUND, "1.18", "1.23", "engine")
    assert chosen.here == ("1.18.0", "1.19.2", "1.20.0", "1.23.1", "1.23.2")
    assert chosen.elsewhere == ("1.18.1",)


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("1.17", "9.9", "--to: there is no engine 9.9; the latest are .*1.23.2"),
        ("0.1", "1.23", "--from: there is no engine 0.1"),
        ("1.18.0", "1.18.1", "1 releases of engine .* a search needs two"),
    ],
)
def test_a_range_that_is_none_is_named(first: str, last: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        between(FOUND, first, last, "engine")


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("one", "1.23", "--from 'one' is no version"),
        ("1.17", "1.x", "--to '1.x' is no version"),
        ("1.23", "1.17", "--from 1.23 is later than --to 1.17; swap them"),
    ],
)
def test_bounds_that_are_none_are_refused_before_any_index_is_asked(
    first: str, last: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        check_bounds(first, last)


class Bench:
    """Stands in for environments: what each release shows is written down."""

    def __init__(self, shows: dict[str, str]) -> None:
        self.shows, self.asked = shows, list[str]()

    def look(self, version: str) -> Seen:
        self.asked.append(version)
        return Seen(self.shows[version], "because")


def border(shows: dict[str, str], elsewhere: tuple[str, ...] = ()) -> tuple[Border, list[str]]:
    bench = Bench(shows)
    found = Search(cast(Any, bench), "engine", Releases(tuple(shows), elsewhere)).border()
    return found, bench.asked


def line(words: str) -> dict[str, str]:
    return {f"1.{n}": word for n, word in enumerate(words.split())}


def test_the_first_bad_release_and_the_last_good_one() -> None:
    found, asked = border(line("agrees agrees agrees agrees differs differs differs differs"))
    assert (found.good, found.bad, found.mended) == ("1.3", "1.4", False)
    assert asked[:2] == ["1.0", "1.7"]  # both ends first
    assert "engine 1.4 is the first bad release, engine 1.3 the last good one" in found.message
    assert len(asked) <= 2 + 3 + 2


def test_a_fault_that_was_mended() -> None:
    found, _ = border(line("differs differs agrees agrees agrees"))
    assert (found.good, found.bad, found.mended) == ("1.2", "1.1", True)
    assert "engine 1.2 is the first good release, engine 1.1 the last bad one" in found.message


def test_releases_that_cannot_be_judged_are_stepped_around_and_named() -> None:
    found, _ = border(line("none agrees agrees build_error none differs differs none"), ("0.9",))
    assert (found.good, found.bad) == ("1.2", "1.5")
    assert found.between == ("1.3", "1.4")
    assert "Between them 1.3, 1.4 cannot be judged" in found.message
    assert found.seen[0] == ("0.9", Seen("none", "no wheel for this Python"))


def test_an_old_release_that_cannot_run_the_model_is_no_bad_one() -> None:
    found, _ = border(line("build_error build_error differs differs agrees"))
    assert (found.good, found.bad, found.mended) == ("1.4", "1.3", True)


def test_a_crash_is_what_is_looked_for_where_the_other_end_is_right() -> None:
    found, _ = border(line("agrees agrees crash crash crash"))
    assert (found.good, found.bad) == ("1.1", "1.2")


@pytest.mark.parametrize("word", ["agrees", "differs"])
def test_ends_that_are_alike_have_no_border(word: str) -> None:
    found, asked = border(line(" ".join([word] * 9)))
    assert (found.good, found.bad) == (None, None)
    assert "at both ends, engine 1.0 and engine 1.8" in found.message
    assert asked == ["1.0", "1.8"]


def test_one_release_that_runs_is_not_enough() -> None:
    found, _ = border(line("none none agrees"))
    assert "fewer than two releases can be judged" in found.message


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="cannot be installed") as told:
        environment("tapsect-no-such-package", "0.0.1", tmp_path, lambda _: "")
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_does_not_load_there_is_the_reason(tmp_path: Path) -> None:
    def works(python: Path) -> str:
        assert python.exists()
        return "the engine says no"

    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("tapsect.axes.versions._install", lambda *_: "")
        with pytest.raises(EnvironmentFailure, match="the engine says no"):
            environment("numpy", "1.26.4", tmp_path, works)
    assert list(tmp_path.iterdir()) == []
    assert sys.version_info >= (3, 11)
