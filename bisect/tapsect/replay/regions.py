"""Introduced error, for all operators at once: each replays the engine's own inputs.

Every tapped edge is cut: operators read graph inputs that carry the engine's values, and all of
them run in one reference session.  Engine output minus replayed output is what the operator
introduced, whatever happened upstream.  What lies between taps replays as one region.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps import RANDOM_OPS, Node
from tapsect.replay.accumulation import accumulation
from tapsect.replay.alone import ALONE, MODES, could_be_rounding, explains, one_rounding
from tapsect.replay.judging import Judgement, Told, judge_floats
from tapsect.replay.measuring import CLOSE_SAMPLES, Regions
from tapsect.replay.precision import Classes, Voters
from tapsect.replay.reference import Reference, numpy_dtype, own_roundoff
from tapsect.rounding.discrete import differing, unexplained
from tapsect.rounding.floors import Limit, limit_for
from tapsect.rounding.outputs import Measured

__all__ = ["Classes", "Judgement", "Replay"]

Array = npt.NDArray[Any]

SCREEN_SAMPLES = 2


class Replay(Regions):
    """Replays one sample.

    Args:
        reference: Where operators are replayed.
        feeds: The sample, as it was given.
        values: The engine's values of outputs and taps.
        uncut: Tensors whose edges are not cut although the engine gave a value.
    """

    def __init__(
        self, reference: Reference, feeds: Mapping[str, Array], values: Mapping[str, Array], *,
        uncut: Collection[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(reference, feeds, values, uncut=uncut)
        self.classes: Classes | None = None
        self.voters = Voters(self.graph, self.region, values, self._screen)

    def judge(
        self, tensors: Iterable[str] | None = None, *, known: Classes | None = None
    ) -> tuple[dict[str, Judgement], Classes]:
        """Returns a judgement for every tensor, and the precision each class was judged at.

        Args:
            tensors: The tensors to judge; every one with a value and a producer when None.
            known: What the engine itself says of its precision, in place of the vote.
        """
        wanted = None if tensors is None else set(tensors)
        names = [t for t in self.region if wanted is None or t in wanted]
        base = self.reference.stated or 0.0
        first = self._screen(names, base)
        classes = known or self.voters.vote(first, base)
        self.classes = classes
        found = {t: j for t, j in first.items() if self._level(t, classes) <= base}
        for level in sorted({self._level(t, classes) for t in names if t not in found}):
            again = [t for t in names if t not in found and self._level(t, classes) == level]
            found.update(self._screen(again, level))
        found = self._closely(found, classes)
        return {**found, **self._alone(found)}, classes

    def _level(self, tensor: str, classes: Classes) -> float:
        return self.voters.level(tensor, classes)

    def _screen(self, names: Sequence[str], level: float) -> dict[str, Judgement]:
        found: dict[str, Judgement] = {}
        for window in self._windows(names):
            measured = self._measure(window, level, SCREEN_SAMPLES)
            found |= {t: self._judge(t, measured, level) for t in window}
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

    def _told(self, tensor: str, level: float) -> Told:
        u, region = self._u(tensor, level), self.region[tensor]
        largest = self.classes.largest(level) if self.classes is not None else None
        return Told(tensor, u, region, self.reference.largest or largest)

    def _judge(
        self, tensor: str, measured: Measured, level: float, extra: Array | None = None
    ) -> Judgement:
        told, base = self._told(tensor, level), measured.base.get(tensor)
        if base is None:
            return told.judged("not_judged", "the reference cannot replay it alone")
        if measured.kept.get(tensor) == 0:
            return self._without_noise(tensor, base, told)
        if any(self.graph.nodes[i].op in RANDOM_OPS for i in told.region):
            return self._drawn(tensor, base, told)
        return self._compared(tensor, measured, base, told, extra)

    def _drawn(self, tensor: str, base: Array, told: Told) -> Judgement:
        """Judges random numbers: two runs of equal seed agree, or come from other streams."""
        engine = self.values[tensor]
        if engine.shape == base.shape and base.dtype.kind == "f":
            steady = judge_floats(told, engine, base, None)
        else:
            steady = self._without_noise(tensor, base, told)
        if steady.kind == "ok":
            return steady
        return told.judged("not_judged", "random operator: the reference draws other numbers")

    def _without_noise(self, tensor: str, base: Array, told: Told) -> Judgement:
        """Judges what no noisy run survived: equal values need no floor."""
        engine = self.values[tensor]
        if engine.shape == base.shape and not np.any(differing(engine, base)):
            return told.judged("ok")
        return told.judged("not_judged", "noise breaks every run of it")

    def _compared(
        self, tensor: str, measured: Measured, base: Array, told: Told, extra: Array | None
    ) -> Judgement:
        engine = self.values[tensor]
        if engine.shape != base.shape:
            why = f"shape {list(engine.shape)}, replayed {list(base.shape)}"
            if self._unsteady(tensor, told):
                return told.judged("ok", f"{why}: noise changes it, too")
            return told.judged("wrong_shape", why)
        declared = numpy_dtype(self.graph.elem(tensor)) if tensor in self.graph.outputs else None
        if declared is not None and engine.dtype != declared:
            why = f"type {engine.dtype.name}, the model declares {declared.name}"
            return told.judged("wrong_dtype", why)
        if base.dtype.kind != "f":
            return self._discrete(tensor, base, measured.changed.get(tensor), told)
        if engine.dtype.kind not in "fV" and engine.dtype.name not in ("bfloat16",):
            why = f"type {engine.dtype.name}, replayed {base.dtype.name}"
            return told.judged("wrong_dtype", why)
        return judge_floats(told, engine, base, measured.spread.get(tensor), extra)

    def _unsteady(self, tensor: str, told: Told) -> bool:
        """Returns whether noise changes the shape of a tensor whose shape depends on data."""
        shaken = self._measure([tensor], 2 * told.u, CLOSE_SAMPLES)
        return shaken.kept.get(tensor, CLOSE_SAMPLES) < CLOSE_SAMPLES

    def _discrete(self, tensor: str, base: Array, changed: Array | None, told: Told) -> Judgement:
        engine = self.values[tensor]
        wrong = differing(engine, base)
        if not np.any(wrong):
            return told.judged("ok")
        measured = self._measure([tensor], 2 * told.u, CLOSE_SAMPLES)
        node = self.graph.nodes[self.graph.producer[tensor]]
        wrong = unexplained(
            node, self._inputs(node.reads), engine, base,
            measured.changed.get(tensor, changed), told.u, exact=self._exact(node, told),
        )  # fmt: skip
        count = int(np.count_nonzero(wrong))
        if not count:
            return told.judged("ok", "differing elements lie within rounding")
        why = f"{count} of {engine.size} elements differ and rounding explains none of them"
        return told.judged("discrete", why)

    def _exact(self, node: Node, told: Told) -> bool:
        """Returns whether an operator was replayed on the very numbers the engine's kernel read."""
        given = self.cut | self.graph.inputs.keys() | self.graph.constants.keys()
        return told.u <= 2.0**-24 and all(t in given for t in node.reads)

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

    # -- each suspect closely ------------------------------------------------------------------

    def _closely(self, found: dict[str, Judgement], classes: Classes) -> dict[str, Judgement]:
        """Judges everything above a quarter of its threshold again, with more samples.

        What rounding still does not explain gets what accumulation adds to its floor, and a
        reference in float64 where there is a kernel.
        """
        near = [
            t for t, j in found.items()
            if j.kind in ("ok", "accuracy") and _close(j, limit_for(j.u))
        ]  # fmt: skip
        for level in sorted({self._level(t, classes) for t in near}):
            group = [t for t in near if self._level(t, classes) == level]
            for window in self._windows(group):
                measured = self._measure(window, level, CLOSE_SAMPLES)
                found |= {t: self._weighed(t, measured, level) for t in window}
        return found

    def _alone(self, found: Mapping[str, Judgement]) -> dict[str, Judgement]:
        """Returns the suspects that are contractions in TF32 or fp16, unlike their class."""
        suspects = [
            t for t, j in found.items() if could_be_rounding(j) and self.voters.contraction(t)
        ]
        likely = {t: j for t, j in self._screen(suspects, ALONE).items() if one_rounding(j)}
        base, proved = self.bases(list(likely)), dict[str, Judgement]()
        for cut in MODES:
            left = [t for t in base if t not in proved]
            rounded = self.with_operands(left, cut) if left else {}
            proved |= {
                t: replace(likely[t], alone=True)
                for t, y in rounded.items() if explains(self.values[t], base[t], y)
            }  # fmt: skip
        return proved

    def _weighed(self, tensor: str, measured: Measured, level: float) -> Judgement:
        judgement = self._judge(tensor, measured, level)
        if judgement.kind != "accuracy":
            return judgement
        extra = self._accumulation(tensor)
        if extra is not None:
            judgement = self._judge(tensor, measured, level, extra)
        if judgement.suspect and len(judgement.region) == 1:
            exact = self._in_double(tensor, level)
            if exact is not None:
                judgement = self._judge(tensor, exact, level, extra)
        return judgement

    def _accumulation(self, tensor: str) -> Array | None:
        node = self.graph.nodes[self.graph.producer[tensor]]
        return accumulation(self.reference, node, self._dynamic(node.reads))


def _close(judgement: Judgement, limit: Limit) -> bool:
    r = judgement.ratios
    return max(r.norm, r.slice) > limit.norm / 4 or r.element > limit.element / 4
