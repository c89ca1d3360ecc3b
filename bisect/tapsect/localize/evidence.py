"""What faithful builds told: suspects with what they do, and how much of the model was seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from debugtaps import Array, Graph
from tapsect.finding import Coverage, Evidence, Hidden, Unseen
from tapsect.localize.inside import Inside
from tapsect.localize.kernels import Kernels
from tapsect.replay.causal import Effect
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Classes, Judgement
from tapsect.rounding.floors import PRECISIONS
from tapsect.rounding.outputs import End
from tapsect.search.frontier import Refined
from tapsect.topology import CONTRACTIONS

__all__ = ["Ends", "Evidenced", "Located", "Suspect", "Taps", "classes_from"]

Ends = Mapping[str, tuple[End, Array | None]]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tensor whose introduced error rounding does not explain, with what it does."""

    judgement: Judgement
    effect: Effect
    nodes: tuple[int, ...]
    evidence: Evidence

    @property
    def tensor(self) -> str:
        """Returns the tensor's name."""
        return self.judgement.tensor


@dataclass(frozen=True, slots=True)
class Evidenced:
    """What one faithful build told."""

    values: Mapping[str, Array]
    judgements: Mapping[str, Judgement]
    classes: Classes
    culprits: tuple[Suspect, ...]
    harmless: tuple[Suspect, ...]
    unreliable: frozenset[str]


@dataclass(frozen=True, slots=True)
class Taps:
    """What became of the taps that were tried.

    Attributes:
        accepted: Those that left the failure as it was and bound the fault.
        healing: Each of them, alone, changes the failure.
        refusing: Each of them, alone, is refused.
        together: In every half that was tried they change the failure or are refused.
        untried: Those that no build was left for.
    """

    accepted: tuple[str, ...] = ()
    healing: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Refined[str]) -> Self:
        """Returns what a search for trusted taps ended with."""
        refusing = (*found.refusing, *found.too_heavy)
        return cls(found.accepted, found.healing, refusing, (), found.untried)

    def also(self, found: Inside) -> Taps:
        """Returns the taps together with those inside a kernel."""
        return Taps(
            found.accepted, (*self.healing, *found.healing), (*self.refusing, *found.refusing),
            found.together, self.untried,
        )  # fmt: skip

    @property
    def barred(self) -> frozenset[str]:
        """Returns the taps that cannot be trusted."""
        return frozenset((*self.healing, *self.refusing, *self.together))


@dataclass(frozen=True, slots=True)
class Located:
    """Where the answer goes wrong, as far as taps can tell.

    Attributes:
        evidence: What the last trusted build told.
        coverage: How many tensors were seen.
        unseen: The others, by why they were not.
        healing: Tensors whose exposure, alone, changes the failure.
        kernels: What the untapped build runs together.
        observer: What the first tapped build did to the failure.
    """

    evidence: Evidenced | None
    coverage: Coverage
    unseen: tuple[Unseen, ...] = ()
    healing: tuple[str, ...] = ()
    kernels: Kernels | None = None
    observer: str = "faithful"

    @classmethod
    def of(
        cls, graph: Graph, order: Sequence[str], taps: Taps, evidence: Evidenced | None,
        kernels: Kernels, closed: Kernels, shown: Collection[str], observer: str,
    ) -> Self:  # fmt: skip
        """Returns what is known, tensor by tensor.

        Args:
            graph: The model.
            order: Everything that could be tapped.
            taps: What became of those that were.
            evidence: What the last trusted build told.
            kernels: What the untapped build runs together.
            closed: Those that were looked into only where the fault was.
            shown: Tensors that a trusted build showed.
            observer: What the first tapped build did to the failure.
        """
        every = [*order, *(t for t in graph.outputs if t in graph.producer)]
        states = {t: _state(t, taps, evidence, closed, shown, graph) for t in every}
        counts = dict.fromkeys(_COUNTED.values(), 0) | {"verified": 0}
        groups: dict[tuple[Hidden, str | None], list[str]] = {}
        for tensor, state in states.items():
            counts["verified" if state is None else _COUNTED[state]] += 1
            if state is not None:
                kernel = kernels.name([graph.producer[tensor]])
                groups.setdefault((state, kernel), []).append(tensor)
        unseen = tuple(Unseen(why, tuple(named), k) for (why, k), named in groups.items())
        return cls(evidence, Coverage(**counts), unseen, taps.healing, kernels, observer)


# How each way of not being seen is counted.
_COUNTED: Mapping[Hidden, str] = {
    "fused_away": "fused_away",
    "healed": "fused_away",
    "untappable": "untappable",
    "unreliable": "unreliable",
    "not_judged": "not_judged",
}


def _state(
    tensor: str, taps: Taps, evidence: Evidenced | None, closed: Kernels,
    shown: Collection[str], graph: Graph,
) -> Hidden | None:  # fmt: skip
    """Returns why a tensor was not seen; None when it was, or lies in a region that was."""
    if tensor in taps.healing or tensor in taps.together:
        return "healed"
    if tensor in taps.refusing:
        return "untappable"
    if tensor not in shown and tensor not in graph.outputs and not closed.border(tensor):
        return "fused_away"
    if evidence is None or tensor in taps.untried:
        return "not_judged"
    if tensor in evidence.unreliable:
        return "unreliable"
    judgement = evidence.judgements.get(tensor)
    return "not_judged" if judgement is not None and judgement.kind == "not_judged" else None


def classes_from(precisions: Mapping[str, str], reference: Reference) -> Classes:
    """Returns the precision of each class from what an engine says of its tensors or nodes."""
    names = {"f32": "fp32", "float32": "fp32", "f16": "fp16", "float16": "fp16",
             "bfloat16": "bf16", "float": "fp32", "half": "fp16"}  # fmt: skip
    worst, half = {True: 0.0, False: 0.0}, False
    for node in reference.graph.nodes:
        for key in (node.name, *node.writes):
            kind = precisions.get(key, "").lower()
            kind = names.get(kind, kind)
            half = half or kind == "fp16"
            u = PRECISIONS.get(kind)
            if u is not None:
                contraction = node.op in CONTRACTIONS
                worst[contraction] = max(worst[contraction], u)
    return Classes(worst[True], worst[False], half)
