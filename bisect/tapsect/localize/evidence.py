"""What faithful builds told: suspects with what they do, and how much of the model was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from debugtaps import Array, Graph
from tapsect.finding import Coverage, Evidence
from tapsect.replay.causal import Effect
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Classes, Judgement
from tapsect.rounding.floors import PRECISIONS
from tapsect.search.frontier import Refined
from tapsect.topology import CONTRACTIONS

__all__ = ["Evidenced", "Located", "Suspect", "classes_from", "coverage_of"]


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
    fusions: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """Where the answer goes wrong, as far as taps can tell."""

    evidence: Evidenced | None
    coverage: Coverage
    healing: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    observer: str = "faithful"


def coverage_of(
    graph: Graph, order: Sequence[str], found: Refined[str], evidence: Evidenced | None
) -> Coverage:
    """Returns how much of the model was seen.

    Args:
        graph: The model.
        order: Everything that could be tapped.
        found: Which taps were trusted.
        evidence: What the last trusted build told.
    """
    healing, refusing = set(found.healing), {*found.refusing, *found.too_heavy}
    if evidence is None:
        rest = len(order) - len(healing) - len(refusing) + len(graph.outputs)
        return Coverage(0, len(healing), len(refusing), 0, max(0, rest))
    open_ = {*found.untried}
    open_ |= {t for t, j in evidence.judgements.items() if j.kind == "not_judged"}
    every = [*order, *(t for t in graph.outputs if t in graph.producer)]
    barred = healing | refusing | open_ | evidence.unreliable
    verified = [t for t in every if t not in barred]
    unreliable = len(evidence.unreliable - healing - refusing)
    rest = len(every) - len(verified) - len(healing) - len(refusing) - unreliable
    return Coverage(len(verified), len(healing), len(refusing), unreliable, max(0, rest))


def classes_from(precisions: Mapping[str, str], reference: Reference) -> Classes:
    """Returns the precision of each class from what an engine says of its tensors or nodes."""
    names = {"f32": "fp32", "float32": "fp32", "f16": "fp16", "float16": "fp16",
             "bfloat16": "bf16", "float": "fp32", "half": "fp16"}  # fmt: skip
    worst = {True: 0.0, False: 0.0}
    for node in reference.graph.nodes:
        for key in (node.name, *node.writes):
            kind = precisions.get(key, "")
            u = PRECISIONS.get(names.get(kind.lower(), kind.lower()))
            if u is not None:
                contraction = node.op in CONTRACTIONS
                worst[contraction] = max(worst[contraction], u)
    return Classes(worst[True], worst[False])
