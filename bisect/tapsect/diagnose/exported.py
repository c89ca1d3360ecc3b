"""Whether an exported model computes what torch does, and where it leaves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from debugtaps import Array, ReferenceFailed
from tapsect.diagnose.subject import Subject
from tapsect.replay.causal import MOST_SUSPECTS, causal_test
from tapsect.replay.regions import Judgement, Replay
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import End, Measured, judge_output

__all__ = ["Export", "leaves_torch"]

Explained = Callable[[str, Array], Array | None]


@dataclass(frozen=True, slots=True)
class Export:
    """Where a converted model leaves its original."""

    judgement: Judgement | None
    why: str


def leaves_torch(
    subject: Subject, number: int, measured: Measured, explained: Explained
) -> Export | None:
    """Returns where the export leaves torch; ``None`` where it does not, or cannot be run.

    Args:
        subject: The diagnosis' material.
        number: The sample.
        measured: torch's outputs, and what noise does to the exported model's.
        explained: Which elements of a discrete output rounding explains.
    """
    try:
        own = subject.reference.ends(subject.samples[number], samples=0).base
    except ReferenceFailed:
        subject.notes.append("the export was not held against torch: no run of it is to be had")
        return None
    ends = [
        judge_output(
            name, own[name], measured, subject.reference.roundoff(name),
            limit_for(subject.roundoff), tolerance=subject.options.tolerance,
            explained=explained(name, own[name]),
        )
        for name in subject.graph.outputs
    ]  # fmt: skip
    failing = [e for e in ends if e.failing]
    if not failing:
        return None
    worst = max(failing, key=lambda e: e.floors)
    why = f"the exported model differs from torch: {worst.name!r}, {worst.reason}"
    return Export(_first(subject, number, ends, replace(measured, base=own)), why)


def _first(
    subject: Subject, number: int, ends: Sequence[End], measured: Measured
) -> Judgement | None:
    """Replays the export on torch's tensors; returns the first that makes an output fail."""
    assert subject.torch is not None
    assert subject.torch.told is not None
    told, feeds = subject.torch.told[number], subject.samples[number]
    reference = subject.reference
    inner = {t: told.inner[t] for t in reference.topology.tappable if t in told.inner}
    values = {**inner, **told.outputs}
    replay = Replay(reference, feeds, values)
    judged, _ = replay.judge()
    above = reference.topology.ancestors([e.name for e in ends if e.failing])
    place = subject.graph.producer
    suspects = [j for j in judged.values() if j.suspect and place[j.tensor] in above]
    suspects.sort(key=lambda j: place[j.tensor])
    replayed = replay.bases([j.tensor for j in suspects[:MOST_SUSPECTS]])
    errors = {t: (values[t], y) for t, y in replayed.items() if values[t].shape == y.shape}
    effects = causal_test(
        reference, feeds, errors, ends, measured, told.outputs, subject.end_limit
    ) if errors else {}  # fmt: skip
    harmless = {t for t, effect in effects.items() if not effect.culprit}
    culprits = [j for j in suspects if j.tensor not in harmless]
    return next(iter([*culprits, *suspects]), None)
