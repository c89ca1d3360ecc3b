"""Several checks at a time: begun early, and never different."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.reducing import FAULT, chain, culprits, residual
from tapsect.ahead import Ahead
from tapsect.reduction import Answer, Candidate, Problem, Reduced, reduce
from tapsect.verdict import Verdict


def asked_in_lanes(fails: object, jobs: int, seen: list[Candidate]) -> Ahead[Candidate, Answer]:
    def ask(candidate: Candidate, lane: int) -> Answer:
        assert 0 <= lane < jobs
        seen.append(candidate)
        time.sleep(random.random() * 1e-3)
        return (Verdict.DIVERGES, FAULT) if fails(candidate) else (Verdict.AGREES, None)  # type: ignore[operator]

    return Ahead(ask, jobs)


@given(st.sets(st.integers(0, 14), min_size=1, max_size=3), st.integers(1, 5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_result_is_that_of_one_at_a_time(nodes: set[int], jobs: int, forked: bool) -> None:
    graph = residual(5) if forked else chain(15)
    found = []
    for lanes in (1, jobs):
        ahead = asked_in_lanes(culprits(*nodes), lanes, [])
        problem = Problem(graph, graph.whole(), ahead, ahead=ahead.begin if lanes > 1 else None)
        found.append(reduce(problem))
        ahead.close()
    assert found[0] == found[1]


def test_checks_overlap_and_lanes_are_not_shared() -> None:
    busy: set[int] = set()
    most = 0
    lock = threading.Lock()

    def ask(candidate: Candidate, lane: int) -> Answer:
        nonlocal most
        with lock:
            assert lane not in busy
            busy.add(lane)
            most = max(most, len(busy))
        time.sleep(0.002)
        with lock:
            busy.discard(lane)
        return (Verdict.DIVERGES, FAULT) if {2, 9} <= candidate.nodes else (Verdict.AGREES, None)

    graph = chain(12, alike=False)
    ahead = Ahead(ask, 3)
    result = reduce(Problem(graph, graph.whole(), ahead, ahead=ahead.begin))
    ahead.close()
    assert isinstance(result, Reduced)
    assert most == 3


def test_an_error_of_a_check_reaches_who_asked() -> None:
    def ask(candidate: Candidate, lane: int) -> Answer:
        raise RuntimeError("no such program")

    graph = chain(3)
    ahead = Ahead(ask, 2)
    with pytest.raises(RuntimeError, match="no such program"):
        reduce(Problem(graph, graph.whole(), ahead, ahead=ahead.begin))
    ahead.close()


def test_what_else_is_done_has_a_lane_of_its_own() -> None:
    busy, go = threading.Event(), threading.Event()

    def ask(_: int, lane: int) -> int:
        busy.set()
        assert go.wait(20)
        return lane

    ahead = Ahead(ask, 2)
    ahead.begin([7])
    assert busy.wait(20)
    assert ahead.run(lambda lane: lane) == 1
    go.set()
    assert ahead(7) == 0
    ahead.close()


def test_what_failed_beside_something_else_is_asked_again_alone() -> None:
    both, asked, kept = threading.Barrier(2), list[str](), list[tuple[str, str]]()

    def ask(question: str, _: int) -> str:
        asked.append(question)
        if question.startswith("both") and asked.count(question) == 1:
            both.wait(20)
            return "late"
        return "late" if question == "late" else "fine"

    ahead = Ahead(
        ask, 2, keep=lambda *answer: kept.append(answer), squeezed=lambda answer: answer == "late"
    )
    assert ahead("late") == "late"
    assert asked == ["late"]  # nothing was beside it
    assert kept == [("late", "late")]
    assert not ahead.crowded
    ahead.begin(["both 1", "both 2"])
    assert [ahead("both 1"), ahead("both 2")] == ["fine", "fine"]
    assert sorted(asked[1:]) == ["both 1", "both 1", "both 2", "both 2"]
    assert kept[1:] == [("both 1", "fine"), ("both 2", "fine")]
    assert ahead.crowded
    ahead.begin(["more"])
    assert "more" not in ahead
    ahead.close()
