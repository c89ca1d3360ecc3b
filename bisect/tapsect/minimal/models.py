"""The second stage: what is left as a whole small model, with the sample that is kept."""

from __future__ import annotations

import itertools

from tapsect.candidate import Candidate
from tapsect.minimal.flaky import FirstSeen, Repeated
from tapsect.minimal.ground import Parts, Unfed
from tapsect.minimal.judges import ByTrial
from tapsect.minimal.parts import ONCE
from tapsect.minimal.tally import Tally, Told, lanes
from tapsect.reduction import Answer, DoesNotFail, Pass, reduce
from tapsect.simplify import Simplification, Specimen, TooLarge, nearest_passing, specimen, whole
from tapsect.verdict import Signature, Verdict

__all__ = ["fresh_runs", "kept_sample", "made_whole", "simplified"]

_ENDING = 30_000


def kept_sample(tally: Tally, problem: Parts, candidate: Candidate) -> int:
    """Returns which sample is kept: the smallest of those that show the failure."""
    samples = tally.ground.samples
    if len(samples) == 1:
        return 0
    sizes: list[tuple[int, int]] = []
    for number in range(len(samples)):
        tally.calls += 1
        verdict, signature = tally.judge.part(candidate, samples=[number])
        if verdict is Verdict.DIVERGES and problem.is_same(signature):
            held = tally.ground.trial(candidate, [number], fed=False).samples[0]
            sizes.append((sum(value.size for value in held.values()), number))
    kept = min(sizes, default=(0, 0))[1]
    shown = f"{len(sizes)} of {len(samples)} samples show it"
    tally.notes.append(f"{shown}; sample {kept} is kept")
    return kept


def made_whole(tally: Tally, candidate: Candidate, sample: int) -> Specimen | None:
    """Returns a part as a model of its own; ``None`` when what it reads is not known."""
    try:
        trial = tally.ground.trial(candidate, [sample], fed=not isinstance(tally.judge, ByTrial))
    except Unfed:
        return None
    try:
        return specimen(whole(trial.model, trial.folder), trial.samples[0])
    except TooLarge:
        return specimen(trial.model, trial.samples[0], outside=trial.folder)


def simplified(
    tally: Tally, small: Specimen, passes: tuple[Pass, ...], least: float | None = None
) -> tuple[Specimen, tuple[Specimen, str] | None]:
    """Returns the plainest model that still fails, and the nearest one that passes, if any.

    Args:
        tally: The reduction under way.
        small: The model.
        passes: What to try.
        least: How often it fails at least, where it does so now and then: each answer then takes
            as many looks as that asks for.
    """
    again, judge = itertools.count(1), tally.judge

    def once(candidate: Specimen, lane: int) -> Answer:
        return judge.model(candidate, lane=lane)

    def anew(candidate: Specimen, number: int, lane: int) -> Answer:
        return judge.model(candidate, fresh=number, lane=lane)

    repeated: Repeated[Specimen] | None = None
    if least is not None:
        need = (tally.plan.confirm or ONCE).need
        repeated = Repeated(anew, least, FirstSeen(), need)

    afresh = repeated or (lambda candidate, lane: anew(candidate, next(again), lane))
    with lanes(repeated or once, tally.jobs) as lane:
        told = Told[Specimen](tally, lane.ask, "simplify")
        problem = Simplification(
            small, told, ahead=lane.begin, spent=tally.spent(),
            recheck=lambda s: lane.apart(lambda n: afresh(s, n)),
        )  # fmt: skip
        told.problem = problem
        confirm = ONCE if repeated else tally.plan.confirm or ONCE
        result = reduce(problem, passes=passes, confirm=confirm)
    looks = problem.calls
    if repeated is not None:
        looks = sum(repeated.looks[each] for each in problem.asked())
    tally.count(looks, result)
    if isinstance(result, DoesNotFail) or not result.confirmed:
        tally.notes.append("as a file of its own it fails no more: it was not simplified")
        return small, None
    passing = nearest_passing(problem)
    good = None if passing is None else (passing, f"it passes when {passing.change}")
    return result.candidate, good


def fresh_runs(tally: Tally, small: Specimen, wanted: Signature | None, times: int) -> int:
    """Returns how often a model fails, one look at a time."""
    failed = 0
    for number in range(times):
        tally.calls += 1
        verdict, signature = tally.judge.model(small, fresh=_ENDING + number)
        same = wanted is None or signature is None or wanted.matches(signature)
        failed += verdict is Verdict.DIVERGES and same
    return failed
