"""Verbs for tests of the reducer: graphs as a few words, faults that are planted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tapsect.reduction import Candidate, DoesNotFail, Problem, Reduced, reduce
from tapsect.verdict import Signature, Verdict

FAULT = Signature("accuracy")


@dataclass(frozen=True)
class Graph:
    """A graph as a table: node i reads ``edges[i]`` and writes ``t<i>``; inputs are ``x<i>``.

    ``types`` gives each tensor a type (``"f"`` unless said); tensors in ``unfed`` have no
    recorded value; names that begin with ``c`` are constants; nodes in ``wide`` write a second
    tensor ``t<i>.1``.
    """

    edges: tuple[tuple[str, ...], ...]
    types: Mapping[str, str] = field(default_factory=dict)
    unfed: frozenset[str] = frozenset()
    wide: frozenset[int] = frozenset()

    def order(self) -> Sequence[int]:
        return range(len(self.edges))

    def reads(self, node: int) -> Sequence[str]:
        return self.edges[node]

    def writes(self, node: int) -> Sequence[str]:
        return (f"t{node}", f"t{node}.1") if node in self.wide else (f"t{node}",)

    def producer(self, tensor: str) -> int | None:
        return int(tensor[1:].split(".")[0]) if tensor.startswith("t") else None

    def consumers(self, tensor: str) -> Sequence[int]:
        return [node for node, reads in enumerate(self.edges) if tensor in reads]

    def same_type(self, a: str, b: str) -> bool:
        return self.types.get(a, "f") == self.types.get(b, "f")

    def is_constant(self, tensor: str) -> bool:
        return tensor.startswith("c")

    def feedable(self, tensor: str) -> bool:
        return tensor not in self.unfed

    def whole(self) -> Candidate:
        """Returns the whole graph, looking at every tensor that nobody reads."""
        written = [tensor for node in self.order() for tensor in self.writes(node)]
        ends = tuple(tensor for tensor in written if not self.consumers(tensor))
        return Candidate(frozenset(self.order()), ends)


def graph(
    *edges: str,
    types: Mapping[str, str] | None = None,
    unfed: Iterable[str] = (),
    wide: Iterable[int] = (),
) -> Graph:
    """Returns a graph from what each node reads, as words: ``graph("x0", "t0", "t0 t1")``."""
    reads = tuple(tuple(words.split()) for words in edges)
    return Graph(reads, types or {}, frozenset(unfed), frozenset(wide))


def chain(length: int, *, alike: bool = True) -> Graph:
    """Returns a chain; unless ``alike``, no two neighbours have one type: no bypass is allowed."""
    edges = tuple((f"t{n - 1}" if n else "x0",) for n in range(length))
    types = {} if alike else {f"t{n}": f"f{n}" for n in range(length)}
    return Graph(edges, types)


def residual(blocks: int) -> Graph:
    """Returns blocks of two nodes with a shortcut around them, joined by a third."""
    edges: list[tuple[str, ...]] = []
    stream = "x0"
    for _ in range(blocks):
        n = len(edges)
        edges += [(stream,), (f"t{n}",), (stream, f"t{n + 1}")]
        stream = f"t{n + 2}"
    return Graph(tuple(edges))


def reaches(graph: Graph, candidate: Candidate, source: int, target: int) -> bool:
    """Returns whether what ``source`` computes flows into ``target`` inside a candidate."""
    bypass = dict(candidate.bypass)
    wet = set(graph.writes(source))
    for node in graph.order():
        if node in candidate.nodes and any(bypass.get(t, t) in wet for t in graph.edges[node]):
            wet.update(graph.writes(node))
    return {source, target} <= candidate.nodes and f"t{target}" in wet


@dataclass
class Planted:
    """A check that fails where ``fails`` says so, and remembers what it was asked."""

    fails: Callable[[Candidate], bool]
    signature: Signature = FAULT
    asked: list[Candidate] = field(default_factory=list)

    def __call__(self, candidate: Candidate) -> tuple[Verdict, Signature | None]:
        self.asked.append(candidate)
        if self.fails(candidate):
            return Verdict.DIVERGES, self.signature
        return Verdict.AGREES, None


def culprits(*nodes: int) -> Callable[[Candidate], bool]:
    """Returns a fault that shows wherever all of ``nodes`` are."""
    return lambda candidate: candidate.nodes.issuperset(nodes)


def joint(graph: Graph, first: int, second: int) -> Callable[[Candidate], bool]:
    """Returns a fault that shows where the result of ``first`` flows into ``second``."""
    return lambda candidate: reaches(graph, candidate, first, second)


def reduced(
    graph: Graph, fails: Callable[[Candidate], bool], *, hint: Iterable[int] = ()
) -> Reduced[Candidate]:
    """Returns the result of reducing the whole graph, which must fail."""
    result = reduce(Problem(graph, graph.whole(), Planted(fails)), hint=hint)
    assert not isinstance(result, DoesNotFail), f"the start does not fail: {result.seen}"
    return result


def assert_reduces_to(
    graph: Graph,
    fails: Callable[[Candidate], bool],
    target: Collection[int],
    *,
    calls: int | None = None,
    hint: Iterable[int] = (),
) -> Reduced[Candidate]:
    """Reduces the whole graph and asserts what is left, and at most how many calls it took."""
    result = reduced(graph, fails, hint=hint)
    left = sorted(result.candidate.nodes)
    steps = ", ".join(f"{s.name} {s.before}>{s.after} in {s.calls}" for s in result.trail)
    assert left == sorted(target), f"reduced to {left}, wanted {sorted(target)}: {steps}"
    assert result.one_minimal, f"not proved 1-minimal: {steps}"
    assert result.confirmed
    if calls is not None:
        assert result.calls <= calls, f"took {result.calls} calls, allowed {calls}: {steps}"
    return result
