"""The decision flow of one command: from a model and an engine to a finding.

Each branch is one decision, and each decision one step of the trail::

    build untapped ─▶ no output fails ─▶ agrees (why, if there is a difference)
         │ fails
         ├─ without values ─▶ predicate search ──────────────┐
         └─ with values ─▶ taps, observer proof, replay,     ├─▶ confirm ─▶ reduce ─▶ case
                           causal test ──────────────────────┘
                               │ no operator to blame
                               └─▶ precision, conditioning, inputs, flakiness, or inconclusive

A cause that a setting may cure is followed by a search for that setting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import EngineFailure, TapsError, Tolerance
from tapsect.diagnose.ends import EndJudge, Truth
from tapsect.diagnose.failure import blame_error
from tapsect.diagnose.fixes import check_fixing, fix
from tapsect.diagnose.given import Fixing, as_path
from tapsect.diagnose.place import Place
from tapsect.diagnose.plan_file import first_look, only_in_plan, rebuilt_alike
from tapsect.diagnose.sensitive import look_at_inputs, samples_that_fail
from tapsect.diagnose.subject import Options, Source, Subject, TapMode, open_subject
from tapsect.diagnose.summary import Told, compose
from tapsect.diagnose.unsteady import measure, said
from tapsect.diagnose.why import explain_agreement, note_nan
from tapsect.diagnose.workers import Workers
from tapsect.finding import Finding, Step
from tapsect.folder import claimed
from tapsect.journal import Outcome
from tapsect.localize.taps import Ends
from tapsect.progress import Progress, Silent

__all__ = ["diagnose"]


def diagnose(
    model: str | Path,
    *,
    inputs: Sequence[Source] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    engine: str = "ort",
    engine_options: Mapping[str, Any] | None = None,
    engine_python: str | Path | None = None,
    engine_file: str | Path | None = None,
    reference: str | Path | None = None,
    reference_model: str | Path | None = None,
    precision: str | None = None,
    tolerance: Tolerance | None = None,
    judge: str | None = None,
    tap_memory: int = 1 << 30,
    tap_mode: TapMode = "auto",
    timeout: float = 600.0,
    budget: float = 120.0,
    out: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    command: Sequence[str] = (),
    fixing: Fixing | None = None,
    begun: Workers | None = None,
    most_builds: int | None = None,
    jobs: int = 1,
) -> Finding:
    """Finds where an engine first diverges from its reference, why, and the smallest failing case.

    Args:
        model: An ONNX file, its external weights beside it; or a Python file with ``Model`` and
            ``get_fwd_args()``, whose export is then held against torch, too.
        inputs: ``.npz`` files, Polygraphy's JSON, a script with ``load_data()``, or mappings of
            arrays; what ``get_fwd_args()`` returns, or seeded random data, when none are given.
        input_shapes: Shapes for random data, by input.
        engine: The engine under suspicion: a name, ``file.py:Class`` or ``module:Class``.
        engine_options: Keyword arguments of the engine.
        engine_python: Another interpreter to run it under.
        engine_file: A saved engine (a TensorRT plan, say) that is run in place of the first build.
        reference: The reference engine, or a file of golden values.
        reference_model: The fp32 original of a converted model.
        precision: The precision the engine is meant to compute in; the model's types otherwise.
        tolerance: The user's own rule for outputs, in place of end-to-end floors.
        judge: ``file.py:function`` that returns why outputs fail, given engine's and reference's.
        tap_memory: Bytes that taps may take in one build.
        tap_mode: ``border`` taps between fused kernels first, ``mark`` every tensor, ``debug``
            the engine's own debug tensors; ``auto`` is ``border`` where the engine tells kernels.
        timeout: Seconds that one build or run may take.
        budget: Seconds for what only makes the case prettier.
        out: Folder for ``result.json``, report, journal and case; ``tapsect-<model>`` if None.
        seed: Of random data and noise.
        progress: Hears of each step.
        command: The command line, for the record.
        fixing: What to try as a cure; only what is cheap if None.
        begun: Workers of engine and reference that load already; new ones if None.
        most_builds: Builds that may be made; the diagnosis is given up beyond.
        jobs: Builds at a time, where one takes longer than half a second.

    Returns:
        The finding; it is also written to ``out``.

    Raises:
        TapsError: Input, environment or reference cannot be used; ``exit_code`` says which.
    """
    options = Options(
        Path(model), tuple(inputs), input_shapes, engine, dict(engine_options or {}),
        as_path(engine_python), reference, as_path(reference_model), precision, tolerance, judge,
        tap_memory, tap_mode, timeout, budget, as_path(out), seed, tuple(command),
        fixing or Fixing(), most_builds, as_path(engine_file), jobs,
    )  # fmt: skip
    with claimed(options.out or Path(f"tapsect-{options.model.stem}")) as folder:
        subject = open_subject(options, folder, progress or Silent(), begun)
        finished = False
        try:
            check_fixing(subject)
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
                outcome = first_look(subject, probed)
            except BaseException:
                subject.truth.abort()
                raise
        given = "untapped" if subject.options.engine_file is None else "the given file"
        self._step("build", given, _outcome_text(outcome))
        self.told.tactics = outcome.tactics
        subject.notes += [each for each in outcome.said if each not in subject.notes]
        if outcome.failure is not None:
            self._without_values(outcome.failure)
        elif subject.prober.builds_only:
            self.told.status = "agrees"
        else:
            self._with_values(outcome, truth.result())
        self._fix(truth)
        if idle := subject.prober.idle:
            subject.notes.append(f"{idle} builds were begun early and not needed")
        if subject.prober.crowded:
            subject.notes.append("one build at a time fits: others failed beside each other")
        self.told.trail = tuple(self.trail)
        self.told.seconds = time.monotonic() - self.started
        return compose(subject, self.told)

    def _fix(self, truth: Future[Truth]) -> None:
        """Looks for what cures; a reference that cannot run leaves its values out."""
        judge = None
        if self.told.status == "agrees":
            return
        with suppress(TapsError):
            judge = EndJudge(self.subject, truth.result())
        builds = self.subject.prober.builds
        fix(self.subject, self.told, judge, self._step, time.monotonic() - self.started)
        self.told.fix_builds = self.subject.prober.builds - builds

    def _step(self, step: str, decision: str, why: str) -> None:
        """Writes a step down, with the builds since the last one."""
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
        if again.failure is None and self.subject.options.engine_file is not None:
            only_in_plan(told, "a rebuild of the model does not", self._step)
            return
        if again.failure is None:
            told.flaky = "flaky_run" if failure.phase == "run" else "flaky_build"
            self._step("repeat", "flaky", "a second build of the same model works")
            subject, every = self.subject, range(len(self.subject.samples))
            subject.unsteady = measure(subject, every, lambda seen: [seen.failure is not None])
            self._step("repeat", "rate", said(subject.unsteady))
        else:
            self._step("repeat", "fails again", f"{again.failure.kind}: {_line(again.failure)}")
            told.failing_samples = samples_that_fail(self.subject, failure, self._step)
            told.sample = told.failing_samples[0]
        told.take(
            blame_error(self.subject, failure, self._step, flaky=told.flaky, sample=told.sample)
        )
        if told.failing_samples:
            look_at_inputs(self.subject, told, None, self._step)

    # -- values --------------------------------------------------------------------------------

    def _with_values(self, outcome: Outcome, truth: Truth) -> None:
        subject, told = self.subject, self.told
        judge = EndJudge(subject, truth)
        values = list(outcome.values[: len(subject.samples)])
        ends = [judge.judge(n, each) for n, each in enumerate(values)]
        second = judge.judge(0, outcome.values[-1])
        if _fails(ends[0]) is not _fails(second):
            self._step("repeat", "flaky run", "two runs of the same build disagree")
            told.flaky = "flaky_run"
            ends[0] = second if _fails(second) else ends[0]
        told.ends = [[e for e, _ in sample.values()] for sample in ends]
        note_nan(subject, told)
        told.export = truth.export
        failing = [n for n, sample in enumerate(ends) if _fails(sample)]
        self._step("outputs", "fail" if failing else "agree", self._ends_text(told.ends))
        if truth.export is not None and failing:
            self._mismatch(truth)
            return
        if not failing:
            explain_agreement(subject, told, self._step)
            return
        worst = max(failing, key=lambda n: max(e.floors for e, _ in ends[n].values()))
        told.failure = self._kind(ends[worst])
        told.failing_samples, told.sample = tuple(failing), worst
        if not rebuilt_alike(subject, told, ends[worst], judge, self._step):
            return
        place = Place(subject, told, ends[worst], judge, truth, self._step, fusions=outcome.fusions)
        place.find()
        look_at_inputs(subject, told, judge, self._step)

    def _kind(self, ends: Ends) -> str:
        order = ["missing_output", "wrong_shape", "wrong_dtype", "nonfinite", "accuracy"]
        kinds = {e.kind for e, _ in ends.values() if e.kind}
        return next(k for k in order if k in kinds)

    def _ends_text(self, ends: Sequence[Sequence[Any]]) -> str:
        flat = [e for sample in ends for e in sample]
        worst = max(flat, key=lambda e: (e.failing, e.floors))
        return f"{sum(e.failing for e in flat)} of {len(flat)} fail; {worst.name!r}: {worst.reason}"

    def _mismatch(self, truth: Truth) -> None:
        told = self.told
        told.status, told.cause = "diverges", "export_mismatch"
        told.failure = told.failure or "accuracy"
        self._step("original", "export_mismatch", truth.export.why if truth.export else "")


def _fails(ends: Ends) -> bool:
    return any(e.failing for e, _ in ends.values())


def _outcome_text(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return f"{outcome.failure.kind}: {_line(outcome.failure)}"
    if not outcome.values:
        return f"built in {outcome.seconds:.2f} s; this engine does not run what it builds"
    return f"built and ran {max(1, len(outcome.values) - 1)} sample(s) in {outcome.seconds:.2f} s"


def _line(failure: EngineFailure) -> str:
    return next((s.strip() for s in failure.message.splitlines() if s.strip()), "")[:200]
