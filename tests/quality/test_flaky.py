"""Faults that strike some builds only: located all the same, with rate, interval and confidence."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from debugtaps.engines.planting.faults import Flaky
from support import zoo
from support.diagnosing import Diagnosed, diagnose, trail_of

NODE = "block5/Conv"
VALUE = {"kind": "value", "nodes": [NODE], "error": 0.05}
CRASH = {"kind": "crash", "nodes": [NODE]}
REFUSED = {"kind": "refuses_taps", "limit": 0}


def seed_for(rate: float, *, second: bool = False) -> int:
    """Returns a seed with which the first build is struck and, if so asked, the second is not.

    Four fresh builds that fail are taken for a steady fault: no more than five in a row are struck.
    """
    for seed in count():
        draw = Flaky("build", rate, seed)
        runs = "".join("x" if draw.strikes(n) else " " for n in range(80)).split()
        most = 5 if rate > 0.5 and second else 80
        steady = second and draw.strikes(1) and draw.strikes(2)
        if draw.strikes(0) and not steady and max(map(len, runs)) <= most:
            return seed
    raise AssertionError


def struck(fault: Mapping[str, Any], rate: float, folder: Path, *more: Any) -> Diagnosed:
    flaky = {"kind": "flaky_build", "of": dict(fault), "rate": rate}
    planted = [{**flaky, "seed": seed_for(rate, second=bool(more) or fault is CRASH)}, *more]
    return diagnose(zoo.chain_cnn(), planted, folder, budget=0)


def assert_told(found: Diagnosed, rate: float) -> None:
    """Asserts the node, the cause, and what is said of the rate."""
    finding, why = found.finding, trail_of(found)
    assert (finding.cause, finding.culprit_nodes) == ("flaky_build", (NODE,)), why
    seen = finding.repeats
    assert seen is not None, why
    assert seen.low <= rate <= seen.high, why
    assert seen.confidence is not None, why
    assert seen.confidence > 0.95, why
    assert f"{seen.bad} of {seen.of} further builds fail" in finding.message


@pytest.mark.parametrize("rate", [pytest.param(0.7, marks=pytest.mark.slow), 0.3])
def test_a_wrong_value_is_located(rate: float, tmp_path: Path) -> None:
    assert_told(struck(VALUE, rate, tmp_path), rate)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.7, 0.3])
def test_a_crash_is_located(rate: float, tmp_path: Path) -> None:
    assert_told(struck(CRASH, rate, tmp_path), rate)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.7, 0.3])
def test_a_wrong_value_is_located_where_nothing_can_be_tapped(rate: float, tmp_path: Path) -> None:
    assert_told(struck(VALUE, rate, tmp_path, REFUSED), rate)


def test_a_choice_of_the_builder_that_is_bad_is_named_with_the_operator(tmp_path: Path) -> None:
    fault = {**VALUE, "tactic": {NODE: "winograd"}}
    options = {"variants": {NODE: ["direct", "winograd"], "block7/Conv": ["a", "b"]}, "seed": 3}
    found = diagnose(zoo.chain_cnn(), [fault], tmp_path, options=options, budget=0)
    finding, why = found.finding, trail_of(found)
    assert (finding.cause, finding.culprit_nodes) == ("flaky_build", (NODE,)), why
    assert finding.repeats is not None, why
    (chosen,) = finding.repeats.chosen
    assert chosen.startswith(f"only bad builds chose 'winograd' for '{NODE}'")
