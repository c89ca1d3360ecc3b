"""What of a graph is drawn around a place, and where: near nodes one by one, far ones folded.

The layout is layered: y is the node's depth in the model, with empty layers left out, x an order
within the layer that brings neighbours together (the barycentre heuristic of K. Sugiyama et al.,
"Methods for visual understanding of hierarchical system structures", 1981).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tapsect.traced import Operator

__all__ = ["Drawing", "Fold", "neighbourhood"]

NEAR = 120
"""Nodes that are drawn one by one."""
SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Fold:
    """Far nodes that are drawn as one."""

    nodes: tuple[int, ...]
    before: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn: near nodes, then folds; a place and the edges between them.

    Attributes:
        nodes: Numbers of the operators that are drawn one by one.
        folds: The others.
        places: (x, y) of each node and then of each fold.
        edges: Pairs of positions in ``places``, from producer to reader.
        home: For every operator, its position in ``places``.
    """

    nodes: tuple[int, ...]
    folds: tuple[Fold, ...]
    places: tuple[tuple[float, float], ...]
    edges: tuple[tuple[int, int], ...]
    home: Mapping[int, int]


def neighbourhood(
    operators: Sequence[Operator], centre: Collection[int], *, near: int = NEAR
) -> Drawing:
    """Returns the drawing around ``centre``.

    Args:
        operators: The whole graph.
        centre: Numbers of the operators it is about; the first one when empty.
        near: How many nodes are drawn one by one.  ``centre`` always is.

    Cost: linear in the graph, but for the sweeps over what is drawn.
    """
    readers = _readers(operators)
    kept = _near(operators, readers, list(centre) or [0], near)
    folds = _folds(operators, readers, kept)
    nodes = tuple(sorted(kept))
    home = {n: i for i, n in enumerate(nodes)}
    for number, fold in enumerate(folds, len(nodes)):
        home.update(dict.fromkeys(fold.nodes, number))
    edges = {
        (home[source], home[n])
        for n, each in enumerate(operators) for source in each.reads if home[source] != home[n]
    }  # fmt: skip
    levels = _levels(operators, nodes, folds, edges)
    places = _places(levels, edges)
    return Drawing(nodes, folds, places, tuple(sorted(edges)), home)


def _readers(operators: Sequence[Operator]) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for number, each in enumerate(operators):
        for source in each.reads:
            found[source].append(number)
    return found


def _near(
    operators: Sequence[Operator], readers: Mapping[int, list[int]], centre: list[int], near: int
) -> set[int]:
    """Returns the nodes nearest to the centre, counted in edges of either direction."""
    kept, ring = set(centre), list(centre)
    while ring:
        beyond: list[int] = []
        for node in ring:
            for other in (*operators[node].reads, *readers.get(node, ())):
                if len(kept) >= near:
                    return kept
                if other not in kept:
                    kept.add(other)
                    beyond.append(other)
        ring = beyond
    return kept


def _folds(
    operators: Sequence[Operator], readers: Mapping[int, list[int]], kept: set[int]
) -> tuple[Fold, ...]:
    """Returns the far nodes in connected pieces; what the near ones need apart from the rest."""
    before = _reached(kept, lambda n: operators[n].reads) - kept
    folds = []
    for side in (True, False):
        left = {n for n in range(len(operators)) if n not in kept and (n in before) is side}
        while left:
            piece: set[int] = set()
            waiting = [min(left)]
            while waiting:
                node = waiting.pop()
                if node not in left:
                    continue
                left.discard(node)
                piece.add(node)
                waiting += [*operators[node].reads, *readers.get(node, ())]
            folds.append(Fold(tuple(sorted(piece)), before=side))
    return tuple(folds)


def _reached(start: Collection[int], step: Callable[[int], Iterable[int]]) -> set[int]:
    found, waiting = set(start), list(start)
    while waiting:
        for other in step(waiting.pop()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _levels(
    operators: Sequence[Operator], nodes: Sequence[int], folds: Sequence[Fold],
    edges: Iterable[tuple[int, int]],
) -> list[float]:  # fmt: skip
    """Returns the layer of each node and fold, counted without gaps from 0 at the inputs."""
    ranks = {d: i for i, d in enumerate(sorted({operators[n].depth for n in nodes}))}
    levels = [float(ranks[operators[n].depth]) for n in nodes]
    joined: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        joined[a].append(b)
        joined[b].append(a)
    for number, fold in enumerate(folds, len(nodes)):
        touched = [levels[n] for n in joined[number] if n < len(nodes)]
        if fold.before:
            levels.append(min(touched, default=0.0) - 1.0)
        else:
            levels.append(max(touched, default=float(len(ranks))) + 1.0)
    least = min(levels, default=0.0)
    return [level - least for level in levels]


def _places(
    levels: Sequence[float], edges: Iterable[tuple[int, int]]
) -> tuple[tuple[float, float], ...]:
    """Returns (x, y) of each: layers from top to bottom, each centred at 0."""
    rows: dict[float, list[int]] = defaultdict(list)
    for number, level in enumerate(levels):
        rows[level].append(number)
    joined: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        joined[a].append(b)
        joined[b].append(a)
    x = {n: i - (len(row) - 1) / 2 for row in rows.values() for i, n in enumerate(row)}
    order = sorted(rows)
    for sweep in range(SWEEPS):
        for level in order if sweep % 2 == 0 else reversed(order):
            row = rows[level]
            row.sort(key=lambda n: _barycentre(n, joined[n], levels, x, down=sweep % 2 == 0))
            x.update({n: i - (len(row) - 1) / 2 for i, n in enumerate(row)})
    return tuple((x[n], -levels[n]) for n in range(len(levels)))


def _barycentre(
    node: int, joined: Sequence[int], levels: Sequence[float], x: Mapping[int, float], *,
    down: bool,
) -> float:  # fmt: skip
    side = [x[n] for n in joined if (levels[n] < levels[node]) is down]
    return sum(side) / len(side) if side else x[node]
