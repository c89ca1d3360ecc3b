"""Which inputs make it fail: what failing samples have in common, and whether random data fails."""

from __future__ import annotations

from collections.abc import Callable

from debugtaps import EngineFailure, InputSpec, random_inputs
from tapsect.axes.inputs import separating
from tapsect.diagnose.ends import EndJudge
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.observed import InputsSeen, Separated
from tapsect.replay.reference import numpy_dtype

__all__ = ["look_at_inputs", "samples_that_fail"]

Tell = Callable[[str, str, str], None]

LIKELY_CHANCE = 0.05


def samples_that_fail(subject: Subject, failure: EngineFailure, tell: Tell) -> tuple[int, ...]:
    """Returns which samples make a run fail: all where the build does, or there is but one."""
    everything = range(len(subject.samples))
    if failure.phase == "build" or len(everything) == 1:
        return tuple(everything)
    found = []
    for number in everything:
        subject.progress.step("sample", f"{number + 1} of {len(everything)}")
        outcome = subject.prober.look(subject.model, [subject.samples[number]], purpose="sample")
        if outcome.failure is not None:
            found.append(number)
    tell("samples", f"{len(found)} of {len(everything)} fail", "each was run by itself")
    return tuple(found) or tuple(everything)


def look_at_inputs(subject: Subject, told: Told, judge: EndJudge | None, tell: Tell) -> None:
    """Says what separates failing samples from the others.

    Where no operator explains the failure, random data of the same sizes is run as a control: if
    that agrees, the failure is one of the samples that were given.
    """
    failing, count = told.failing_samples, len(subject.samples)
    unexplained = told.status == "inconclusive" or told.cause == "input_sensitive"
    control = _control(subject, judge, tell) if unexplained and judge is not None else None
    if control == "agrees" and told.status == "inconclusive":
        told.status, told.cause = "diverges", "input_sensitive"
    if len(failing) == count and control is None:
        return
    others = [s for n, s in enumerate(subject.samples) if n not in failing]
    found = separating([subject.samples[n] for n in failing], others)[:3] if others else []
    told.inputs = InputsSeen(
        failing, count, control,
        tuple(Separated(s.input, s.what, s.failing, s.others, s.chance, s.words) for s in found),
    )  # fmt: skip
    for each in found[:1]:
        luck = f"; with {count} samples luck separates as well" * (each.chance > LIKELY_CHANCE)
        tell("inputs", "separated", each.words + luck)


def _control(subject: Subject, judge: EndJudge, tell: Tell) -> str | None:
    """Returns whether random data ``fails`` or ``agrees``; None where it cannot be judged."""
    if not subject.options.inputs or subject.golden is not None:
        return None  # the samples are random themselves, or only they have a truth
    shapes = {n: v.shape for n, v in subject.samples[0].items()}
    specs = [
        InputSpec(name, numpy_dtype(kind.elem) or "string", kind.shape)
        for name, kind in subject.graph.inputs.items()
    ]
    sample, _ = random_inputs(specs, shapes, seed=subject.options.seed)
    number = len(subject.samples)
    subject.samples.append(sample.feeds)
    try:
        outcome = subject.prober.look(subject.model, [sample.feeds], purpose="control")
        if outcome.failure is not None:
            return None
        ends = judge.judge(number, outcome.values[0])
    except EngineFailure:
        return None  # the reference takes no such data
    finally:
        subject.samples.pop()
    fails = any(end.failing for end, _ in ends.values())
    tell(
        "inputs", "control", f"random data {'fails, too' if fails else 'of the same sizes agrees'}"
    )
    return "fails" if fails else "agrees"
