"""Introduced error, for all operators at once: each replays the engine's own inputs.

Every tapped edge is cut: operators read graph inputs that carry the engine's values, and all of
them run in one reference session.  Engine output minus replayed output is what the operator
introduced, whatever happened upstream.  What lies between taps replays as one region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps import RANDOM_OPS, EngineFailure, Plan, perturb
from tapsect.numbers.discrete import differing, unexplained
from tapsect.numbers.floors import (
    COARSE_STEPS,
    ZERO,
    Limit,
    Ratios,
    floor_of,
    limit_for,
    ratios,
    rms,
)
from tapsect.numbers.outputs import Measured
from tapsect.replay.accumulation import accumulation
from tapsect.replay.reference import Reference, numpy_dtype, own_roundoff
from tapsect.topology import CONTRACTIONS, EXACT

__all__ = ["Classes", "Judgement", "Replay"]

Array = npt.NDArray[Any]

SCREEN_SAMPLES = 2
ALONE_SAMPLES = 32
MOST_ALONE = 64


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the replay says of one tensor.

    Attributes:
        tensor: Its name.
        kind: ``ok``, ``accuracy``, ``nonfinite``, ``wrong_shape``, ``wrong_dtype``,
            ``discrete``, or ``not_judged``.
        ratio: The rounding ratio that decided.
        introduced: rms of the introduced error over rms of the replayed tensor.
        u: Unit roundoff it was judged at.
        region: Operators that replayed it.
        ratios: All three ratios, where numbers exist.
        overflow: Whether the storage type cannot hold what the reference computes.
        corr: Correlation of the introduced error with the value: 1 for a wrong scale.
        why: In words, where ``kind`` alone does not say it.
    """

    tensor: str
    kind: str
    ratio: float = 0.0
    introduced: float | None = None
    u: float = 0.0
    region: frozenset[int] = frozenset()
    ratios: Ratios = ZERO
    overflow: bool = False
    corr: float = 0.0
    why: str = ""

    @property
    def suspect(self) -> bool:
        """Returns whether rounding does not explain the tensor."""
        return self.kind not in ("ok", "not_judged")


@dataclass(frozen=True, slots=True)
class Classes:
    """The unit roundoff at which contractions and the rest are judged."""

    contraction: float
    rest: float


class Replay:
    """Replays one sample.

    Args:
        reference: Where operators are replayed.
        feeds: The sample, as it was given.
        values: The engine's values of outputs and taps.
        cut: Tapped tensors whose edges are cut; all shakeable ones with a value when None.
    """

    def __init__(
        self,
        reference: Reference,
        feeds: Mapping[str, Array],
        values: Mapping[str, Array],
        *,
        uncut: Collection[str] = (),
    ) -> None:
        self.reference, self.feeds, self.values = reference, feeds, values
        self.graph, self.topology = reference.graph, reference.topology
        shakeable = self.topology.shakeable
        self.cut = frozenset(
            t for t in values
            if t in shakeable and t in self.graph.producer and t not in uncut
        )  # fmt: skip
        self.region = {
            t: self.topology.region(t, self.cut) for t in values if t in self.graph.producer
        }

    def judge(
        self, tensors: Iterable[str] | None = None, *, known: Classes | None = None
    ) -> tuple[dict[str, Judgement], Classes]:
        """Returns a judgement for every tensor, and the precision each class was judged at.

        Args:
            tensors: The tensors to judge; every one with a value and a producer when None.
            known: What the engine itself says of its precision, in place of the vote.
        """
        names = [t for t in self.region if tensors is None or t in set(tensors)]
        base_level = self.reference.stated or 0.0
        measured = self._measure(names, base_level, SCREEN_SAMPLES)
        first = {t: self._judge(t, measured, base_level) for t in names}
        classes = known or self._vote(names, first, base_level)
        found = {t: j for t, j in first.items() if self._level(t, classes) <= base_level}
        for level in sorted({self._level(t, classes) for t in names if t not in found}):
            again = [t for t in names if t not in found and self._level(t, classes) == level]
            coarse = self._measure(again, level, SCREEN_SAMPLES)
            found.update({t: self._judge(t, coarse, level) for t in again})
        return self._alone_all(found, classes), classes

    def bases(self, tensors: Sequence[str]) -> dict[str, Array]:
        """Returns the replayed values of tensors, without noise."""
        return dict(self._measure(list(tensors), 0.0, 0).base)

    # -- precision by class --------------------------------------------------------------------

    def _contraction(self, tensor: str) -> bool:
        return any(self.graph.nodes[i].op in CONTRACTIONS for i in self.region[tensor])

    def _level(self, tensor: str, classes: Classes) -> float:
        return classes.contraction if self._contraction(tensor) else classes.rest

    def _vote(self, names: Sequence[str], first: Mapping[str, Judgement], base: float) -> Classes:
        """Finds the finest u at which 90 % of a class passes."""
        levels: dict[bool, float] = {}
        for kind in (True, False):
            voters = [t for t in names if self._contraction(t) is kind and self._votes(t)]
            levels[kind] = self._class_level(voters, first, base)
            if kind is True and not voters:
                levels[True] = 1.0  # nothing to compare the rest with
        # No engine computes the rest more coarsely than its contractions.
        levels[False] = min(levels[False], levels[True])
        if levels[True] == 1.0:
            levels[True] = levels[False]
        return Classes(contraction=levels[True], rest=levels[False])

    def _votes(self, tensor: str) -> bool:
        nodes = [self.graph.nodes[i] for i in self.region[tensor]]
        return self.graph.is_float(tensor) and any(n.op not in EXACT or n.plugin for n in nodes)

    def _class_level(
        self, voters: Sequence[str], first: Mapping[str, Judgement], base: float
    ) -> float:
        failing = [t for t in voters if first[t].kind == "accuracy"]
        # One or two wrong operators are faults, not a precision; nor is a wrong scale rounding.
        few = max(2, len(voters) // 10) if len(failing) < len(voters) else 0
        if self._fewest(failing) <= few or self._systematic(failing, first):
            return base
        finest = max(base, min((first[t].u for t in voters), default=0.0))
        for level in (s for s in COARSE_STEPS if s > finest):
            coarse = self._measure(failing, level, SCREEN_SAMPLES)
            still = sum(self._judge(t, coarse, level).suspect for t in failing)
            if still <= 0.1 * len(voters):
                return level
        return base

    def _fewest(self, failing: Sequence[str]) -> int:
        """Returns how few operators, each wrong, would make all of these tensors fail.

        Tensors that replay through one operator fail by one fault, however many they are.
        """
        left, count = [self.region[t] for t in failing], 0
        while left:
            shared = Counter(i for region in left for i in region)
            top = shared.most_common(1)[0][0]
            left = [region for region in left if top not in region]
            count += 1
        return count

    def _systematic(self, failing: Sequence[str], first: Mapping[str, Judgement]) -> bool:
        return len(failing) == 1 and abs(first[failing[0]].corr) > 0.9

    # -- measuring -----------------------------------------------------------------------------

    def _plan(self, nodes: Iterable[int], raw: Sequence[str]) -> Plan:
        shapes = dict(self.reference.shapes(self.feeds))
        shapes |= {t: self.values[t].shape for t in self.cut}
        return Plan(
            nodes=sorted(nodes), cut=self.cut, noisy=self.reference.pool_of,
            shapes=shapes, raw=raw, held=self.reference.rounded,
        )  # fmt: skip

    def _measure(self, names: Sequence[str], level: float, samples: int) -> Measured:
        """Replays the regions of ``names`` in one session; in halves where it fails."""
        if not names:
            return Measured({}, {}, {}, {})
        nodes = frozenset().union(*(self.region[t] for t in names))
        made = perturb(self.reference.wide, self._plan(nodes, names))
        try:
            build = self.reference.build(made, "replay")
            try:
                runs = self.reference.noise(made.pools, samples, level=level, coherent=samples > 8)
                found = self.reference.sweep(build, made, {**self.feeds, **self.values}, runs)
            finally:
                build.close()
        except EngineFailure:
            found = Measured({}, {}, {}, {})
        # One operator that noise breaks takes the runs of all others with it.
        if len(names) > 1 and (not found.base or (samples and not any(found.kept.values()))):
            half = len(names) // 2
            parts = [self._measure(part, level, samples) for part in (names[:half], names[half:])]
            return Measured(
                *({**getattr(parts[0], f), **getattr(parts[1], f)}
                  for f in ("base", "spread", "changed", "kept"))
            )  # fmt: skip
        return found

    # -- judging -------------------------------------------------------------------------------

    def _u(self, tensor: str, level: float) -> float:
        """Returns u of a tensor: the coarsest of its own and its region's inputs' types."""
        region = self.region[tensor]
        reads = [t for i in region for t in self.graph.nodes[i].reads if t in self.cut]
        reads += [t for i in region for t in self.graph.nodes[i].reads if t in self.graph.inputs]
        own = max([own_roundoff(self.graph.elem(t)) for t in reads], default=0.0)
        stored = own_roundoff(self.graph.elem(tensor))
        if all(self.graph.nodes[i].op in ("Cast", "CastLike") for i in region):
            own = min(own, stored)  # a Cast rounds to what it stores, no more
        return max(stored, own, level)

    def _judge(self, tensor: str, measured: Measured, level: float, extra: Array | None = None) -> Judgement:  # fmt: skip
        region, engine = self.region[tensor], self.values[tensor]
        base = measured.base.get(tensor)
        u = self._u(tensor, level)
        told = {"tensor": tensor, "u": u, "region": region}
        if base is None:
            return Judgement(kind="not_judged", why="the reference cannot replay it alone", **told)
        if measured.kept.get(tensor) == 0:
            return Judgement(kind="not_judged", why="noise breaks every run of it", **told)
        if self._random(region):
            return Judgement(kind="not_judged", why="random operator", **told)
        if engine.shape != base.shape:
            why = f"shape {list(engine.shape)}, replayed {list(base.shape)}"
            return Judgement(kind="wrong_shape", ratio=float("inf"), why=why, **told)
        declared = numpy_dtype(self.graph.elem(tensor)) if tensor in self.graph.outputs else None
        if declared is not None and engine.dtype != declared:
            why = f"type {engine.dtype.name}, the model declares {declared.name}"
            return Judgement(kind="wrong_dtype", ratio=float("inf"), why=why, **told)
        if base.dtype.kind != "f":
            return self._discrete(tensor, engine, base, measured.changed.get(tensor), told)
        if engine.dtype.kind not in "fV" and engine.dtype.name not in ("bfloat16",):
            why = f"type {engine.dtype.name}, replayed {base.dtype.name}"
            return Judgement(kind="wrong_dtype", ratio=float("inf"), why=why, **told)
        spread = measured.spread.get(tensor)
        return self._floats(tensor, engine, base, spread, u, told, extra)

    def _random(self, region: Iterable[int]) -> bool:
        return any(self.graph.nodes[i].op in RANDOM_OPS for i in region)

    def _discrete(
        self, tensor: str, engine: Array, base: Array, changed: Array | None, told: dict[str, Any]
    ) -> Judgement:
        wrong = differing(engine, base)
        if not np.any(wrong):
            return Judgement(kind="ok", **told)
        measured = self._measure([tensor], 2 * told["u"], ALONE_SAMPLES)
        node = self.graph.nodes[self.graph.producer[tensor]]
        wrong = unexplained(
            node, self._inputs(node.reads), engine, base,
            measured.changed.get(tensor, changed), told["u"],
        )  # fmt: skip
        count = int(np.count_nonzero(wrong))
        if not count:
            return Judgement(kind="ok", why="differing elements lie within rounding", **told)
        why = f"{count} of {engine.size} elements differ and rounding explains none of them"
        return Judgement(kind="discrete", ratio=float("inf"), why=why, **told)

    def _inputs(self, reads: Iterable[str]) -> dict[str, Array]:
        """Returns the values of all tensors an operator reads, constants included."""
        names = list(reads)
        return self.reference.constants(names) | self._dynamic(names)

    def _dynamic(self, reads: Iterable[str]) -> dict[str, Array]:
        """Returns the values of what an operator reads and constants do not give."""
        given = {**self.feeds, **self.values}
        found = {n: given[n] for n in reads if n in given and n not in self.graph.constants}
        missing = [n for n in reads if n not in found and n in self.graph.producer]
        if missing:  # inside a region: as the replay computes it
            self.region |= {t: self.topology.region(t, self.cut) for t in missing}
            found |= self._measure(missing, 0.0, 1).base
        return found

    def _floats(
        self, tensor: str, engine: Array, base: Array, spread: Array | None, u: float,
        told: dict[str, Any], extra: Array | None,
    ) -> Judgement:  # fmt: skip
        e, y = engine.astype(np.float64), base.astype(np.float64)
        drift = np.zeros(y.shape) if spread is None else spread.astype(np.float64)
        alike = (e == y) | (np.isnan(e) & np.isnan(y))
        odd = ~(np.isfinite(e) & np.isfinite(y))
        lost = odd & ~alike & np.isfinite(drift)
        finite = np.where(odd, 0.0, y)
        error = np.where(odd | alike, 0.0, e - finite)
        dtype = engine.dtype.name
        floor = floor_of(finite, np.where(odd, 0.0, drift), u, dtype, extra)
        limit = limit_for(u)
        found = ratios(np.abs(error), floor)
        scale = rms(finite)
        told |= {"ratios": found, "introduced": rms(error) / scale if scale else rms(error)}
        if np.any(lost):
            return self._nonfinite(e, y, lost, dtype, told)
        told |= {"ratio": found.score(limit), "corr": _correlation(error, finite)}
        return Judgement(kind="accuracy" if found.exceed(limit) else "ok", **told)

    def _nonfinite(
        self, e: Array, y: Array, lost: Array, dtype: str, told: dict[str, Any]
    ) -> Judgement:
        largest = {"float16": 65504.0, "bfloat16": 3.38e38, "float32": 3.4028e38}.get(
            dtype, 1.7e308
        )
        largest = min(largest, self.reference.largest or largest)
        with np.errstate(invalid="ignore"):
            over = bool(np.all(np.abs(y[lost & ~np.isfinite(e)]) >= largest * (1 - 2.0**-9)))
        over = over and bool(np.any(lost & ~np.isfinite(e)))
        count = int(np.count_nonzero(lost))
        why = f"{count} elements are non-finite on one side only"
        told |= {"introduced": None}
        return Judgement(kind="nonfinite", ratio=float("inf"), overflow=over, why=why, **told)

    # -- each suspect alone --------------------------------------------------------------------

    def _alone_all(self, found: dict[str, Judgement], classes: Classes) -> dict[str, Judgement]:
        """Judges everything above a quarter of its threshold again, alone and finely."""
        near = [
            t for t, j in found.items()
            if j.kind in ("ok", "accuracy") and self._close(j, limit_for(j.u))
        ]  # fmt: skip
        near.sort(key=lambda t: -found[t].ratio)
        for tensor in near[:MOST_ALONE]:
            found[tensor] = self._alone(tensor, found[tensor], self._level(tensor, classes))
        return found

    def _close(self, judgement: Judgement, limit: Limit) -> bool:
        r = judgement.ratios
        return max(r.norm, r.slice) > limit.norm / 4 or r.element > limit.element / 4

    def _alone(self, tensor: str, judgement: Judgement, level: float) -> Judgement:
        measured = self._measure([tensor], level, ALONE_SAMPLES)
        if tensor not in measured.base:
            return replace(judgement, kind="not_judged", why="the reference cannot replay it alone")
        extra = self._accumulation(tensor)
        return self._judge(tensor, measured, level, extra)

    def _accumulation(self, tensor: str) -> Array | None:
        node = self.graph.nodes[self.graph.producer[tensor]]
        return accumulation(self.reference, node, self._dynamic(node.reads))


def _correlation(error: Array, y: Array) -> float:
    a, b = float(np.sqrt(np.vdot(error, error))), float(np.sqrt(np.vdot(y, y)))
    return float(np.vdot(error, y) / (a * b)) if a and b else 0.0
