"""Does a cut-out part of the model fail by itself?  Engine against reference on recorded values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from debugtaps import (
    Array,
    EngineFailure,
    Plan,
    TensorType,
    Tolerance,
    extract,
    follow,
    implied_inputs,
    perturb,
    save,
)
from tapsect.candidate import Candidate
from tapsect.journal import Outcome
from tapsect.localize.recorded import Recorded, Source
from tapsect.probe import Prober
from tapsect.replay.reference import Reference, numpy_dtype
from tapsect.replay.regions import Classes
from tapsect.rounding.discrete import unexplained
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import End, Measured, judge_output
from tapsect.topology import CONTRACTIONS
from tapsect.verdict import Signature, Verdict, operator_named

__all__ = ["Examined", "Examiner", "Recorded", "Source", "signature_of"]

SAMPLES = 4
MORE_SAMPLES = 32
FLAKY_BUILDS, FLAKY_RUNS = 3, 6


@dataclass(frozen=True, slots=True)
class Examined:
    """What one look at a candidate showed, and the case as it was run."""

    verdict: Verdict
    signature: Signature | None
    score: float = 0.0
    ends: tuple[End, ...] = ()
    model: Path | None = None
    feeds: Mapping[str, Array] = field(default_factory=dict)
    expected: Mapping[str, Array] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, Array] = field(default_factory=dict)
    failure: EngineFailure | None = None


class Examiner:
    """Examines candidates of one sample.

    Args:
        reference: The run we believe.
        prober: Probes the engine.
        recorded: Values to feed.
        folder: Where candidates are written, beside the weights.
        kind: The failure that is looked for.
        classes: The precision the engine was found to compute in.
        tolerance: The user's rule, in place of floors.
    """

    def __init__(
        self, reference: Reference, prober: Prober, recorded: Recorded, folder: Path, *,
        kind: str, classes: Classes | None = None, tolerance: Tolerance | None = None,
    ) -> None:  # fmt: skip
        self.reference, self.prober, self.recorded = reference, prober, recorded
        self.folder, self.kind, self.tolerance = folder, kind, tolerance
        stated = reference.stated or 0.0
        self.classes = classes or Classes(stated, stated)
        self.bar: float | None = None
        self.repeats, self.runs = 1, 1
        self.unsteady = False
        self.looks = 0

    def expect(self, flaky: str | None, times: int) -> None:
        """Makes each look ask as often as an unsteady failure needs: by build or by run."""
        self.repeats = times if flaky == "flaky_build" else 1
        self.runs = times if flaky == "flaky_run" else 1

    def examine(
        self, candidate: Candidate, source: Source, *, fresh: int = 0, static: bool = False
    ) -> Examined:
        """Builds and runs a candidate on the engine and, where values count, on the reference.

        With ``repeats`` it is built, with ``runs`` it is run as often until it fails.
        """
        for number in range(self.repeats):
            examined = self._examine(candidate, source, fresh * 1000 + number, static=static)
            if examined.verdict is Verdict.DIVERGES:
                break
        return examined

    def flakiness(self, candidate: Candidate, source: Source) -> str:
        """Returns whether runs of one build disagree (``flaky_run``) or else builds do.

        Asked of a candidate that was seen to fail and not to fail.
        """
        keep, self.unsteady = (self.repeats, self.runs), False
        self.repeats, self.runs = 1, FLAKY_RUNS
        for number in range(FLAKY_BUILDS):
            examined = self.examine(candidate, source, fresh=500 + number)
            if self.unsteady or (examined.failure is not None and examined.failure.phase == "run"):
                break
        else:
            number = FLAKY_BUILDS
        self.repeats, self.runs = keep
        return "flaky_run" if number < FLAKY_BUILDS else "flaky_build"

    def _examine(
        self, candidate: Candidate, source: Source, fresh: int, *, static: bool
    ) -> Examined:
        self.looks += 1
        graph, aliases = self.reference.graph, dict(candidate.bypass)
        names = implied_inputs(graph, candidate.nodes, aliases)
        try:
            feeds = self.recorded.values(names, source)
        except (EngineFailure, KeyError):
            blank = self.recorded.blank(names) if self.kind == "build_error" else None
            if blank is None:
                return Examined(Verdict.INVALID, None)
            feeds = blank  # what does not build is not run
        types = (
            {n: TensorType(graph.elem(n) or 0, v.shape) for n, v in feeds.items()}
            if static
            else None
        )
        model = extract(graph, candidate.nodes, candidate.outputs, aliases=aliases, types=types)
        path = save(model, self.folder / f"{self.reference.mark}candidate-{self.looks % 2}.onnx")
        outcome = self.prober.look(
            path, [feeds] * (self.runs + (fresh >= 1000)), purpose="candidate", fresh=fresh
        )
        if self.kind in ERRORS or outcome.failure is not None:
            return self._by_error(outcome, path, feeds)
        return self._by_runs(candidate, outcome.values, path, feeds)

    def _by_runs(
        self, candidate: Candidate, runs: Sequence[Mapping[str, Array]], path: Path,
        feeds: Mapping[str, Array],
    ) -> Examined:  # fmt: skip
        """Judges every run that differs from those before; one that fails counts."""
        examined = self._by_values(candidate, runs[0], path, feeds)
        for answers in runs[1:]:
            if all(_equal(answers.get(n), v) for n, v in runs[0].items()):
                continue
            other = self._by_values(candidate, answers, path, feeds)
            self.unsteady |= other.verdict is not examined.verdict
            if other.verdict is Verdict.DIVERGES:
                examined = other
        return examined

    def _by_error(self, outcome: Outcome, path: Path, feeds: Mapping[str, Array]) -> Examined:
        failure = outcome.failure
        if failure is None:
            return Examined(Verdict.AGREES, None, model=path, feeds=feeds)
        ops = {node.name: node.op for node in self.reference.graph.nodes}
        signature = signature_of(failure, ops)
        verdict = Verdict.DIVERGES if self.kind in ERRORS else Verdict.INVALID
        return Examined(verdict, signature, float("inf"), (), path, feeds, failure=failure)

    def _by_values(
        self, candidate: Candidate, answers: Mapping[str, Array], path: Path,
        feeds: Mapping[str, Array],
    ) -> Examined:  # fmt: skip
        try:
            ends, measured = self._ends(candidate, answers, feeds, SAMPLES)
            bar = max(self.bar or 0.0, limit_for(self._u(candidate)).end)
            if any(e.doubtful(bar) for e in ends):
                ends, measured = self._ends(candidate, answers, feeds, MORE_SAMPLES)
        except EngineFailure:
            return Examined(Verdict.INVALID, None, model=path, feeds=feeds)
        failing = [e for e in ends if e.failing and e.floors >= (self.bar or 0.0)]
        if self.tolerance is not None:
            failing = [e for e in ends if e.failing]
        score = max((e.floors for e in failing), default=0.0)
        kinds = sorted({e.kind for e in failing if e.kind})
        kind = self.kind if self.kind in kinds else next(iter(kinds), None)
        floors = {e.name: e.floor for e in ends if e.floor is not None}
        verdict = Verdict.DIVERGES if failing else Verdict.AGREES
        signature = Signature(kind) if kind else None
        return Examined(
            verdict, signature, score, tuple(ends), path, feeds, measured.base, floors, answers
        )

    def _u(self, candidate: Candidate) -> float:
        level = self._level(candidate)
        return max(level, *(self.reference.roundoff(name, level) for name in candidate.outputs))

    def _ends(
        self, candidate: Candidate, answers: Mapping[str, Array], feeds: Mapping[str, Array],
        samples: int,
    ) -> tuple[list[End], Measured]:  # fmt: skip
        measured, explained = self.measure(candidate, feeds, answers, samples)
        limit, aliases = limit_for(self._u(candidate)), dict(candidate.bypass)
        ends = []
        for name in candidate.outputs:
            shown, u = follow(name, aliases), self.reference.roundoff(name, self._level(candidate))
            ends.append(judge_output(
                shown, answers.get(shown), measured, u,
                limit, dtype=self._declared(name), tolerance=self.tolerance,
                explained=explained.get(shown),
            ))  # fmt: skip
        return ends, measured

    def _declared(self, name: str) -> str | None:
        """Returns the type an output must have, where a wrong type is what is looked for."""
        dtype = numpy_dtype(self.reference.graph.elem(name))
        return dtype.name if dtype is not None and self.kind == "wrong_dtype" else None

    def _level(self, candidate: Candidate) -> float:
        ops = {self.reference.graph.nodes[i].op for i in candidate.nodes}
        return self.classes.contraction if ops & CONTRACTIONS else self.classes.rest

    def measure(
        self,
        candidate: Candidate,
        feeds: Mapping[str, Array],
        answers: Mapping[str, Array],
        samples: int,
    ) -> tuple[Measured, dict[str, Array]]:
        """Returns the reference's answer with its spread, and the indices that noise explains."""
        reference = self.reference
        aliases = dict(candidate.bypass)
        shapes = dict(reference.shapes(self.recorded.feeds)) | {
            n: v.shape for n, v in feeds.items()
        }
        shown = [follow(t, aliases) for t in candidate.outputs]
        plan = Plan(
            nodes=sorted(candidate.nodes), noisy=reference.pool_of, shapes=shapes,
            values=shown, aliases=aliases, held=reference.rounded,
        )  # fmt: skip
        made = perturb(reference.wide, plan)
        build = reference.build(made, "part")
        try:
            rest, contraction = self.classes.rest, self.classes.contraction
            runs = reference.noise(made.pools, samples, level=rest, contraction=contraction)
            measured = reference.sweep(build, made, feeds, runs)
            odd = [
                n for n in shown
                if n in answers and n in measured.base and measured.base[n].dtype.kind != "f"
                and answers[n].shape == measured.base[n].shape
                and np.any(answers[n] != measured.base[n])
            ]  # fmt: skip
            if not odd:
                return measured, {}
            runs = reference.noise(
                made.pools, MORE_SAMPLES, level=rest, contraction=contraction, factor=2.0
            )
            shaken = reference.sweep(build, made, feeds, runs)
        finally:
            build.close()
        return measured, {n: self._explained(n, feeds, answers[n], shaken) for n in odd}

    def _explained(
        self, name: str, feeds: Mapping[str, Array], ours: Array, shaken: Measured
    ) -> Array:
        graph = self.reference.graph
        node = graph.nodes[graph.producer[name]] if name in graph.producer else None
        inputs = dict(feeds)
        if node is not None:
            inputs |= self.recorded.values(
                [t for t in node.reads if t in graph.producer and t not in feeds], "reference"
            )
            inputs |= self.reference.constants(node.reads)
        u = self.reference.roundoff(node.reads[0]) if node is not None and node.reads else 0.0
        wrong = unexplained(node, inputs, ours, shaken.base[name], shaken.changed.get(name), u)
        return ~wrong


def _equal(a: Array | None, b: Array) -> bool:
    return (
        a is not None and a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    )


ERRORS = frozenset({"build_error", "run_error", "crash", "timeout", "out_of_memory"})
"""Failures without values."""

_NOISE = re.compile(r"0x[0-9a-fA-F]+|'[^']*'|\"[^\"]*\"|/\S+|\S+\.onnx|\d+")


def signature_of(failure: EngineFailure, ops: Mapping[str, str]) -> Signature:
    """Returns an error's signature; ``ops`` are the types of the model's nodes, by name."""
    first = next((s for s in failure.message.splitlines() if s.strip()), "")
    if failure.kind == "timeout":
        first = ""
    detail = " ".join(_NOISE.sub("_", first).split())[:200]
    return Signature(failure.kind, detail, operator_named(first, ops))
