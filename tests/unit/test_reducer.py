from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.reducing import (
    FAULT,
    Graph,
    Planted,
    assert_reduces_to,
    chain,
    culprits,
    graph,
    joint,
    reduced,
    residual,
)
from tapsect.candidate import without
from tapsect.reduction import (
    TABLE,
    Candidate,
    Confirm,
    DoesNotFail,
    Pass,
    Problem,
    Reduced,
    Reducible,
    reduce,
)
from tapsect.verdict import Signature, Verdict

Answer = tuple[Verdict, Signature | None]
FAILS: Answer = (Verdict.DIVERGES, FAULT)
AGREES: Answer = (Verdict.AGREES, None)
CRASH = Signature("crash")


def scripted(*answers: Answer) -> Iterator[Answer]:
    return iter(answers)


# Smallest cases, and how many questions they may cost


def test_one_node_is_its_own_minimum() -> None:
    assert_reduces_to(chain(1), culprits(0), [0], calls=4)


@pytest.mark.parametrize("culprit", range(0, 64, 3))
def test_one_culprit_in_a_chain_of_64(culprit: int) -> None:
    assert_reduces_to(chain(64), culprits(culprit), [culprit], calls=11)


@pytest.mark.parametrize("culprit", [0, 1, 299, 417, 598, 599])
@pytest.mark.parametrize("make", [lambda: chain(600), lambda: residual(200)])
def test_one_culprit_among_600(make: type[Graph], culprit: int) -> None:
    assert_reduces_to(make(), culprits(culprit), [culprit], calls=15)  # type: ignore[call-arg]


def test_a_right_hint_is_proved_in_five_calls() -> None:
    assert_reduces_to(chain(600), culprits(417), [417], hint=[417], calls=5)


def test_a_hint_two_nodes_off_is_cheaper_than_none() -> None:
    assert_reduces_to(chain(600), culprits(417), [417], hint=[415], calls=11)


def test_a_wrong_hint_costs_three_calls() -> None:
    assert_reduces_to(chain(600), culprits(417), [417], hint=[3], calls=15 + 3)


def test_a_hint_outside_the_start_is_ignored() -> None:
    assert_reduces_to(chain(8), culprits(5), [5], hint=[99])


def test_joint_culprits_50_apart_are_joined_by_bypassing() -> None:
    g = chain(64)
    assert_reduces_to(g, joint(g, 5, 55), [5, 55], calls=24)


def test_joint_culprits_in_a_residual_graph_are_joined_by_bypassing() -> None:
    g = residual(200)
    assert_reduces_to(g, joint(g, 204, 253), [204, 253], calls=31)


def test_joint_culprits_keep_only_what_must_lie_between_where_no_bypass_is_allowed() -> None:
    g = chain(64, alike=False)
    assert_reduces_to(g, joint(g, 5, 55), range(5, 56), calls=70)


def test_one_node_of_a_type_of_its_own_stays_between_joint_culprits() -> None:
    g = Graph(chain(64).edges, {"t30": "i"})
    assert_reduces_to(g, joint(g, 5, 55), [5, 30, 31, 55])


def test_three_scattered_culprits() -> None:
    assert_reduces_to(residual(200), culprits(5, 300, 590), [5, 300, 590], calls=57)


def test_a_branch_that_does_not_matter_is_folded_away() -> None:
    g = graph("x0", "t0", "t1", "t2", "t0", "t4", "t5", "t3 t6", types={"t4": "i", "t7": "j"})
    assert_reduces_to(g, joint(g, 0, 7), [0, 7])


def test_a_bypass_whose_writer_went_is_taken_back() -> None:
    g = graph("x0", "t0", "t1", unfed=["t0"], types={"x0": "i"})
    around = without(g, g.whole(), {1}, bypass={"t1": "t0"})
    problem = Problem(g, around, Planted(culprits(2)))
    next(row for row in TABLE if row.name == "feed-directly").run(problem)
    assert problem.calls == 0  # node 0 still writes what is read
    cut = Candidate(frozenset({2}), ("t2",), (("t1", "t0"),))
    problem = Problem(Graph(g.edges), cut, Planted(culprits(2)))
    next(row for row in TABLE if row.name == "feed-directly").run(problem)
    assert problem.current == Candidate(frozenset({2}), ("t2",))


def test_outputs_that_do_not_matter_are_not_looked_at() -> None:
    g = graph("x0", "t0", "t0", "t0", "t0")
    result = assert_reduces_to(g, joint(g, 0, 3), [0, 3])
    assert result.candidate.outputs == ("t3",)


def test_a_failure_that_needs_a_large_graph_keeps_a_large_graph() -> None:
    result = reduced(residual(20), lambda c: len(c.nodes) > 33)
    assert len(result.candidate.nodes) == 34
    assert result.one_minimal


# The start


def test_a_start_that_agrees_is_refused_after_one_call() -> None:
    g = chain(8)
    problem = Problem(g, g.whole(), Planted(lambda _: False))
    assert reduce(problem) == DoesNotFail((AGREES,), unstable=False)
    assert problem.calls == 1


def test_a_start_that_fails_only_once_is_unstable() -> None:
    g = chain(8)
    answers = scripted(FAILS, AGREES)
    result = reduce(Problem(g, g.whole(), lambda _: next(answers)))
    assert result == DoesNotFail((FAILS, AGREES), unstable=True)


def test_a_start_that_fails_in_two_ways_is_unstable() -> None:
    g = chain(8)
    answers = scripted(FAILS, (Verdict.DIVERGES, CRASH))
    result = reduce(Problem(g, g.whole(), lambda _: next(answers)))
    assert isinstance(result, DoesNotFail)
    assert result.unstable


def test_a_start_that_says_unstable_is_unstable() -> None:
    g = chain(8)
    result = reduce(Problem(g, g.whole(), lambda _: (Verdict.UNSTABLE, None)))
    assert isinstance(result, DoesNotFail)
    assert result.unstable


def test_a_start_that_fails_otherwise_than_was_said_is_refused() -> None:
    g = chain(8)
    result = reduce(Problem(g, g.whole(), Planted(culprits(3)), signature=CRASH))
    assert result == DoesNotFail((FAILS, FAILS), unstable=False)


def test_a_start_that_cannot_be_built_is_refused_without_a_call() -> None:
    g = graph("x0", "t0", unfed=["x0"])
    problem = Problem(g, g.whole(), Planted(culprits(1)))
    assert reduce(problem) == DoesNotFail(((Verdict.INVALID, None),), unstable=False)
    assert problem.calls == 0


# Verdicts on the way


def test_another_failure_is_refused_and_listed_once_at_its_smallest() -> None:
    g = chain(32)

    def check(candidate: Candidate) -> Answer:
        if {10, 20} <= candidate.nodes:
            return FAILS
        return (Verdict.DIVERGES, CRASH) if 20 in candidate.nodes else AGREES

    result = reduce(Problem(g, g.whole(), check))
    assert isinstance(result, Reduced)
    assert sorted(result.candidate.nodes) == [10, 20]
    (other,) = result.other_failures
    assert (other.signature, sorted(other.candidate.nodes)) == (CRASH, [20])


def test_a_failure_without_signature_counts_as_the_same() -> None:
    g = chain(16)
    fails = culprits(9)
    check = lambda c: (Verdict.DIVERGES, None) if fails(c) else AGREES  # noqa: E731
    result = reduce(Problem(g, g.whole(), check))
    assert isinstance(result, Reduced)
    assert sorted(result.candidate.nodes) == [9]
    assert result.signature is None


def test_candidates_without_recorded_values_are_never_asked() -> None:
    g = graph("x0", "t0", "t1", "t2", "t3", unfed=["t1", "t2"], types={"t0": "i", "t2": "j"})
    planted = Planted(culprits(3))
    result = reduce(Problem(g, g.whole(), planted))
    assert isinstance(result, Reduced)
    assert sorted(result.candidate.nodes) == [1, 2, 3]
    assert result.one_minimal
    assert all(1 in c.nodes or 3 not in c.nodes for c in planted.asked)


def test_candidates_that_do_not_build_are_stepped_around() -> None:
    g = chain(64)

    def check(candidate: Candidate) -> Answer:
        if 29 <= max(candidate.nodes) <= 33:
            return Verdict.INVALID, None
        return FAILS if 41 in candidate.nodes else AGREES

    result = reduce(Problem(g, g.whole(), check))
    assert isinstance(result, Reduced)
    assert sorted(result.candidate.nodes) == [41]


def test_a_neighbour_that_is_unstable_leaves_minimality_open() -> None:
    g = chain(8)

    def check(candidate: Candidate) -> Answer:
        if candidate.nodes == {5}:
            return Verdict.UNSTABLE, None
        return FAILS if joint(g, 3, 5)(candidate) else AGREES

    result = reduce(Problem(g, g.whole(), check))
    assert isinstance(result, Reduced)
    assert not result.one_minimal
    assert {c.nodes for c in result.undecided} == {frozenset({5})}


# The end


def test_two_fresh_failures_are_enough() -> None:
    result = reduced(chain(8), culprits(3))
    assert (result.reproduced, result.of, result.confirmed) == (2, 2, True)


@pytest.mark.parametrize(
    ("answers", "reproduced", "confirmed"),
    [((FAILS, AGREES, FAILS), 2, True), ((AGREES, FAILS, AGREES), 1, False)],
)
def test_a_miss_makes_all_fresh_checks_count(
    answers: tuple[Answer, ...], reproduced: int, confirmed: bool
) -> None:
    g = chain(8)
    fresh = scripted(FAILS, *answers)  # the first is the second look at the start
    problem = Problem(g, g.whole(), Planted(culprits(3)), recheck=lambda _: next(fresh))
    result = reduce(problem, confirm=Confirm(need=2, of=3))
    assert isinstance(result, Reduced)
    assert (result.reproduced, result.of, result.confirmed) == (reproduced, 3, confirmed)


def test_the_trail_accounts_for_every_call() -> None:
    result = reduced(residual(20), culprits(4, 44))
    assert [stage.name for stage in result.trail][0] == "start"
    assert [stage.name for stage in result.trail][-1] == "confirm"
    assert sum(stage.calls for stage in result.trail) == result.calls


# The order of candidates, the cache and the budget


def test_equal_problems_end_equal() -> None:
    fails = lambda c: sum(c.nodes) % 7 == sum(range(60)) % 7  # noqa: E731
    assert reduced(residual(20), fails) == reduced(residual(20), fails)


def test_what_was_asked_before_does_not_change_the_result() -> None:
    g = residual(8)
    fails = joint(g, 3, 16)
    problem = Problem(g, g.whole(), Planted(fails))
    for node in reversed(g.order()):
        problem.answer(without(g, g.whole(), {node}))
    result = reduce(problem)
    assert isinstance(result, Reduced)
    assert result.candidate == reduced(g, fails).candidate


def test_no_candidate_is_asked_twice() -> None:
    g = residual(10)
    planted = Planted(lambda c: len(c.nodes) > 12)
    reduce(Problem(g, g.whole(), planted, recheck=Planted(lambda _: True)))
    assert len(set(planted.asked)) == len(planted.asked)


def test_a_larger_candidate_that_fails_does_not_become_current() -> None:
    g = chain(4)
    problem = Problem(g, without(g, g.whole(), {3}), Planted(culprits(1)))
    assert problem.consider(g.whole())
    assert sorted(problem.current.nodes) == [0, 1, 2]


def test_fewer_nodes_count_before_fewer_inputs_and_outputs() -> None:
    g = graph("x0", "t0", "t0", "x1")
    problem = Problem(g, g.whole(), Planted(culprits(0)))
    one, two = Candidate(frozenset({2}), ("t2",)), Candidate(frozenset({0, 2}), ("t2",))
    both = Candidate(frozenset({1, 2}), ("t1", "t2"))
    apart = Candidate(frozenset({1, 3}), ("t1", "t3"))
    assert sorted([apart, both, two, one], key=problem.sort_key) == [one, two, both, apart]


def test_a_spent_budget_stops_only_passes_that_beautify() -> None:
    g = residual(8)
    problem = Problem(g, g.whole(), Planted(lambda c: len(c.nodes) > 9), spent=lambda: True)
    result = reduce(problem)
    assert isinstance(result, Reduced)
    assert len(result.candidate.nodes) == 10
    assert result.one_minimal
    assert "fold-branch" not in [stage.name for stage in result.trail]


def test_without_any_pass_the_proof_alone_still_finds_a_minimum() -> None:
    g = chain(6)
    result = reduce(Problem(g, g.whole(), Planted(joint(g, 1, 4))), passes=())
    assert isinstance(result, Reduced)
    assert sorted(result.candidate.nodes) == [1, 4]
    assert result.one_minimal


# The table


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_pass_alone_with_the_proof_finds_a_minimum(row: Pass) -> None:
    g = residual(4)
    result = reduce(Problem(g, g.whole(), Planted(joint(g, 1, 10))), passes=[row])
    assert isinstance(result, Reduced)
    assert result.one_minimal
    assert sorted(result.candidate.nodes) == [1, 10]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_pass_has_the_name_of_its_function_and_says_what_it_tries(row: Pass) -> None:
    name = getattr(row.run, "__name__", "")
    assert row.name == name.replace("_", "-")
    assert "Guarantees to have tried:" in (row.run.__doc__ or "")
    assert row.purpose


def test_a_pass_that_finds_nothing_is_not_run_again_on_what_it_saw() -> None:
    seen: list[Candidate] = []

    def idle(problem: Reducible) -> None:
        seen.append(problem.current)

    g = chain(8)
    rows = [Pass("idle", "does nothing", idle, "shrink"), *TABLE]
    reduce(Problem(g, g.whole(), Planted(culprits(3))), passes=rows)
    assert len(set(seen)) == len(seen) == 2
