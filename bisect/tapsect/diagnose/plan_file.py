"""An engine file that was given: it is the untapped run, and a rebuild should fail as it does.

Where the place of a failure is looked for, models are built.  A fault that only the given file
has cannot be found that way, and that is what is said first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from debugtaps import Array, InputError
from tapsect.diagnose.ends import EndJudge
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.journal import Outcome
from tapsect.localize.taps import Ends

__all__ = ["first_look", "only_in_plan", "rebuilt_alike"]

Tell = Callable[[str, str, str], None]


def first_look(subject: Subject, samples: Sequence[Mapping[str, Array]]) -> Outcome:
    """Returns what the given file shows, or what the model shows when it is built as it is.

    Raises:
        InputError: The engine cannot load the file.
    """
    plan = subject.options.engine_file
    if plan is None:
        return subject.prober.look(subject.model, samples, purpose="untapped", details=True)
    outcome = subject.prober.look(
        subject.model, samples, purpose="given file", details=True, plan=plan
    )
    failure = outcome.failure
    if failure is not None and failure.phase == "build" and failure.kind == "build_error":
        raise InputError(f"--engine-file {plan}: {failure.message}; give a file of this engine")
    return outcome


def rebuilt_alike(subject: Subject, told: Told, ends: Ends, judge: EndJudge, tell: Tell) -> bool:
    """Returns whether a rebuild fails in the outputs that the given file fails in, in that way.

    Args:
        subject: The diagnosis' material.
        told: Takes in what is said first when it does not.
        ends: The given file's judged outputs, of the sample ``told.sample``.
        judge: Judges outputs.
        tell: Writes one step to the trail.
    """
    if subject.options.engine_file is None:
        return True
    feeds = subject.samples[told.sample]
    outcome = subject.prober.look(subject.model, [feeds], purpose="rebuilt")
    if outcome.failure is not None:
        return only_in_plan(told, f"a rebuild ends with {outcome.failure.kind}", tell)
    again = judge.judge(told.sample, outcome.values[0])
    kinds = {name: end.kind for name, (end, _) in ends.items() if end.failing}
    rebuilt = {name: end.kind for name, (end, _) in again.items() if end.failing}
    if kinds == rebuilt:
        tell("rebuild", "fails alike", f"the outputs {', '.join(map(repr, kinds))} fail in both")
        return True
    what = f"fails in {', '.join(map(repr, rebuilt))}" if rebuilt else "agrees"
    return only_in_plan(told, f"a rebuild of the model {what}", tell)


def only_in_plan(told: Told, rebuild: str, tell: Tell) -> bool:
    """Writes down that the failure is the given file's alone; returns False."""
    told.first = f"The given engine file fails, {rebuild}: the fault is in that file."
    tell("rebuild", "does not fail alike", rebuild)
    told.status, told.cause = "diverges", "flaky_build"
    return False
