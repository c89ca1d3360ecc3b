"""``tapsect selfcheck``: does an engine agree with itself, where no reference is needed?

Two answers are held together up to rounding at the stated precision, measured on the reference
where it can run the model and estimated from its depth where not.  What the reference itself does
not keep (a model that mixes rows) is no question for the engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import tapsect
from debugtaps import (
    Array,
    Build,
    EngineFailure,
    ReferenceFailed,
    freeze,
    promote,
    save,
    write_json_atomic,
)
from tapsect.axes.consistency import Feeds, Question, Run, batch_of, questions
from tapsect.diagnose.given import Options
from tapsect.diagnose.subject import Subject, open_subject
from tapsect.environment import environment
from tapsect.finding import Cost, Finding, Step
from tapsect.folder import RESULT, claimed
from tapsect.progress import Progress, Silent
from tapsect.rounding.floors import limit_for, rms
from tapsect.rounding.outputs import Measured, judge_output
from tapsect.steady.sizes import sample_for

__all__ = ["Answer", "Selfcheck", "check_itself"]

ROWS = 4
SHAKEN = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question showed: ``held``, ``broken`` or ``not asked``, and why."""

    question: str
    told: str
    why: str


@dataclass(frozen=True, slots=True)
class Selfcheck:
    """What all questions showed."""

    finding: Finding
    answers: tuple[Answer, ...]
    folder: Path


def check_itself(options: Options, *, progress: Progress | None = None) -> Selfcheck:
    """Asks an engine the questions of :mod:`tapsect.axes.consistency`.

    Args:
        options: Model, engine and inputs; the first sample is used, random rows when none.
        progress: Hears of each question.

    Raises:
        UsageError: Something that was given cannot be used.
        EnvironmentFailure: A worker cannot be started.
        EngineFailure: The engine does not build or run the model at all.
    """
    started = time.monotonic()
    name = options.out or Path(f"tapsect-selfcheck-{options.model.stem}")
    with claimed(name) as folder:
        subject = open_subject(options, folder, progress or Silent())
        try:
            asker = _Asker(subject)
            answers = tuple(asker.answers())
        finally:
            subject.close(finished=True)
        finding = _finding(subject, answers, time.monotonic() - started)
        write_json_atomic(folder / RESULT, finding.to_json())
    return Selfcheck(finding, answers, folder)


@dataclass
class _Asker:
    """One engine being asked."""

    subject: Subject
    feeds: Feeds = field(default_factory=dict)
    truth: Measured | None = None

    def answers(self) -> list[Answer]:
        """Returns what each question showed."""
        subject = self.subject
        batch = batch_of(subject.graph.inputs, subject.graph.outputs)
        given = bool(subject.options.inputs or subject.options.input_shapes)
        rows = ROWS if batch is not None and batch.dynamic and not given else 0
        self.feeds = sample_for(
            subject, dict.fromkeys(batch.inputs, ROWS) if batch and rows else {}
        )
        if batch is not None:
            rows = len(self.feeds[next(iter(batch.inputs))])
        self._measure()
        with subject.engine.build(subject.model, timeout=subject.options.timeout) as build:
            first = self._run(build)(self.feeds)
            found = [
                self._ask(
                    q, self._run(build), first, batch.outputs if batch and q.rowwise else None
                )
                for q in questions(batch, rows)
            ]
        if any(
            not isinstance(d, int) for t in subject.graph.inputs.values() for d in t.shape or ()
        ):
            found.append(self._static(first))
        if batch is None:
            found.append(Answer("rows", "not asked", "no axis is named as a batch in both ends"))
        return found

    def _run(self, build: Build) -> Run:
        return lambda feeds: build.run(feeds, timeout=self.subject.options.timeout)

    def _measure(self) -> None:
        """Runs the reference with noise, if it can."""
        subject = self.subject
        try:
            subject.graph = subject.reference.complete(self.feeds)
            base = subject.reference.ends(self.feeds, samples=8)
            shaken = subject.reference.ends(self.feeds, samples=SHAKEN, factor=2.0)
            self.truth = replace(base, changed=shaken.changed)
        except (EngineFailure, ReferenceFailed):
            subject.notes.append("the reference cannot run this model: floors are estimated")

    def _ask(
        self, question: Question, run: Run, first: Feeds, names: frozenset[str] | None
    ) -> Answer:
        self.subject.progress.step("ask", question.what)
        if names is not None and not self._kept_by_reference(question, names):
            return Answer(question.name, "not asked", "the reference does not keep it: rows mix")
        try:
            other = question.ask(run, self.feeds)
        except EngineFailure as failure:
            return Answer(question.name, "broken", f"{failure.kind}: {_line(failure)}")
        return self._held(question.name, other, question.expect(first), names)

    def _kept_by_reference(self, question: Question, names: frozenset[str]) -> bool:
        if self.truth is None:
            return True
        reference = self.subject.reference
        try:
            other = question.ask(lambda feeds: reference.ends(feeds, samples=0).base, self.feeds)
        except (EngineFailure, ReferenceFailed):
            return False
        told = self._held(question.name, other, question.expect(self.truth.base), names)
        return told.told == "held"

    def _held(
        self, question: str, other: Feeds, first: Feeds, names: frozenset[str] | None
    ) -> Answer:
        """Returns whether two answers lie within each other's rounding."""
        worst = 0.0
        for name, want in first.items():
            if names is not None and name not in names:
                continue
            u = self.subject.reference.roundoff(name)
            measured = self._around(name, want, u)
            changed = measured.changed.get(name)
            end = judge_output(
                name, other.get(name), measured, u, limit_for(self.subject.roundoff),
                explained=changed if changed is not None and changed.shape == want.shape else None,
            )  # fmt: skip
            if end.failing:
                return Answer(question, "broken", f"output {name!r}: {end.reason}")
            worst = max(worst, end.floors)
        return Answer(question, "held", f"at most {worst:.3g} floors apart")

    def _around(self, name: str, want: Array, u: float) -> Measured:
        """Returns an answer with what rounding does to it, twice: both answers are rounded."""
        if self.truth is not None and name in self.truth.spread:
            spread = self.truth.spread[name] * math.sqrt(2)
        else:
            depth = max(1, self.subject.reference.topology.depth.get(name, 1))
            size = rms(np.where(np.isfinite(want), want, 0)) if want.dtype.kind == "f" else 0.0
            spread = np.full(want.shape, u * size * math.sqrt(2 * depth), np.float32)
        changed = self.truth.changed if self.truth is not None else {}
        if spread.shape != want.shape:
            spread = np.zeros(want.shape, np.float32)
        return Measured({name: want}, {name: spread}, changed, {})

    def _static(self, first: Feeds) -> Answer:
        """Holds a build for the sizes of this sample against the one for any size."""
        subject = self.subject
        subject.progress.step("ask", "fixed sizes against any size")
        shapes: Mapping[str, Any] = {n: v.shape for n, v in self.feeds.items()}
        model = freeze(promote(subject.graph, ()), shapes)
        path = save(model, subject.work / "static.onnx")
        try:
            with subject.engine.build(path, timeout=subject.options.timeout) as build:
                return self._held("static", self._run(build)(self.feeds), first, None)
        except EngineFailure as failure:
            return Answer("static", "broken", f"{failure.kind}: {_line(failure)}")


def _line(failure: EngineFailure) -> str:
    return next(iter(failure.message.splitlines()), "")[:200]


def _finding(subject: Subject, answers: tuple[Answer, ...], seconds: float) -> Finding:
    options = subject.options
    broken = [a for a in answers if a.told == "broken"]
    cause = None
    if broken:
        cause = "flaky_run" if broken[0].question == "twice" else "engine_defect"
    asked = sum(a.told != "not asked" for a in answers)
    if broken:
        named = ", ".join(a.question for a in broken)
        message = f"{options.engine} does not agree with itself ({named}): {broken[0].why}."
    else:
        plural = "s" if asked != 1 else ""
        message = f"{options.engine} agrees with itself; {asked} question{plural} asked."
    return Finding(
        message=message, status="diverges" if broken else "agrees", failure=None, cause=cause,
        tool_version=tapsect.__version__, command=tuple(options.command),
        model={"path": str(options.model), "sha256": subject.graph.sha256},
        engine={"spec": options.engine, "options": dict(options.engine_options)},
        trail=tuple(Step(a.question, a.told, a.why) for a in answers),
        cost=Cost(subject.engine.builds, subject.engine.runs, round(seconds, 3)),
        notes=tuple(subject.notes), environment=environment(),
    )  # fmt: skip
