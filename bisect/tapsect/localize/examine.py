"""Does a cut-out part of the model fail by itself?  Engine against reference on recorded values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debugtaps import (
    Array,
    EngineFailure,
    TensorType,
    Tolerance,
    extract,
    follow,
    implied_inputs,
    save,
)
from tapsect.candidate import Candidate
from tapsect.journal import Outcome
from tapsect.localize.errors import ERRORS, signature_of
from tapsect.localize.parted import MORE_SAMPLES, measured_part
from tapsect.localize.recorded import Recorded, Source
from tapsect.probe import Prober
from tapsect.replay.reference import Reference, numpy_dtype
from tapsect.replay.regions import Classes
from tapsect.request import Request
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import End, Measured, judge_output
from tapsect.topology import CONTRACTIONS
from tapsect.verdict import Signature, Verdict

__all__ = ["Examined", "Examiner", "Recorded", "Source"]

SAMPLES = 4
FLAKY_BUILDS, FLAKY_RUNS = 3, 6

_NUMBERS = itertools.count()
"""Of files that belong to one build each: several may be under way."""


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
        name = f"{self.reference.mark}candidate-{self.looks % 2}.onnx"
        cut = self._cut(candidate, source, name, static=static)
        if cut is None:
            return Examined(Verdict.INVALID, None)
        path, feeds = cut
        outcome = self.prober.look(
            path, self._samples(feeds, fresh), purpose="candidate", fresh=fresh
        )
        if self.kind in ERRORS or outcome.failure is not None:
            return self._by_error(outcome, path, feeds)
        return self._by_runs(candidate, outcome.values, path, feeds)

    def begin(self, looks: Iterable[tuple[Candidate, int]], source: Source) -> None:
        """Begins builds that are likely to be asked next, where there are workers for it.

        Args:
            looks: Candidates and the numbers of looks at them, as ``examine`` has them, the
                nearest first; only as many are cut out as can be begun.
            source: Whose values they are fed with.
        """
        self.prober.begin(self.request(each, source, fresh) for each, fresh in looks)

    def request(self, candidate: Candidate, source: Source, fresh: int = 0) -> Request | None:
        """Returns the first build that ``examine`` asks for; None when a value cannot be had."""
        cut = self._cut(candidate, source, f"ahead-{next(_NUMBERS)}.onnx")
        if cut is None:
            return None
        path, feeds = cut
        samples = self._samples(feeds, fresh * 1000)
        return self.prober.request(path, samples, fresh=fresh * 1000, purpose="candidate", own=True)

    def _samples(self, feeds: Mapping[str, Array], fresh: int) -> list[Mapping[str, Array]]:
        return [feeds] * (self.runs + (fresh >= 1000))

    def _cut(
        self, candidate: Candidate, source: Source, name: str, *, static: bool = False
    ) -> tuple[Path, Mapping[str, Array]] | None:
        """Returns the candidate's file and feeds; None when a value cannot be had."""
        graph, aliases = self.reference.graph, dict(candidate.bypass)
        names = implied_inputs(graph, candidate.nodes, aliases)
        try:
            feeds = self.recorded.values(names, source)
        except (EngineFailure, KeyError):
            blank = self.recorded.blank(names) if self.kind == "build_error" else None
            if blank is None:
                return None
            feeds = blank  # what does not build is not run
        types = (
            {n: TensorType(graph.elem(n) or 0, v.shape) for n, v in feeds.items()}
            if static
            else None
        )
        model = extract(graph, candidate.nodes, candidate.outputs, aliases=aliases, types=types)
        return save(model, self.folder / name), feeds

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
        measured, explained = measured_part(
            self.reference,
            self.recorded,
            self.classes,
            candidate,
            feeds=feeds,
            answers=answers,
            samples=samples,
        )
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


def _equal(a: Array | None, b: Array) -> bool:
    return (
        a is not None and a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    )
