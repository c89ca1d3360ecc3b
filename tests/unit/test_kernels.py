"""What runs together, what passes between, and how far one can see inside."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from debugtaps import Graph, load_graph
from support.build import Net
from tapsect.localize.inside import Inside, look_inside
from tapsect.localize.kernels import Kernels
from tapsect.search.looks import Limit, Look

FREE: Limit[str] = Limit(1e9, lambda _: 0.0)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """x → Relu → (Neg → Abs → Tanh), Relu → Exp, both → Add → out."""
    net = Net()
    a = net.op("Relu", net.input("x", (2, 4)))
    left = net.op("Tanh", net.op("Abs", net.op("Neg", a)))
    net.output(net.op("Add", left, net.op("Exp", a)))
    model, _ = net.build().save(tmp_path)
    return load_graph(model, tmp_path / "work")


def names(graph: Graph, *ops: str) -> frozenset[str]:
    return frozenset(n.name for n in graph.nodes if n.op in ops)


def indices(graph: Graph, *ops: str) -> frozenset[int]:
    return frozenset(n.index for n in graph.nodes if n.op in ops)


def made(graph: Graph, op: str) -> str:
    return next(n.writes[0] for n in graph.nodes if n.op == op)


def test_what_stays_in_a_kernel_is_no_border(graph: Graph) -> None:
    kernels = Kernels(graph, [names(graph, "Neg", "Abs", "Tanh")])
    assert [kernels.border(made(graph, op)) for op in ("Relu", "Neg", "Abs", "Tanh", "Exp")] == [
        True, False, False, True, True,
    ]  # fmt: skip


def test_a_tensor_that_its_own_kernel_reads_is_no_border_whoever_else_does(graph: Graph) -> None:
    kernels = Kernels(graph, [names(graph, "Relu", "Neg")])
    assert not kernels.border(made(graph, "Relu"))  # Exp reads it, too


def test_what_is_made_in_two_kernels_is_no_border(graph: Graph) -> None:
    kernels = Kernels(graph, [names(graph, "Relu", "Neg"), names(graph, "Relu", "Exp")])
    assert not kernels.border(made(graph, "Relu"))


def test_names_that_the_model_does_not_know_make_no_kernel(graph: Graph) -> None:
    assert not Kernels(graph, [{"Multiply_12217", *names(graph, "Neg")}, set()])
    assert not Kernels(graph)


def test_a_node_may_be_told_by_what_it_writes(graph: Graph) -> None:
    told = {made(graph, "Exp"), *names(graph, "Add")}
    assert Kernels(graph, [told]).groups == (indices(graph, "Exp", "Add"),)


def test_a_region_is_named_by_the_kernel_that_runs_most_of_it(graph: Graph) -> None:
    told = [names(graph, "Neg", "Abs", "Tanh"), names(graph, "Exp", "Add")]
    kernels = Kernels(graph, told)
    neg, exp = (next(iter(names(graph, op))) for op in ("Neg", "Exp"))
    asked = indices(graph, "Abs", "Tanh", "Add")
    assert kernels.holding(asked) == indices(graph, "Neg", "Abs", "Tanh")
    assert kernels.name(indices(graph, "Exp")) == f"{exp}+{next(iter(names(graph, 'Add')))}"
    assert (kernels.name(asked) or "").startswith(neg)
    assert kernels.name(indices(graph, "Relu")) is None
    assert kernels.name(indices(graph, "Relu", "Exp")) is None  # no two of them run together


def test_kernels_are_alike_in_whatever_order_they_are_told(graph: Graph) -> None:
    first, second = names(graph, "Neg", "Abs"), names(graph, "Exp", "Add")
    assert Kernels(graph, [first, second]).alike(Kernels(graph, [second, first, first]))
    assert not Kernels(graph, [first, second]).alike(Kernels(graph, [first]))


def counted(disturbs: Callable[[Collection[str]], bool]) -> tuple[list[set[str]], object]:
    calls: list[set[str]] = []

    def probe(taps: Collection[str]) -> Look[str]:
        calls.append(set(taps))
        return Look(accepted=not disturbs(taps), relevant=frozenset("abcdefgh"))

    return calls, probe


def test_all_that_can_be_seen_is_seen_in_one_build() -> None:
    calls, probe = counted(lambda taps: False)
    assert look_inside("abcd", "xy", probe, FREE) == Inside(tuple("xyabcd"))  # type: ignore[arg-type]
    assert calls == [set("abcdxy")]


def test_a_kernel_that_heals_whenever_it_is_looked_into_is_left_after_three_builds() -> None:
    calls, probe = counted(lambda taps: bool(set(taps) & set("abcdefgh")))
    found = look_inside("abcdefgh", "x", probe, FREE)  # type: ignore[arg-type]
    assert found == Inside(("x",), together=tuple("abcdefgh"))
    assert len(calls) == 3


def test_the_half_that_disturbs_is_divided_again() -> None:
    calls, probe = counted(lambda taps: "c" in taps)
    found = look_inside("abcdefgh", "x", probe, FREE)  # type: ignore[arg-type]
    assert set(found.accepted) == set("xabdefgh")
    assert (found.healing, found.together) == (("c",), ())
    assert len(calls) <= 8


def test_taps_that_the_builder_refuses_are_told_from_healing_ones() -> None:
    def probe(taps: Collection[str]) -> Look[str]:
        return Look(accepted="a" not in taps, refused=True, relevant=frozenset("ab"))

    found = look_inside("ab", "", probe, FREE)
    assert (found.refusing, found.healing, found.accepted) == (("a",), (), ("b",))


def test_nothing_hidden_costs_nothing() -> None:
    calls, probe = counted(lambda taps: True)
    assert look_inside("", "x", probe, FREE) == Inside(("x",))  # type: ignore[arg-type]
    assert not calls


def test_what_does_not_fit_is_divided_without_a_build() -> None:
    calls, probe = counted(lambda taps: False)
    look_inside("abcd", "x", probe, Limit(3.0, lambda _: 1.0))  # type: ignore[arg-type]
    assert all(len(taps) <= 3 for taps in calls)
    assert calls
