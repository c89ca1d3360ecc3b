from __future__ import annotations

from support.reducing import chain, graph
from tapsect.candidate import (
    Candidate,
    fed,
    looking_at,
    neighbours,
    restrict,
    ways_around,
    why_invalid,
    without,
)


def test_removing_an_end_looks_at_what_it_read() -> None:
    g = chain(4)
    assert without(g, g.whole(), {3}) == Candidate(frozenset({0, 1, 2}), ("t2",))


def test_removing_an_interior_node_feeds_its_readers_and_drops_its_writers() -> None:
    g = chain(4)
    cut = without(g, g.whole(), {1})
    assert cut == Candidate(frozenset({2, 3}), ("t3",))
    assert fed(g, cut) == ("t1",)


def test_bypassing_keeps_the_writers() -> None:
    g = chain(4)
    cut = without(g, g.whole(), {1}, bypass={"t1": "t0"})
    assert cut == Candidate(frozenset({0, 2, 3}), ("t3",), (("t1", "t0"),))
    assert fed(g, cut) == ("x0",)


def test_chains_of_bypasses_are_flat_so_that_equal_graphs_are_equal() -> None:
    g = chain(5)
    one_way = without(g, without(g, g.whole(), {2}, bypass={"t2": "t1"}), {1}, bypass={"t1": "t0"})
    other = without(g, without(g, g.whole(), {1}, bypass={"t1": "t0"}), {2}, bypass={"t2": "t0"})
    at_once = without(g, g.whole(), {1, 2}, bypass={"t1": "t0", "t2": "t1"})
    assert one_way == other == at_once
    assert at_once.bypass == (("t2", "t0"),)


def test_a_bypass_that_nobody_reads_is_dropped() -> None:
    g = chain(5)
    around = without(g, g.whole(), {1}, bypass={"t1": "t0"})
    assert without(g, around, {2}).bypass == ()


def test_an_exposed_tensor_that_a_kept_node_reads_is_not_looked_at() -> None:
    g = graph("x0", "t0", "t0 t1")
    assert without(g, g.whole(), {2}).outputs == ("t1",)


def test_other_outputs_stay_and_what_an_end_read_joins_them() -> None:
    g = graph("x0", "t0", "t1", "t0")
    assert g.whole().outputs == ("t2", "t3")
    assert without(g, g.whole(), {2}).outputs == ("t1", "t3")


def test_looking_at_fewer_outputs_drops_what_only_the_others_need() -> None:
    g = graph("x0", "t0", "t1", "t0")
    assert looking_at(g, g.whole(), ("t3",)) == Candidate(frozenset({0, 3}), ("t3",))


def test_constants_are_read_but_not_fed() -> None:
    g = graph("x0 c0", "t0 c1")
    assert fed(g, g.whole()) == ("x0",)
    assert fed(g, without(g, g.whole(), {0})) == ("t0",)


def test_a_start_that_was_never_tidied_is_tidied_by_its_first_cut() -> None:
    g = graph("x0", "t0", "t0")
    loose = Candidate(frozenset({0, 1, 2}), ("t2",))
    assert restrict(g, loose, {0, 1}) == Candidate(frozenset({0, 1}), ("t1",))
    assert restrict(g, loose, {1}) == Candidate(frozenset({1}), ("t1",))


def test_ways_around_offer_kept_then_fed_then_constant_reads_of_equal_type() -> None:
    g = graph("x0", "c0 x1 t0 x2", "t1", types={"x2": "i"})
    assert ways_around(g, g.whole(), 1) == [{"t1": "t0"}, {"t1": "x1"}, {"t1": "c0"}]


def test_an_end_has_no_way_around() -> None:
    g = chain(2)
    assert ways_around(g, g.whole(), 1) == []


def test_a_node_that_writes_several_tensors_is_bypassed_as_one() -> None:
    g = graph("x0", "t0 x1", "t1", "t1.1", wide=[1], types={"t1.1": "i", "x1": "i"})
    assert ways_around(g, g.whole(), 1) == [{"t1": "t0", "t1.1": "x1"}]


def test_neighbours_are_each_removal_and_each_bypass() -> None:
    g = chain(3)
    left = {tuple(sorted(c.nodes)) for c in neighbours(g, g.whole())}
    assert left == {(1, 2), (0, 2), (2,), (0, 1)}


def test_reasons_for_an_invalid_candidate_name_the_tensor() -> None:
    g = graph("x0", "t0", "t1", unfed=["t0"], types={"t1": "i"})
    assert why_invalid(g, g.whole()) == ""
    assert "nothing is left" in why_invalid(g, Candidate(frozenset(), ()))
    assert "'t0'" in why_invalid(g, without(g, g.whole(), {0}))
    assert "'t0' is not written" in why_invalid(g, Candidate(frozenset({1}), ("t0",)))
    assert "type or shape" in why_invalid(g, Candidate(frozenset({0, 2}), ("t2",), (("t1", "t0"),)))
    kept = Candidate(frozenset({0, 1, 2}), ("t2",), (("t1", "t0"),))
    assert "'t1' is bypassed although" in why_invalid(g, kept)
    twice = Candidate(frozenset({2}), ("t2",), (("t0", "x0"), ("t1", "t0")))
    assert "bypassed itself" in why_invalid(g, twice)
