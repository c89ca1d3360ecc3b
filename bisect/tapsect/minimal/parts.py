"""The first stage: parts of the graph, by one question each or by many where the check is flaky."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tapsect.candidate import Candidate
from tapsect.finding import Step
from tapsect.minimal.flaky import FirstSeen, Repeated, Slice, measure, slice_of
from tapsect.minimal.ground import Parts
from tapsect.minimal.tally import Tally, Told, lanes
from tapsect.minimal.words import confidence, doubtful
from tapsect.reduction import Answer, Confirm, DoesNotFail, Pass, Reduced, reduce
from tapsect.search.noisy import Firing

__all__ = ["ONCE", "Reached", "reduce_parts"]

ONCE = Confirm(1, 1)
# Questions asked anew have numbers of their own, so that none is answered from another's record.
_MEASURING, _SEARCHING = 10_000, 20_000


@dataclass(frozen=True, slots=True)
class Reached:
    """What the first stage came to.

    Attributes:
        problem: What was asked.
        result: The smallest part, or why there is none.
        slice: Where a flaky fault was searched; ``None`` when the check is not flaky.
        firing: How often the start fails, where that was measured.
    """

    problem: Parts
    result: Reduced[Candidate] | DoesNotFail
    slice: Slice | None = None
    firing: Firing | None = None


def reduce_parts(tally: Tally, start: Candidate, passes: tuple[Pass, ...]) -> Reached:
    """Returns the smallest part of the graph that fails.

    With ``--confirm`` the start is measured first.  Without, a check that does not fail again at
    the end is measured then; one that does not fail twice at the start is refused.
    """
    if tally.plan.confirm is not None:
        firing = _measured(tally, start)
        if 0 < firing.failed < firing.of:
            return _noisy(tally, start, passes, firing)
    reached = _plain(tally, start, passes)
    result = reached.result
    if isinstance(result, DoesNotFail):
        firing_seen = _measured(tally, start) if result.unstable else None
        return Reached(reached.problem, result, firing=firing_seen)
    if not result.confirmed:
        firing = _measured(tally, start)
        if firing.failed < firing.of:
            tally.notes.append("the end did not fail again: the check fails now and then")
            return _noisy(tally, start, passes, firing)
    return reached


def _plain(tally: Tally, start: Candidate, passes: tuple[Pass, ...]) -> Reached:
    again, judge, plan = itertools.count(1), tally.judge, tally.plan

    def in_lane(candidate: Candidate, lane: int) -> Answer:
        return judge.part(candidate, lane=lane)

    with lanes(in_lane, tally.jobs) as lane:
        told = Told[Candidate](tally, lane.ask, "reduce")
        problem = Parts(
            tally.ground.structure, start, told, ahead=lane.begin, spent=tally.spent(),
            recheck=lambda c: lane.apart(lambda n: judge.part(c, fresh=next(again), lane=n)),
        )  # fmt: skip
        if plan.ask is not None:
            problem.ahead = judge.announce
        problem.keep_outputs, told.problem = plan.keep_outputs, problem
        full = plan.mode == "full"
        hint = judge.hint() if full else ()
        tally.calls += len(hint)  # the build with all tensors exposed
        result = reduce(problem, passes=passes, hint=hint, confirm=plan.confirm or ONCE, prove=full)
    tally.count(problem.calls, result)
    return Reached(problem, result)


def _measured(tally: Tally, start: Candidate) -> Firing:
    tally.progress.step("measure", "how often the whole fails")
    numbers = itertools.count(_MEASURING)
    firing = measure(lambda _: tally.judge.part(start, fresh=next(numbers)), FirstSeen())
    tally.calls += firing.of
    said = f"fails {firing.failed} of {firing.of} times"
    tally.trail.append(Step("measure", said, "", firing.of))
    return firing


def _noisy(tally: Tally, start: Candidate, passes: tuple[Pass, ...], firing: Firing) -> Reached:
    same = FirstSeen()
    ground = tally.ground

    def fresh(candidate: Candidate, number: int) -> Answer:
        return tally.judge.part(candidate, fresh=_SEARCHING + number)

    tally.progress.step("noisy search", f"it fails {firing.failed} of {firing.of} times")
    found = slice_of(ground.structure, start, fresh, firing, same)
    tally.calls += found.calls
    why = f"{len(found.nodes)} nodes, confidence {confidence(found.confidence)}"
    decision = "sure" if found.sure else "not sure"
    tally.trail.append(Step("noisy search", decision, why, found.calls))
    tally.notes += doubtful(found, ground.graph)
    need = (tally.plan.confirm or ONCE).need

    def in_lane(candidate: Candidate, number: int, lane: int) -> Answer:
        return tally.judge.part(candidate, fresh=number, lane=lane)

    repeated = Repeated(in_lane, found.least, same, need)
    with lanes(repeated, tally.jobs) as lane:
        told = Told[Candidate](tally, lane.ask, "reduce")
        problem = Parts(
            ground.structure, start, told, spent=tally.spent(), ahead=lane.begin,
            recheck=lambda c: lane.apart(lambda n: repeated(c, n)),
        )  # fmt: skip
        problem.keep_outputs, told.problem = tally.plan.keep_outputs, problem
        result = reduce(
            problem, passes=passes, hint=sorted(found.nodes), confirm=ONCE,
            prove=tally.plan.mode == "full",
        )  # fmt: skip
    tally.count(sum(repeated.looks[each] for each in problem.asked()), result)
    return Reached(problem, result, found, firing)
