"""Reductions of arbitrary small graphs, against a brute force that shares no code with them."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from support.reducing import FAULT, Graph, Planted, reaches
from tapsect.reduction import Candidate, Problem, Reduced, reduce
from tapsect.verdict import Signature, Verdict

quick = settings(max_examples=200, deadline=None)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs with forks, joins, constants, two types and tensors without values."""
    count = draw(st.integers(1, 9))
    wide = frozenset(draw(st.sets(st.integers(0, count - 1), max_size=2)))
    tensors = ["x0", "x1", "c0"]
    edges: list[tuple[str, ...]] = []
    for node in range(count):
        recent = st.sampled_from(tensors[-4:])
        edges.append(tuple(draw(st.lists(recent, min_size=1, max_size=3, unique=True))))
        tensors += [f"t{node}", f"t{node}.1"] if node in wide else [f"t{node}"]
    types = {tensor: draw(st.sampled_from("ffg")) for tensor in tensors}
    unfed = draw(st.sets(st.sampled_from(tensors[3:]), max_size=2))
    return Graph(tuple(edges), types, frozenset(unfed), wide)


def brute_neighbours(graph: Graph, candidate: Candidate) -> Iterator[Candidate]:
    """Yields every valid candidate with one node less, worked out from the definition."""
    bypass = dict(candidate.bypass)

    def source(tensor: str, extra: dict[str, str]) -> str:
        while tensor in extra or tensor in bypass:
            tensor = extra.get(tensor) or bypass[tensor]
        return tensor

    for gone in candidate.nodes:
        options: list[dict[str, str]] = [{}]
        outs = [
            out
            for out in graph.writes(gone)
            if any(out == source(r, {}) for n in candidate.nodes for r in graph.edges[n])
        ]
        ins = [source(r, {}) for r in graph.edges[gone]]
        if len(outs) == 1:
            options += [{outs[0]: r} for r in ins if graph.same_type(outs[0], r)]
        for extra in options:
            yield from _valid(graph, candidate, gone, lambda t, e=extra: source(t, e), extra)  # type: ignore[misc]


def _valid(
    graph: Graph,
    candidate: Candidate,
    gone: int,
    source: Callable[[str], str],
    extra: dict[str, str],
) -> Iterator[Candidate]:
    kept = candidate.nodes - {gone}
    written = {out: node for node in kept for out in graph.writes(node)}
    outputs = {out for out in candidate.outputs if out in written}
    if outputs != set(candidate.outputs):
        read = {source(r) for node in kept for r in graph.edges[node]}
        outputs |= {source(r) for r in graph.edges[gone] if source(r) in written} - read
    live: set[int] = set()
    used: set[tuple[str, str]] = set()
    todo = [written[out] for out in outputs]
    while todo:
        node = todo.pop()
        live.add(node)
        for r in graph.edges[node]:
            s = source(r)
            if s != r:
                used.add((r, s))
            if s in written and written[s] not in live:
                todo.append(written[s])
            elif s not in written and not graph.is_constant(s) and not graph.feedable(s):
                return
    if live:
        ends = [o for n in sorted(live) for o in graph.writes(n) if o in outputs]
        yield Candidate(frozenset(live), tuple(ends), tuple(sorted(used)))


def assert_one_minimal(graph: Graph, fails: Callable[[Candidate], bool]) -> None:
    planted = Planted(fails)
    result = reduce(Problem(graph, graph.whole(), planted, recheck=Planted(fails)))
    assert isinstance(result, Reduced)
    assert fails(result.candidate)
    assert result.one_minimal
    assert result.confirmed
    assert len(set(planted.asked)) == len(planted.asked)
    for smaller in brute_neighbours(graph, result.candidate):
        assert not fails(smaller), f"{result.candidate} is not minimal: {smaller}"


@quick
@given(graph=graphs(), data=st.data())
def test_monotone_faults_reduce_to_a_minimum(graph: Graph, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.sampled_from(list(graph.order())), min_size=1, max_size=3))
    assert_one_minimal(graph, lambda c: needed <= c.nodes)


@quick
@given(graph=graphs(), data=st.data())
def test_joint_faults_reduce_to_a_minimum(graph: Graph, data: st.DataObject) -> None:
    pairs = [
        (a, b)
        for a, b in itertools.combinations(graph.order(), 2)
        if reaches(graph, graph.whole(), a, b)
    ]
    if pairs:
        first, second = data.draw(st.sampled_from(pairs))
        assert_one_minimal(graph, lambda c: reaches(graph, c, first, second))


@quick
@given(graph=graphs(), seed=st.integers(0, 9999), sides=st.integers(1, 6))
def test_arbitrary_faults_reduce_to_a_minimum(graph: Graph, seed: int, sides: int) -> None:
    def fails(candidate: Candidate) -> bool:
        key = (seed, sorted(candidate.nodes), candidate.outputs, candidate.bypass)
        whole = candidate == graph.whole()
        return whole or zlib.crc32(repr(key).encode()) % sides == 0

    assert_one_minimal(graph, fails)


@quick
@given(graph=graphs(), seed=st.integers(0, 9999))
def test_no_verdict_lets_the_reduction_slip(graph: Graph, seed: int) -> None:
    """Whatever the mixture of verdicts, what is returned shows the fault of the start."""

    def check(candidate: Candidate) -> tuple[Verdict, Signature | None]:
        if candidate == graph.whole():
            return Verdict.DIVERGES, FAULT
        key = (seed, sorted(candidate.nodes), candidate.outputs, candidate.bypass)
        roll = zlib.crc32(repr(key).encode()) % 6
        if roll < 2:
            return Verdict.DIVERGES, FAULT if roll else Signature("crash")
        return list(Verdict)[roll - 2], FAULT

    result = reduce(Problem(graph, graph.whole(), check))
    assert isinstance(result, Reduced)
    assert check(result.candidate) == (Verdict.DIVERGES, FAULT)
    assert result.one_minimal == (not result.undecided)
    assert all(other.signature == Signature("crash") for other in result.other_failures)
    assert reduce(Problem(graph, graph.whole(), check)) == result
