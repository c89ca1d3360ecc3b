"""Reductions by checks that fail now and then, on small graphs."""

from __future__ import annotations

import random
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.reducing import FAULT, Graph, chain, residual
from tapsect.minimal.flaky import Repeated, measure, slice_of
from tapsect.reduction import Answer, Candidate, Confirm, Problem, Reduced, reduce
from tapsect.verdict import Signature, Verdict

quick = settings(max_examples=30, deadline=None)


def any_failure(_: Signature | None) -> bool:
    return True


class Ask(Protocol):
    def __call__(self, candidate: Candidate, number: int, lane: int = 0) -> Answer: ...


def firing(nodes: set[int], rate: float, draw: random.Random) -> Ask:
    """Returns a check that fails at ``rate`` while all of ``nodes`` are there."""

    def ask(candidate: Candidate, number: int, lane: int = 0) -> Answer:
        fires = candidate.nodes.issuperset(nodes) and draw.random() < rate
        return (Verdict.DIVERGES, FAULT) if fires else (Verdict.AGREES, None)

    return ask


def searched(graph: Graph, nodes: set[int], rate: float, seed: int) -> Reduced[Candidate]:
    """Returns what the whole way comes to: measured, searched, reduced with repeats."""
    ask = firing(nodes, rate, random.Random(seed))
    start = graph.whole()
    measured = measure(lambda n: ask(start, n), any_failure)
    found = slice_of(graph, start, ask, measured, any_failure)
    repeated = Repeated(ask, found.least, any_failure)
    problem = Problem(graph, start, repeated, recheck=repeated)
    result = reduce(problem, hint=found.nodes, confirm=Confirm(1, 1))
    assert isinstance(result, Reduced)
    return result


@pytest.mark.parametrize("rate", [0.7, 0.5])
def test_the_node_itself_is_left_in_95_of_100_runs(rate: float) -> None:
    right = 0
    for seed in range(100):
        true = random.Random(seed).randrange(40)
        left = searched(chain(40, alike=False), {true}, rate, seed).candidate.nodes
        right += left == {true}
    assert right >= 95


def test_joint_culprits_come_back_together() -> None:
    right = sum(
        searched(chain(30), {6, 21}, 0.7, seed).candidate.nodes == {6, 21} for seed in range(30)
    )
    assert right >= 28


@given(st.integers(0, 10**6), st.integers(1, 5))
@quick
def test_the_slice_holds_the_fault_when_it_is_sure(seed: int, blocks: int) -> None:
    graph = residual(blocks)
    draw = random.Random(seed)
    true = draw.randrange(len(graph.edges))
    ask = firing({true}, 0.8, draw)
    start = graph.whole()
    measured = measure(lambda n: ask(start, n), any_failure)
    found = slice_of(graph, start, ask, measured, any_failure)
    if found.sure and found.confidence > 0.999:
        assert true in found.nodes


@given(st.floats(0.2, 1.0), st.integers(0, 10**6))
@quick
def test_a_repeated_question_is_asked_no_more_than_needed(rate: float, seed: int) -> None:
    graph = chain(4)
    repeated = Repeated(firing({2}, rate, random.Random(seed)), rate, any_failure)
    verdict, _ = repeated(graph.whole())
    looks = repeated.looks[graph.whole()]
    assert looks <= repeated.times
    if verdict is Verdict.AGREES:
        assert looks == repeated.times


@pytest.mark.parametrize("need", [1, 2, 3])
def test_as_many_failures_are_seen_as_were_asked_for_and_no_look_is_used_twice(need: int) -> None:
    numbers: list[int] = []

    def ask(candidate: Candidate, number: int, lane: int = 0) -> Answer:
        numbers.append(number)
        fires = len(numbers) % 3 == 0
        return (Verdict.DIVERGES, FAULT) if fires else (Verdict.AGREES, None)

    repeated = Repeated(ask, 0.5, any_failure, need)
    start = chain(4).whole()
    for _ in range(2):
        assert repeated(start)[0] is Verdict.DIVERGES
    assert len(numbers) == len(set(numbers)) == 6 * need
