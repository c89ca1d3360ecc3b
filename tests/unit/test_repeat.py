"""How often, and when it is enough: pure attempts, no engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tapsect.axes.repeat import Attempt, Tally, Until, repeat
from tapsect.search.rates import alike_for, interval
from tapsect.verdict import Verdict

GOOD, BAD, SKIP = Verdict.AGREES, Verdict.DIVERGES, Verdict.INVALID
LETTERS = {"g": GOOD, "b": BAD, "s": SKIP}


def tally_of(builds: Sequence[str], until: str | None = None) -> Tally:
    """Each word is a build, each letter a run: good, bad, skipped."""
    made = [tuple(LETTERS[letter] for letter in word) for word in builds]
    chosen = Until.parse(until)
    assert chosen is not None
    return repeat(lambda n: Attempt(n, made[n % len(made)]), chosen, lambda _: None)


@pytest.mark.parametrize(("seen", "of"), [(0, 10), (1, 10), (5, 10), (7, 10), (300, 1000)])
def test_the_interval_holds_the_rates_that_a_test_does_not_reject(seen: int, of: int) -> None:
    low, high = interval(seen, of)
    for edge in (low, high):
        if 0 < edge < 1:
            deviation = math.sqrt(edge * (1 - edge) / of)
            assert abs(seen / of - edge) / deviation == pytest.approx(1.959964, abs=1e-5)
    assert low <= seen / of <= high
    assert interval(of - seen, of) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.7])
def test_intervals_hold_the_true_rate_about_95_times_of_100(rate: float) -> None:
    for of in (20, 60):
        held = 0.0
        for seen in range(of + 1):
            low, high = interval(seen, of)
            chance = math.comb(of, seen) * rate**seen * (1 - rate) ** (of - seen)
            held += chance if low <= rate <= high else 0.0
        assert 0.91 < held < 0.99


def test_equal_answers_that_rule_a_rate_out() -> None:
    assert (
        (1 - 0.3) ** alike_for(0.3, miss=0.01)
        <= 0.01
        < (1 - 0.3) ** (alike_for(0.3, miss=0.01) - 1)
    )


def test_a_count_is_kept_to() -> None:
    tally = tally_of(["g"], "7")
    assert (len(tally.attempts), tally.good, tally.cause) == (7, 7, None)
    assert tally_of(["g", "b"], "1").bad == 0


@pytest.mark.parametrize(
    ("builds", "until", "count"),
    [(["g", "g", "b"], "bad", 3), (["b", "s", "g"], "good", 3), (["g"], "good", 1)],
)
def test_the_first_of_a_kind_ends_it(builds: list[str], until: str, count: int) -> None:
    assert len(tally_of(builds, until).attempts) == count


@pytest.mark.parametrize(("letter", "until"), [("g", "bad"), ("b", "good"), ("s", "bad")])
def test_what_never_comes_is_given_up_when_it_is_known_to_be_rare(letter: str, until: str) -> None:
    tally = tally_of([letter], until)
    assert len(tally.attempts) == 59
    assert "rarer than 5%" in tally.stopped


@pytest.mark.parametrize("letter", ["g", "b", "s"])
def test_without_a_count_equal_answers_end_it(letter: str) -> None:
    assert len(tally_of([letter]).attempts) == 20


def test_without_a_count_a_rate_is_measured_well_enough() -> None:
    tally = tally_of(["b", "g", "g"])
    low, high = tally.interval()
    assert high - low <= 0.4
    assert 10 < len(tally.attempts) <= 21
    assert tally.stopped.startswith("both good and bad")


def test_builds_that_disagree_are_told_from_runs_that_do() -> None:
    builds = tally_of(["ggg", "bbb", "ggg"], "3")
    assert (builds.cause, builds.unit, builds.counts()) == ("flaky_build", "build", (1, 3))
    runs = tally_of(["gbg", "ggg", "ggb"], "3")
    assert (runs.cause, runs.unit, runs.counts()) == ("flaky_run", "run", (2, 9))
    assert tally_of(["bbb"], "3").cause is None


def test_what_could_not_be_judged_counts_for_nothing() -> None:
    tally = tally_of(["s", "g", "sb"], "3")
    assert (tally.good, tally.bad, tally.skipped) == (1, 1, 1)
    assert tally.counts() == (1, 2)
    assert tally_of(["gsb"], "1").counts() == (1, 2)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", ""])
def test_what_is_neither_a_number_nor_a_word_is_refused(text: str) -> None:
    assert Until.parse(text) is None
