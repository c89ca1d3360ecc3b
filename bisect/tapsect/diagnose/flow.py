"""The decision flow of one command: from a model and an engine to a finding.

build untapped ─▶ no output fails ─▶ agrees (why, if there is a difference)
│ fails
├─ without values ─▶ predicate search ──────────────┐
└─ with values ─▶ taps, observer proof, replay,     ├─▶ confirm ─▶ reduce ─▶ case
causal test ──────────────────────┘
│ no operator to blame
└─▶ precision, conditioning, inputs, flakiness, or inconclusive
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import EngineFailure, Tolerance
from tapsect.diagnose.blame import Blame, blame_error, blame_values
from tapsect.diagnose.ends import EndJudge, Truth
from tapsect.diagnose.subject import Options, Source, Subject, open_subject
from tapsect.diagnose.summary import Told, compose
from tapsect.finding import Finding, Step
from tapsect.folder import claimed
from tapsect.localize.explain import amplification, amplifier, contributors, ill_conditioned
from tapsect.localize.taps import Ends, Located, Locator
from tapsect.probe import Outcome
from tapsect.progress import Progress, Silent

__all__ = ["diagnose"]

FLAKY_TRIES = 6


def diagnose(
    model: str | Path,
    *,
    inputs: Sequence[Source] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    engine: str = "ort",
    engine_options: Mapping[str, Any] | None = None,
    engine_python: Path | None = None,
    reference: str | Path | None = None,
    reference_model: Path | None = None,
    precision: str | None = None,
    tolerance: Tolerance | None = None,
    judge: str | None = None,
    tap_memory: int = 1 << 30,
    timeout: float = 600.0,
    budget: float = 120.0,
    out: Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    command: Sequence[str] = (),
) -> Finding:
    """Finds where an engine first diverges from its reference, why, and the smallest failing case.

    Args:
        model: An ONNX file; its external weights lie beside it.
        inputs: ``.npz`` files, Polygraphy's JSON, a script with ``load_data()``, or mappings of
            arrays; seeded random data when none are given.
        input_shapes: Shapes for random data, by input.
        engine: The engine under suspicion: a name, ``file.py:Class`` or ``module:Class``.
        engine_options: Keyword arguments of the engine.
        engine_python: Another interpreter to run it under.
        reference: The reference engine, or a file of golden values.
        reference_model: The fp32 original of a converted model.
        precision: The precision the engine is meant to compute in; the model's types otherwise.
        tolerance: The user's own rule for outputs, in place of end-to-end floors.
        judge: ``file.py:function`` that returns why outputs fail, given engine's and reference's.
        tap_memory: Bytes that taps may take in one build.
        timeout: Seconds that one build or run may take.
        budget: Seconds for what only makes the case prettier.
        out: Folder for ``result.json``, report, journal and case; ``tapsect-<model>`` if None.
        seed: Of random data and noise.
        progress: Hears of each step.
        command: The command line, for the record.

    Returns:
        The finding; it is also written to ``out``.

    Raises:
        TapsError: Input, environment or reference cannot be used; ``exit_code`` says which.
    """
    options = Options(
        Path(model), tuple(inputs), input_shapes, engine, dict(engine_options or {}),
        engine_python, reference, reference_model, precision, tolerance, judge,
        tap_memory, timeout, budget, out, seed, tuple(command),
    )  # fmt: skip
    with claimed(out or Path(f"tapsect-{Path(model).stem}")) as folder:
        subject = open_subject(options, folder, progress or Silent())
        finished = False
        try:
            finding = _Diagnosis(subject).run()
            finished = True
            return finding
        except EngineFailure as failure:  # the engine's own are observations, kept as such
            raise subject.reference.failed(failure) from failure
        finally:
            subject.close(finished=finished)


@dataclass
class _Diagnosis:
    """One diagnosis under way: what was done so far, and what it decided."""

    subject: Subject
    started: float = field(default_factory=time.monotonic)
    trail: list[Step] = field(default_factory=list)
    told: Told = field(default_factory=Told)
    counted: int = 0

    def run(self) -> Finding:
        """Returns the finding, written to the subject's folder."""
        subject = self.subject
        subject.progress.step("untapped", "building the model as it is")
        with ThreadPoolExecutor(max_workers=1) as pool:
            truth = pool.submit(self._truth)  # the reference has a worker of its own
            try:
                probed = [*subject.samples, subject.samples[0]]
                outcome = subject.prober.look(
                    subject.model, probed, purpose="untapped", details=True
                )
            except BaseException:
                subject.truth.abort()
                raise
        self._step("build", "untapped", _outcome_text(outcome))
        if outcome.failure is not None:
            self._without_values(outcome.failure)
        else:
            self._with_values(outcome, truth.result())
        self.told.trail = tuple(self.trail)
        self.told.seconds = time.monotonic() - self.started
        return compose(subject, self.told)

    def _step(self, step: str, decision: str, why: str) -> None:
        builds = self.subject.prober.builds
        self.trail.append(Step(step, decision, why, builds - self.counted))
        self.counted = builds

    def _truth(self) -> Truth:
        """Returns what outputs should be; types that inference cannot tell come from a run."""
        subject = self.subject
        try:
            subject.graph = subject.reference.complete(subject.samples[0])
        except EngineFailure as failure:
            raise subject.reference.failed(failure) from failure
        return Truth(subject)

    # -- no values: crash, hang, build error ---------------------------------------------------

    def _without_values(self, failure: EngineFailure) -> None:
        told = self.told
        told.failure, told.engine_failure = failure.kind, failure
        again = self.subject.prober.look(
            self.subject.model, self.subject.samples, purpose="again", fresh=1
        )
        if again.failure is None:
            self._step("repeat", "flaky", "a second build of the same model works")
            told.status, told.cause = "diverges", "flaky_build"
            return
        self._step("repeat", "fails again", f"{again.failure.kind}: {_line(again.failure)}")
        blame = blame_error(self.subject, failure, self._step)
        self._blamed(blame, located=None)

    # -- values --------------------------------------------------------------------------------

    def _with_values(self, outcome: Outcome, truth: Truth) -> None:
        subject, told = self.subject, self.told
        judge = EndJudge(subject, truth)
        ends = [judge.judge(n, outcome.values[n]) for n in range(len(subject.samples))]
        told.ends = [[e for e, _ in sample.values()] for sample in ends]
        told.export = truth.export
        failing = [n for n, sample in enumerate(ends) if any(e.failing for e, _ in sample.values())]
        self._step("outputs", "fail" if failing else "agree", self._ends_text(told.ends))
        if truth.export is not None and failing:
            self._mismatch(truth)
            return
        if not failing:
            self._agrees(truth)
            return
        worst = max(failing, key=lambda n: max(e.floors for e, _ in ends[n].values()))
        told.failure = self._kind(ends[worst])
        told.failing_samples = tuple(failing)
        second = judge.judge(0, outcome.values[-1]) if 0 in failing else None
        if second is not None and not any(e.failing for e, _ in second.values()):
            self._step("repeat", "flaky run", "a second run of the same build agrees")
            told.flaky = "flaky_run"
        self._locate(worst, ends[worst], judge, truth)

    def _kind(self, ends: Ends) -> str:
        order = ["missing_output", "wrong_shape", "wrong_dtype", "nonfinite", "accuracy"]
        kinds = {e.kind for e, _ in ends.values() if e.kind}
        return next(k for k in order if k in kinds)

    def _ends_text(self, ends: Sequence[Sequence[Any]]) -> str:
        flat = [e for sample in ends for e in sample]
        worst = max(flat, key=lambda e: (e.failing, e.floors))
        return f"{sum(e.failing for e in flat)} of {len(flat)} fail; {worst.name!r}: {worst.reason}"

    def _agrees(self, truth: Truth) -> None:
        subject, told = self.subject, self.told
        told.status = "agrees"
        for number, ends in enumerate(told.ends):
            for end in ends:
                u = subject.reference.roundoff(end.name)
                if end.error and ill_conditioned(end, u):
                    found = amplifier(subject.reference, subject.samples[number], end.name)
                    told.cause, told.amplifier = "ill_conditioned", found
                    told.amplified = (end, amplification(end, u))
                    self._step("explain", "ill_conditioned", "rounding alone moves this output")
                    return
                if end.error and subject.roundoff > 2.0**-24:
                    told.cause = "precision_limit"

    def _mismatch(self, truth: Truth) -> None:
        told = self.told
        told.status, told.cause = "diverges", "export_mismatch"
        told.failure = told.failure or "accuracy"
        self._step("original", "export_mismatch", truth.export.why if truth.export else "")

    def _locate(self, number: int, before: Ends, judge: EndJudge, truth: Truth) -> None:
        subject, told = self.subject, self.told
        told.sample = number
        located = self._look(number, before, judge, truth)
        if located.evidence is None or located.healing:
            self._check_flaky(number, judge)
            if told.flaky and (located.evidence is None or not located.evidence.culprits):
                for _ in range(FLAKY_TRIES):  # a tapped build that fails as before is evidence
                    self.subject.prober.epoch += 1
                    located = self._look(number, before, judge, truth, most=1)
                    if located.evidence is not None:
                        break
        told.located = located
        evidence = located.evidence
        if evidence is not None and evidence.culprits:
            self._blamed(self._blame(number, located, before, judge), located)
        elif evidence is not None:
            self._unblamed(number, before, located, truth)
        elif told.flaky:
            told.status, told.cause = "diverges", told.flaky
        else:
            self._blamed(self._blame(number, located, before, judge), located)

    def _blame(self, number: int, located: Located, before: Ends, judge: EndJudge) -> Blame:
        def flaky() -> bool:
            self._check_flaky(number, judge)
            return self.told.flaky is not None

        return blame_values(
            self.subject, number, located, before, flaky, self._step,
            known_flaky=self.told.flaky is not None,
        )  # fmt: skip

    def _look(
        self, number: int, before: Ends, judge: EndJudge, truth: Truth, most: int | None = None
    ) -> Located:
        subject = self.subject
        locator = Locator(
            subject.reference, subject.prober, subject.work,
            feeds=subject.samples[number], before=before, measured=truth.measured(number),
            judge=lambda values: judge.judge(number, values), end_limit=subject.end_limit,
            tap_memory=subject.options.tap_memory, known=None, progress=subject.progress,
            most=most,
        )  # fmt: skip
        located = locator.locate()
        for what, why, builds in located.steps:
            self.trail.append(Step("taps", what, why, builds))
        self.counted = subject.prober.builds
        return located

    def _check_flaky(self, number: int, judge: EndJudge) -> None:
        """Builds the untapped model again: does it fail alike?"""
        subject = self.subject
        if self.told.flaky:
            return
        for fresh in (1, 2):
            again = subject.prober.look(
                subject.model, [subject.samples[number]], purpose="again", fresh=fresh
            )
            if again.failure is not None:
                return
            ends = judge.judge(number, again.values[0])
            if not any(e.failing for e, _ in ends.values()):
                self.told.flaky = "flaky_build"
                self._step("repeat", "flaky", "another build of the same model agrees")
                return
        self._step("repeat", "fails alike", "further builds of the untapped model fail as well")

    def _blamed(self, blame: Blame, located: Located | None) -> None:
        told = self.told
        told.blame, told.located = blame, located or told.located
        told.cause = blame.cause
        told.status = "inconclusive" if blame.cause is None else "diverges"
        if told.flaky and blame.cause in (None, "engine_defect"):
            told.status, told.cause = "diverges", told.flaky

    def _unblamed(self, number: int, before: Ends, located: Located, truth: Truth) -> None:
        """No operator is to blame: precision, conditioning, inputs, or nothing that fits."""
        subject, told, evidence = self.subject, self.told, located.evidence
        assert evidence is not None
        told.status = "diverges"
        effective = truth.within(number, before, evidence.classes)
        if effective is not None:
            told.cause = "precision_limit"
            told.contributors = tuple(contributors(
                subject.reference, subject.samples[number], evidence, before,
                truth.measured(number), subject.end_limit,
            )[:5])  # fmt: skip
            self._step("explain", "precision_limit", effective)
        elif told.flaky:
            told.cause = told.flaky
        elif (bad := self._conditioned(before)) is not None:
            told.cause = "ill_conditioned"
            told.amplifier = amplifier(subject.reference, subject.samples[number], bad.name)
            told.amplified = (bad, amplification(bad, subject.reference.roundoff(bad.name)))
            self._step("explain", "ill_conditioned", "rounding alone moves this output far")
        elif len(told.failing_samples) < len(subject.samples):
            told.cause = "input_sensitive"
            self._step("explain", "input_sensitive", "only some samples fail")
        else:
            told.status = "inconclusive"
            self._step("explain", "inconclusive", "no operator, precision or input explains it")

    def _conditioned(self, before: Ends) -> Any:
        return next(
            (e for e, _ in before.values()
             if e.failing and ill_conditioned(e, self.subject.reference.roundoff(e.name))), None
        )  # fmt: skip


def _outcome_text(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return f"{outcome.failure.kind}: {_line(outcome.failure)}"
    return f"built and ran {max(1, len(outcome.values) - 1)} sample(s) in {outcome.seconds:.2f} s"


def _line(failure: EngineFailure) -> str:
    return next((s.strip() for s in failure.message.splitlines() if s.strip()), "")[:200]
