"""What cures the failure: the flow over the axes, from the narrowest change to the widest.

::

    fold constants and shape arithmetic ─▶ cured: the folded model is a fix
    turn settings on the smallest case  ─▶ those that cure it, tried on the whole model
    turn settings on the whole model    ─▶ when that is asked for, or no case is at hand
    keep nodes in fp32                  ─▶ when that is asked for

A fix counts when a fresh process, with nothing but it changed, answers right.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import EngineFailure, SpecError, UsageError, WorkerError, write_atomic
from tapsect.axes.knobs import Turns, groups, setting
from tapsect.diagnose.cured import CureTest, Tried
from tapsect.diagnose.ends import EndJudge
from tapsect.diagnose.frozen import check_shapes, frozen
from tapsect.diagnose.keeping import Keeper, node_option
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.diagnose.unsteady import looks_for
from tapsect.finding import Fix
from tapsect.request import Request
from tapsect.verdict import Verdict

__all__ = ["FIXABLE", "FIXED", "check_fixing", "fix"]

Tell = Callable[[str, str, str], None]

FIXED = "fixed"
"""The folder, beside the result, that holds changed models."""

FIXABLE = frozenset({"engine_defect", "precision_limit", "flaky_build", "flaky_run", "unsupported"})
"""Causes that a change of settings may cure; the cheap ones are tried by themselves."""

LEAST_SECONDS = 10.0
MOST_SETS = 3
SMALL = 9_000
"""Number from which looks at the smallest case are fresh ones."""


def check_fixing(subject: Subject) -> None:
    """Checks, before any work, that shapes and knobs that were asked for are there.

    Raises:
        UsageError: They are not, and the message lists those that are; or the engine cannot say.
    """
    check_shapes(subject)
    if not subject.options.fixing.knobs:
        return
    known, silent = _knobs(subject)
    if silent:
        raise UsageError(f"--knob: {silent}")
    groups(known, {}, subject.options.fixing.knobs)


def _knobs(subject: Subject) -> tuple[Mapping[str, Any], str]:
    """Returns what the engine says can be turned; or nothing, and why it cannot say."""
    try:
        return subject.engine.knobs(), ""
    except EngineFailure as failure:
        first = next(iter(failure.message.strip().splitlines()), failure.kind)
        return {}, f"the engine's knobs() fails: {first[:300]}"
    except (SpecError, WorkerError) as error:
        return {}, str(error)


def fix(subject: Subject, told: Told, judge: EndJudge | None, tell: Tell, elapsed: float) -> None:
    """Fills ``told.fixes`` with what was seen to cure.

    Args:
        subject: The diagnosis' material.
        told: What was decided.
        judge: Judges outputs; None when the reference has no values for them.
        tell: Writes one step to the trail.
        elapsed: Seconds that the diagnosis took so far.
    """
    asked = subject.options.fixing.thorough
    if told.status == "agrees" or (not asked and told.cause not in FIXABLE):
        return
    budget = subject.options.budget
    limit = budget if asked else min(budget, max(LEAST_SECONDS, elapsed))
    looks = looks_for(subject.unsteady) if told.flaky else 1
    test = CureTest(subject, judge, repeats=looks, deadline=time.monotonic() + limit)
    if budget <= 0:
        if asked:
            tell("fix", "nothing was tried", "--budget is 0, which leaves no time for it")
        return
    _Fixer(subject, told, test, tell).run()


@dataclass
class _Fixer:
    """One search for cures, along one axis after the other."""

    subject: Subject
    told: Told
    test: CureTest
    tell: Tell
    before: Tried | None = field(default=None, init=False)

    @property
    def asked(self) -> bool:
        return self.subject.options.fixing.thorough

    @property
    def most(self) -> int:
        return MOST_SETS if self.asked else 1

    def run(self) -> None:
        if self.asked and not self.subject.options.fixing.knobs:
            self.fold()
        with self.shared():
            self.turn()
        if self.asked and (self.subject.options.fixing.precision_set or self._half()):
            self.keep()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Leaves half of the time to the nodes that stay in fp32, where they were asked for."""
        last, now = self.test.deadline, time.monotonic()
        if self.subject.options.fixing.precision_set:
            self.test.deadline = now + (last - now) / 2
        yield
        self.test.deadline = last

    def _half(self) -> bool:
        """Returns whether half precision was named as the cause and nothing else cures."""
        return self.told.cause == "precision_limit" and not self.told.fixes

    # -- the model for the given shapes ---------------------------------------------------------

    def fold(self) -> None:
        """Tries the model with constants and shape arithmetic folded for the given shapes."""
        subject = self.subject
        subject.progress.step("fix", "folding constants and shape arithmetic")
        made = frozen(subject)
        if made is None:
            self.tell("fix", "nothing to fold", "the model has no constants or shapes to fold")
            return
        path = subject.work / made.file
        path.write_bytes(made.model.SerializeToString())
        left = f"{len(made.model.graph.node)} of {len(subject.graph.nodes)} operators left"
        if not self.test.look(model=path).cures:
            self.tell("fix", f"{made.how} does not cure", left)
            return
        tried = self.test.look(model=path, timed=True)
        if not tried.cures:
            self.tell("fix", f"{made.how} cures at times", left)
            return
        self.tell("fix", f"{made.how} alone cures", left)
        self.add("fold", self.write(path), tried)

    # -- nodes that stay in fp32 ----------------------------------------------------------------

    def keep(self) -> None:
        """Looks for the nodes that must stay in fp32, and writes the mixed model."""
        self.subject.progress.step("precision", "looking for nodes to keep in fp32")
        option = node_option(_knobs(self.subject)[0])
        for kept in Keeper(self.subject, self.told, self.test, self.tell, option).find():
            what = kept.setting
            if kept.model is not None:
                what = f"{self.write(kept.model)} with {what} in fp32"
            self.add("precision", what, kept.tried)

    def write(self, path: Path) -> str:
        """Keeps a changed model beside the result; returns its path there."""
        target = self.subject.folder / FIXED / path.name
        target.parent.mkdir(exist_ok=True)
        with path.open("rb") as source:
            write_atomic(target, lambda file: shutil.copyfileobj(source, file))
        return f"{FIXED}/{path.name}"

    # -- the engine's settings ------------------------------------------------------------------

    def turn(self) -> None:
        """Turns settings: on the smallest case first, where there is one."""
        subject = self.subject
        subject.progress.step("fix", "turning the engine's settings")
        fixing = subject.options.fixing
        known, silent = _knobs(subject)
        grouped = groups(known, subject.specs[0].options, fixing.knobs)
        if not grouped:
            if self.asked:
                self.tell("fix", "nothing to turn", silent or "the engine names no knobs")
            return
        hints = self.on_case(grouped)
        cures = [cure for turns in hints or () for cure in self.completed(turns, grouped)]
        if not cures and (hints is None or self.asked):
            cures = self.test.find(grouped, most=self.most, thorough=self.asked)
        word = "cured"
        if not cures and self.told.cause == "precision_limit" and self.rounding():
            # Rounding has no cure that is free of it: what halves the error is worth telling.
            word, cures = "halved or better", self.test.find(grouped, most=self.most)
        count = sum(len(group) for group in grouped)
        confirmed = [turns for turns in cures if self.confirmed(turns)]
        if confirmed:
            self.tell("fix", f"{word} by {setting(confirmed[0])}", self.price(count))
        else:
            found = "no cure was found in time" if self.test.spent else "no setting cures"
            self.tell("fix", found, self.price(count))

    def rounding(self) -> bool:
        """Lets half the error be enough, where there is one; returns whether there is."""
        self.before = self.before or self.test.look(timed=True)
        error = self.before.error or 0.0
        self.test.enough = error / 2 if math.isfinite(error) else 0.0
        return self.test.enough > 0

    def completed(self, turns: Turns, grouped: Sequence[Turns]) -> list[Turns]:
        """Returns what cures the whole model, too; more of the same option may be needed there."""
        if self.test(turns):
            return [turns]
        options = {turn.option for turn in turns}
        alike = [group for group in grouped if options & {turn.option for turn in group}]
        return self.test.find(alike, kept=turns)

    def price(self, count: int) -> str:
        words = f"{self.test.tries} builds of the whole model for {count} settings"
        return words + ("; time was up, --budget gives more" if self.test.spent else "")

    def on_case(self, grouped: Sequence[Turns]) -> list[Turns] | None:
        """Returns what cures the smallest case; None when there is none to try."""
        blame = self.told.blame
        if blame is None or blame.reduced is None or blame.examiner is None:
            return None
        examiner, candidate = blame.examiner, blame.reduced.candidate
        source = blame.confirmed.source if blame.confirmed else "reference"

        def cures(turns: Turns) -> bool:
            if self.test.spent:
                return False
            try:
                with self.test.turned(turns):
                    looks = range(self.test.repeats)
                    seen = (examiner.examine(candidate, source, fresh=SMALL + n) for n in looks)
                    return all(each.verdict is Verdict.AGREES for each in seen)
            except (SpecError, WorkerError):
                return False

        def request() -> Request | None:
            return examiner.request(candidate, source, SMALL)

        return self.test.find(grouped, test=cures, request=request, most=self.most)

    def confirmed(self, turns: Turns) -> bool:
        """Returns whether a fresh process agrees; writes the fix down."""
        tried = self.test.look(turns, timed=True)
        helps = self.test.helps(tried)
        if helps:
            self.add("knobs", setting(turns), tried)
        return helps

    def add(self, kind: str, what: str, tried: Tried) -> None:
        """Writes a fix down, beside what the engine does without it."""
        if self.before is None:
            self.before = self.test.look(timed=True)
        was = self.before
        found = Fix(
            kind, what, was.error, tried.error, was.latency, tried.latency, cures=tried.cures
        )  # fmt: skip
        self.told.fixes = (*self.told.fixes, found)
