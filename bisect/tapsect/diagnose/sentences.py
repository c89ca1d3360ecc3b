"""The one sentence that answers: pure, from what was decided to words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tapsect.diagnose.told import Told
from tapsect.escape import clean
from tapsect.finding import Divergence

__all__ = ["Facts", "sentence"]

_NAME_LIMIT = 120

_VERBS: Mapping[str, str] = {
    "accuracy": "computes wrong values",
    "nonfinite": "makes or loses non-finite values",
    "wrong_shape": "answers with a wrong shape",
    "wrong_dtype": "answers with a wrong type",
    "missing_output": "leaves out an output",
    "build_error": "does not build",
    "run_error": "raises an error when run",
    "crash": "crashes",
    "timeout": "hangs",
    "out_of_memory": "runs out of memory",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a sentence needs besides the decisions.

    Attributes:
        engine: The engine, as the user named it.
        samples: How many there are.
        limit: F, the end-to-end floors that an output may be off.
        first: The place, where there is one.
        culprits: The nodes at fault.
        computed: What was seen to compute in which precision.
        ruled: Whether the user's own tolerances or judge decide, in place of floors.
        torch: Whether the truth is what torch computes.
        often: How often a failure comes that does not come each time.
    """

    engine: str
    samples: int
    limit: float
    first: Divergence | None
    culprits: Sequence[str]
    computed: str
    ruled: bool = False
    torch: bool = False
    often: str = ""


def sentence(told: Told, facts: Facts) -> str:
    """Returns what a diagnosis found, in one sentence."""
    if told.status == "agrees":
        return _agrees(told, facts)
    if told.cause == "export_mismatch":
        return _mismatch(facts)
    if told.kernel is not None and facts.first is not None:
        return (
            f"{facts.engine} and the reference share a wrong kernel: {_place(facts.first, ())} "
            "leaves the operator's definition."
        )
    if told.cause == "precision_limit" and not (told.blame and told.blame.suspects):
        if told.explained:
            return f"{facts.engine} differs by rounding alone: {told.explained}."
        what = facts.computed
        return f"{facts.engine} computes {what}; the outputs lie within the rounding of that."
    if told.cause == "ill_conditioned" and told.amplified:
        end, factor = told.amplified
        return (
            "The model is ill-conditioned: rounding reaches output"
            f" {_quoted(end.name)} amplified {factor:.0f} times."
        )
    if told.cause == "input_sensitive":
        count = len(told.failing_samples)
        text = f"{count} of {facts.samples} samples fail, and no single operator explains it"
        seen = told.inputs
        if seen is not None and seen.separated_by:
            return f"{text}: {seen.separated_by[0].words}."
        if seen is not None and seen.control == "agrees":
            return f"{text}; random data of the same sizes agrees."
        return f"{text}."
    if told.cause in ("flaky_build", "flaky_run") and facts.first is None:
        what = "Builds of one model" if told.cause == "flaky_build" else "Runs of one build"
        return f"{what} by {facts.engine} disagree: {facts.often or 'some fail, some do not'}."
    if told.cause == "resource_limit":
        how = f": {told.blame.how}" if told.blame and told.blame.how else ""
        return f"{facts.engine} ran out of memory{how}."
    return _located(told, facts)


def _agrees(told: Told, facts: Facts) -> str:
    if told.cause == "ill_conditioned" and told.amplified:
        end, factor = told.amplified
        share = end.error / end.scale if end.error and end.scale else 0.0
        where = (
            f", most of it by the rounding of {_quoted(told.amplifier.tensor)}"
            if told.amplifier
            else ""
        )
        return (
            f"{facts.engine} agrees: output {_quoted(end.name)} differs by {share:.1%}, no more"
            f" than rounding moves this ill-conditioned model (amplified {factor:.0f} times"
            f"{where})."
        )
    truth = "torch" if facts.torch else "the reference"
    if facts.ruled:
        return f"{facts.engine} agrees with {truth} by the rule that was given."
    ends = [end for sample in told.ends for end in sample]
    if not ends:
        return f"{facts.engine} builds the model; nothing was run, no values were compared."
    if not any(end.floors or end.max_abs or end.nonfinite_engine for end in ends):
        return f"{facts.engine} agrees with {truth} exactly."
    worst = max((end.floors for end in ends), default=0.0)
    return (
        f"{facts.engine} agrees with {truth}: no output is further off than {worst:.1f}"
        f" times what rounding alone does (limit {facts.limit:g})."
    )


def _mismatch(facts: Facts) -> str:
    place, where = facts.first, ""
    if place is not None:
        line = f", {clean(place.source, limit=_NAME_LIMIT)}" if place.source else ""
        where = f" from node {_quoted(place.node)} ({place.op_type}{line}) on"
    if facts.torch:
        return f"The exported model differs from torch{where}; the engine is not to blame."
    return f"The model itself differs from its original{where}; the engine is not to blame."


def _located(told: Told, facts: Facts) -> str:
    engine, first, blame = facts.engine, facts.first, told.blame
    verb = _VERBS.get(told.failure or "", "fails")
    if first is None or not blame or told.cause is None:
        how = blame.how if blame and blame.how else "no operator could be blamed"
        return f"{engine} {verb}, but the place was not found: {how}."
    what = _place(first, facts.culprits or first.nodes or (first.node,))
    text = f"{engine} {verb} at {what}"
    if told.cause == "reference_suspect":
        return (
            f"{text}, but an independent evaluator agrees with the engine: suspect the reference."
        )
    if told.cause == "unsupported":
        return f"{engine} does not support {what}."
    if told.cause == "precision_limit":
        return f"{text}: its type cannot hold the value that the reference computes."
    if told.cause in ("flaky_build", "flaky_run"):
        some = f"in some {'builds' if told.cause == 'flaky_build' else 'runs'} only"
        return f"{text}, {some}" + (f": {facts.often}." if facts.often else ".")
    ratio = first.rounding_ratio
    if ratio is not None and math.isfinite(ratio):
        text += f": an error {ratio:.3g} times what rounding explains"
    return text + "."


def _place(first: Divergence, names: Sequence[str]) -> str:
    last = f"{_quoted(first.node)} ({first.op_type})"
    return f"node {last}" if len(names) < 2 else f"{len(names)} nodes that end in {last}"


def _quoted(name: str) -> str:
    """Returns a name in quotes, invisible characters escaped and its middle left out if long."""
    return f"'{clean(name, limit=_NAME_LIMIT)}'"
