"""What is kept of a diagnosis for its pictures: bounded in size and in time."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from debugtaps import Array, Graph, dtype_name
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.finding import Divergence
from tapsect.localize.taps import Evidenced
from tapsect.replay.propagation import Inherited, inherited
from tapsect.replay.regions import Judgement
from tapsect.rounding.boxes import Boxed, lazily, parts, wide
from tapsect.rounding.deviation import alike
from tapsect.rounding.floors import limit_for
from tapsect.traced import Culprit, Element, Operator, Point, Profile

__all__ = ["Tracing"]

MOST_OPERATORS = 20_000
INHERITED = 64
"""How many tensors the inherited error is measured at: all of them would double the replay."""
BINS, WORST = 40, 20
MOST_BYTES = 1 << 28
"""Values of the reference that are held at a time."""


class Tracing:
    """Gathers the pictures of one diagnosis.

    Args:
        subject: The diagnosis' material.
        told: What it decided.
    """

    def __init__(self, subject: Subject, told: Told) -> None:
        self.subject, self.told, self.graph = subject, told, subject.graph

    @property
    def evidence(self) -> Evidenced | None:
        """Returns what the last faithful build told, if there was one."""
        return self.told.located.evidence if self.told.located is not None else None

    @cached_property
    def inherited(self) -> Inherited:
        """Returns the inherited error of the first culprit and of tensors all along the model."""
        evidence = self.evidence
        if evidence is None:
            return Inherited()
        blame = self.told.blame
        first = [s.tensor for s in (blame.suspects[:1] if blame else ())]
        names = _selection(list(evidence.judgements), first, evidence.values)
        feeds = self.subject.samples[self.told.sample]
        return inherited(self.subject.reference, feeds, evidence.values, names)

    def profile(self, first: Divergence | None) -> Profile | None:
        """Returns what there is to draw; ``None`` where nothing failed or the model is too large.

        Args:
            first: The place that was found.
        """
        if self.told.status == "agrees" or len(self.graph.nodes) > MOST_OPERATORS:
            return None
        evidence = self.evidence
        kernels = self.told.located.kernels if self.told.located is not None else None
        return Profile(
            self.told.sample,
            _operators(self.graph, self.subject),
            self._points(evidence) if evidence else (),
            tuple(tuple(sorted(group)) for group in kernels.groups) if kernels else (),
            tuple(self.graph.inputs),
            None if first is None else self._culprit(first.tensor),
        )

    def _fused(self) -> tuple[tuple[int, ...], ...]:
        kernels = self.told.located.kernels if self.told.located is not None else None
        return tuple(tuple(sorted(group)) for group in kernels.groups) if kernels else ()

    def _points(self, evidence: Evidenced) -> tuple[Point, ...]:
        cut, place = self.subject.reference.topology.shakeable, self.graph.producer
        held = [j for t, j in evidence.judgements.items() if t in evidence.values]
        held.sort(key=lambda judgement: place[judgement.tensor])
        return tuple(self._point(j, evidence.values[j.tensor], cut=j.tensor in cut) for j in held)

    def _point(self, judgement: Judgement, values: Array, *, cut: bool) -> Point:
        number = values.size > 0 and values.dtype.kind in "fiu"
        return Point(
            judgement.tensor, self.graph.producer[judgement.tensor],
            dtype_name(values.dtype), values.shape, judgement.kind, judgement.introduced,
            self.inherited.error.get(judgement.tensor),
            judgement.floor,
            None if judgement.kind == "not_judged" else float(judgement.ratio),
            limit_for(judgement.u).norm,
            float(values.min()) if number else None,
            float(values.max()) if number else None,
            cut,
        )  # fmt: skip

    def _culprit(self, tensor: str) -> Culprit | None:
        """Returns the values of the place, as the taps saw them or else as the case gives them."""
        evidence = self.evidence
        if evidence is not None and tensor in self.inherited.replayed:
            engine, expected = evidence.values[tensor], self.inherited.replayed[tensor]
            return _compared(tensor, "tapped", engine, expected)
        final = self.told.blame.final if self.told.blame is not None else None
        if final is not None and tensor in final.answers and tensor in final.expected:
            return _compared(tensor, "case", final.answers[tensor], final.expected[tensor])
        return None


def _operators(graph: Graph, subject: Subject) -> tuple[Operator, ...]:
    depth = subject.reference.topology.depth
    return tuple(
        Operator(
            n.name, n.op, max((depth.get(t, 0) for t in n.writes), default=0),
            tuple(dict.fromkeys(graph.producer[t] for t in n.reads if t in graph.producer)),
            n.plugin,
        )
        for n in graph.nodes
    )  # fmt: skip


def _selection(
    names: Sequence[str], first: Sequence[str], values: Mapping[str, Array]
) -> list[str]:
    """Returns the first culprit, its neighbours and tensors evenly spread, as memory allows."""
    wanted = list(first)
    if first and first[0] in names:
        place = names.index(first[0])
        wanted += names[max(0, place - 8) : place + 9]
    step = max(1, math.ceil(len(names) / (INHERITED - len(wanted))))
    wanted += names[::step]
    found, left = [], MOST_BYTES
    for name in dict.fromkeys(wanted):
        size = 8 * values[name].size if name in values else 0
        if name in first or size <= left:
            found.append(name)
            left -= size
    return found


def _compared(
    tensor: str, source: Literal["tapped", "case"], engine: Array, expected: Array
) -> Culprit | None:
    """Returns two equal-shaped numeric tensors as counts and their worst elements."""
    if engine.shape != expected.shape or not engine.size or engine.dtype.kind in "OUSc":
        return None
    e, y = wide(engine), wide(expected)
    error = lazily(e.shape, lambda box: _error(e[box], y[box]))
    ends = [_ends(part) for pair in parts(e, y) for part in pair]
    found = np.array([end for each in ends for end in each])
    edges = np.histogram_bin_edges(found, BINS) if found.size else np.zeros(0)
    decades: Counter[int] = Counter()
    differing, worst, start = 0, list[tuple[float, int]](), 0
    for (part,) in parts(error):
        differing += int(np.count_nonzero(part))
        decades += _decades(part)
        worst = heapq.nsmallest(WORST, [*worst, *_worst(part, start)])
        start += part.size
    places = [np.unravel_index(place, e.shape) for size, place in worst if size < 0]
    elements = [(tuple(int(i) for i in at), at) for at in places]
    return Culprit(
        tensor, source, int(e.size), differing, tuple(edges.tolist()),
        _counted(e, edges), _counted(y, edges), tuple(sorted(decades.items())),
        tuple(Element(i, float(engine[at]), float(expected[at])) for i, at in elements),
    )  # fmt: skip


def _error(e: Array, y: Array) -> Array:
    """Returns absolute errors; infinite where one side is not finite, or both unlike."""
    with np.errstate(all="ignore"):
        error = np.asarray(np.abs(e - y))
    error[alike(e, y)] = 0.0
    error[np.isnan(error)] = np.inf
    return error


def _ends(values: Array) -> tuple[float, ...]:
    """Returns the least and the largest finite number, where there is one."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else ()


def _counted(values: Boxed, edges: Array) -> tuple[int, ...]:
    """Returns how many finite numbers lie between each two edges."""
    if not edges.size:
        return ()
    counts = np.zeros(len(edges) - 1, np.int64)
    for (part,) in parts(values):
        counts += np.histogram(part[np.isfinite(part)], edges)[0]
    return tuple(counts.tolist())


def _decades(error: Array) -> Counter[int]:
    """Returns how many finite errors each power of ten holds."""
    finite = error[np.isfinite(error) & (error > 0)]
    decades, counts = np.unique(np.floor(np.log10(finite)), return_counts=True)
    return Counter({int(d): int(c) for d, c in zip(decades, counts, strict=True)})


def _worst(error: Array, start: int) -> list[tuple[float, int]]:
    """Returns the largest errors, negative, each with its place in the tensor; the first of equal.

    Args:
        error: Of a part of the tensor.
        start: How many elements come before the part.
    """
    flat = error.ravel()
    least = np.partition(flat, -WORST)[-WORST] if flat.size > WORST else 0.0
    above, equal = np.flatnonzero(flat > least), np.flatnonzero(flat == least)[:WORST]
    return [(-float(flat[i]), start + int(i)) for i in (*above, *equal)]
