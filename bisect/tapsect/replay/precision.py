"""In what precision the engine computes, when it does not say: contractions and the rest apart.

A class of operators computes at the finest u at which its tensors hold no more error than one
rounding makes (below one floor).  An engine that stores its tensors
in a narrow type shows it in their bits, be they ever so few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from debugtaps import Array, Graph
from tapsect.replay.alone import ONE_ROUNDING
from tapsect.replay.judging import Judgement
from tapsect.rounding.floors import COARSE_STEPS, PRECISIONS, u_name
from tapsect.rounding.storage import fits_half, stored_roundoff
from tapsect.topology import CONTRACTIONS, EXACT

__all__ = ["Classes", "Voters"]


@dataclass(frozen=True, slots=True)
class Classes:
    """The unit roundoff at which contractions and the rest are judged.

    ``half`` says that 2⁻¹¹ is fp16's, not TF32's: tensors are stored on the grid of fp16.
    """

    contraction: float
    rest: float
    half: bool = field(default=True, compare=False)

    def largest(self, u: float) -> float | None:
        """Returns the largest number of a tensor judged at ``u``, if it is stored in fp16."""
        return _LARGEST_HALF if self.half and u == _HALF else None

    def at_least(self, contraction: float, rest: float) -> Classes:
        """Returns the coarser of these and others, class by class."""
        return replace(
            self, contraction=max(self.contraction, contraction), rest=max(self.rest, rest)
        )

    def named(self, least: float, stated: str | None = None) -> dict[str, str]:
        """Returns the name of the precision of each class.

        Args:
            least: Stated unit roundoff.
            stated: The precision that was asked for, by name.
        """
        seen = self.at_least(least, least)
        asked = {PRECISIONS[stated]: stated} if stated in PRECISIONS else {}
        # Where all of the model is to be narrow, it is its tensors that are.
        half = "fp16" if self.half or least >= _HALF else "tf32"
        return {
            kind: asked.get(u) or (half if u == _HALF else u_name(u))
            for kind, u in (("contractions", seen.contraction), ("the rest", seen.rest))
        }


_HALF = PRECISIONS["fp16"]
_LARGEST_HALF = 65504.0

Judge = Callable[[Sequence[str], float], Mapping[str, Judgement]]


@dataclass(frozen=True, slots=True)
class Voters:
    """Who votes on the precision of a class.

    Attributes:
        graph: The model.
        regions: The operators that replay each tensor.
        values: The engine's values.
        judge: Judges tensors again at another u.
    """

    graph: Graph
    regions: Mapping[str, Collection[int]]
    values: Mapping[str, Array]
    judge: Judge

    def contraction(self, tensor: str) -> bool:
        """Returns whether a contraction takes part in a tensor's region."""
        return any(self.graph.nodes[i].op in CONTRACTIONS for i in self.regions[tensor])

    def level(self, tensor: str, classes: Classes) -> float:
        """Returns the u at which a tensor is judged."""
        return classes.contraction if self.contraction(tensor) else classes.rest

    def vote(self, first: Mapping[str, Judgement], base: float) -> Classes:
        """Returns the finest u at which 90 % of each class passes.

        Args:
            first: Each tensor as judged at ``base``.
            base: Unit roundoff of the stated precision.
        """
        stored = {kind: self._stored(first, base, contraction=kind) for kind in (True, False)}
        voters = {
            kind: [t for t in first if self.contraction(t) is kind and self._votes(t)]
            for kind in (True, False)
        }
        levels = {kind: self._class_level(voters[kind], first, base) for kind in (True, False)}
        # No engine computes the rest more coarsely than its contractions.
        rest = min(levels[False], levels[True]) if voters[True] else levels[False]
        rest = max(rest, stored[False])
        contraction = levels[True] if voters[True] else rest
        contraction = max(contraction, stored[True], rest)
        return Classes(contraction, rest, half=rest == _HALF > base or self._half(voters[True]))

    def _half(self, contractions: Sequence[str]) -> bool:
        """Returns whether contractions are stored in fp16; TF32 is what they read, not write."""
        return bool(contractions) and all(
            self.values[t].dtype.itemsize < 4 or fits_half(self.values[t]) for t in contractions
        )

    def _votes(self, tensor: str) -> bool:
        nodes = [self.graph.nodes[i] for i in self.regions[tensor]]
        return self.graph.is_float(tensor) and any(n.op not in EXACT or n.plugin for n in nodes)

    def _stored(self, first: Mapping[str, Judgement], base: float, *, contraction: bool) -> float:
        """Returns u of the narrow type that 90 % of a class is stored in; 0 for none.

        Tensors that hold what the reference computes, bit for bit, tell nothing.
        """
        moved = [
            t for t, j in first.items()
            if (j.ratios.norm > 0 or j.suspect) and self.graph.is_float(t)
            and self.contraction(t) is contraction
        ]  # fmt: skip
        if not any(first[t].kind == "accuracy" for t in moved):
            return 0.0
        told = (stored_roundoff(self.values[t]) for t in moved)
        grids = sorted((u for u in told if u is not None), reverse=True)
        if not grids:
            return 0.0
        u = grids[max(0, -(-9 * len(grids) // 10) - 1)]
        return u if u > base else 0.0

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
            coarse = self.judge(failing, level)
            # Beyond the coarsest there is nothing to mistake it for.
            bound = ONE_ROUNDING if level < COARSE_STEPS[-1] else 2 * ONE_ROUNDING
            still = sum(
                coarse[t].kind not in ("ok", "accuracy") or coarse[t].ratios.norm > bound
                for t in failing
            )
            if still <= 0.1 * len(voters):
                return level
        return base

    def _fewest(self, failing: Sequence[str]) -> int:
        """Returns how few operators, each wrong, would make all of these tensors fail.

        Tensors that replay through one operator fail by one fault, however many they are.
        """
        left, count = [self.regions[t] for t in failing], 0
        while left:
            shared = Counter(i for region in left for i in region)
            top = shared.most_common(1)[0][0]
            left = [region for region in left if top not in region]
            count += 1
        return count

    def _systematic(self, failing: Sequence[str], first: Mapping[str, Judgement]) -> bool:
        return len(failing) == 1 and abs(first[failing[0]].corr) > 0.9
