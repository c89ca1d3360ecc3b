"""Where, without values: a crash, a hang or a build that fails.

The message may name an operator: its neighbourhood is tried first.  Else prefixes of the model
are built: the shortest that fails ends in the operator that was missing.  The border is looked
at from both sides; where prefixes are not monotone the whole goes to the reducer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from debugtaps import EngineFailure, Graph
from tapsect.candidate import Candidate
from tapsect.localize.confirm import Confirmed, confirm, grown
from tapsect.localize.examine import Examiner
from tapsect.progress import Progress
from tapsect.search.foresight import begun_early
from tapsect.search.line import first_bad
from tapsect.topology import Topology
from tapsect.verdict import Verdict

__all__ = ["Predicated", "locate_failure", "named_nodes", "prefix_of"]


@dataclass(frozen=True, slots=True)
class Predicated:
    """What the predicate search found: a part that fails by itself, and how."""

    confirmed: Confirmed | None
    node: int | None
    how: str


def named_nodes(graph: Graph, failure: EngineFailure) -> list[int]:
    """Returns the operators that a message names, by node or tensor, best match first."""
    text = f"{failure.message}\n{failure.tail[-2000:]}"
    words = set(re.findall(r"[^\s'\"()\[\],;:]+", text))
    words |= {w.rstrip(".") for w in words}
    quoted = set(re.findall(r"'([^']+)'|\"([^\"]+)\"", text))
    words |= {w for pair in quoted for w in pair if w}
    nodes = [n.index for n in graph.nodes if n.name in words]
    tensors = [
        n.index for n in graph.nodes if any(t in words for t in n.writes) and n.index not in nodes
    ]
    return [*nodes, *tensors][:4]


def locate_failure(
    examiner: Examiner, topology: Topology, failure: EngineFailure, progress: Progress
) -> Predicated:
    """Returns the smallest part around the operator whose presence makes the engine fail."""
    graph = topology.graph
    named = named_nodes(graph, failure)
    if named:
        progress.step("locate", f"the message names {graph.nodes[named[0]].name!r}")
        found = confirm(examiner, _around(topology, named), most=4)
        if found is not None:
            return Predicated(found, named[0], "the engine's message names it")
    return _by_prefix(examiner, topology, progress)


def _around(topology: Topology, named: Sequence[int]) -> Iterator[Candidate]:
    graph = topology.graph
    first = graph.nodes[named[0]]
    shown = [t for t in first.writes if topology.is_read(t)] or list(first.writes)
    for number, candidate in enumerate(
        grown(topology, [first.index], shown[0], tuple(graph.outputs))
    ):
        yield candidate
        if number >= 3:
            return


def _by_prefix(examiner: Examiner, topology: Topology, progress: Progress) -> Predicated:
    graph = topology.graph
    total = len(graph.nodes)

    def probe(count: int) -> Verdict:
        progress.step("locate", f"building the first {count} of {total} operators")
        candidate = prefix_of(topology, count)
        if candidate is None:
            return Verdict.INVALID
        examined = examiner.examine(candidate, "reference")
        if examined.verdict is Verdict.DIVERGES and examined.signature is not None:
            same = examined.signature.kind == examiner.kind
            return Verdict.DIVERGES if same else Verdict.INVALID
        return examined.verdict

    def begin(counts: Iterable[int]) -> None:
        prefixes = (prefix_of(topology, count) for count in counts)
        examiner.begin(((each, 0) for each in prefixes if each is not None), "reference")

    either = (Verdict.DIVERGES, Verdict.AGREES)
    found = begun_early(lambda ask: first_bad(total, ask), probe, begin, lambda _: either)
    index = found.index
    if index is None or not found.monotone:
        whole = confirm(examiner, [_whole(graph)], most=1)
        return Predicated(whole, None, "prefixes of the model do not fail in order")
    node = graph.nodes[index - 1]
    shown = [t for t in node.writes if topology.is_read(t)] or list(node.writes)
    candidates = grown(topology, [node.index], shown[0], tuple(graph.outputs))
    confirmed = confirm(examiner, candidates, sources=("reference",))
    if confirmed is None:
        prefix = prefix_of(topology, index)
        confirmed = confirm(examiner, [prefix] if prefix else [], most=1)
    alone = "operator alone does" if index == 2 else f"{index - 1} operators alone do"
    why = f"the first {alone} not fail" if index > 1 else "the first operator alone fails"
    return Predicated(confirmed, node.index, why)


def prefix_of(topology: Topology, count: int) -> Candidate | None:
    """Returns the first ``count`` operators, showing what the rest or the outputs read."""
    graph = topology.graph
    nodes = frozenset(range(count))
    shown = tuple(
        t for i in range(count) for t in graph.nodes[i].writes
        if t not in graph.untensors and (
            t in graph.outputs or any(c >= count for c in graph.consumers.get(t, ()))
        )
    )  # fmt: skip
    return Candidate(nodes, shown) if shown else None


def _whole(graph: Graph) -> Candidate:
    return Candidate(
        frozenset(range(len(graph.nodes))), tuple(t for t in graph.outputs if t in graph.producer)
    )
