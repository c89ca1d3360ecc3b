"""The truth about the outputs of each sample, and the engine's outputs judged against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from debugtaps import Array, InputError, ReferenceFailed
from tapsect.diagnose.exported import Export, leaves_torch
from tapsect.diagnose.subject import Subject
from tapsect.localize.taps import Ends
from tapsect.replay.coarse import coarse_ends
from tapsect.replay.reference import numpy_dtype, widen_array
from tapsect.replay.regions import Classes, Replay
from tapsect.rounding.discrete import unexplained
from tapsect.rounding.floors import limit_for, rms
from tapsect.rounding.outputs import End, Measured, judge_output

__all__ = ["EndJudge", "Truth"]

END_SAMPLES = 8
MORE_SAMPLES = 32


class Truth:
    """What the outputs should be, by sample: a run, golden values, or the original model."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._known: dict[int, Measured] = {}
        self._samples: dict[int, int] = {}
        self._shaken: dict[tuple[int, Classes | None], Measured] = {}
        self.export: Export | None = None
        for number in range(len(subject.samples)):
            measured = self.measured(number)
            if subject.torch is not None and subject.golden and self.export is None:
                explained = partial(self.explained, number)
                self.export = leaves_torch(subject, number, measured, explained)

    def measured(self, number: int) -> Measured:
        """Returns the outputs of a sample and what noise at the stated precision does to them."""
        if number not in self._known:
            self._known[number] = self._measure(number)
        return self._known[number]

    def samples(self, number: int) -> int:
        """Returns how many noisy runs the floors of a sample rest on."""
        return self._samples.get(number, END_SAMPLES)

    def refine(self, number: int) -> None:
        """Measures the floors of a sample again with more runs."""
        self._samples[number] = MORE_SAMPLES
        self._known[number] = self._measure(number)

    def _measure(self, number: int) -> Measured:
        subject = self.subject
        feeds = subject.samples[number]
        subject.progress.step("reference", "running the reference with noise")
        golden = subject.golden[number] if subject.golden else None
        try:
            measured = subject.reference.ends(feeds, samples=self.samples(number))
        except ReferenceFailed:
            if golden is None:
                raise
            return self._from_golden_alone(golden)
        if golden is not None:
            base = {n: widen_array(v) for n, v in golden.items() if n in measured.base}
            measured = replace(measured, base=base)
        if subject.original is not None:
            return self._from_original(number, measured)
        return measured

    def _from_golden_alone(self, golden: Mapping[str, Array]) -> Measured:
        """Floors without a run: the errors of all operators on the way, as if independent."""
        subject = self.subject
        subject.notes.append("the reference cannot run this model: floors are estimated from depth")
        base = {n: widen_array(golden[n]) for n in subject.graph.outputs}
        spread = {}
        for name, y in base.items():
            if y.dtype.kind == "f":
                depth = max(1, subject.reference.topology.depth.get(name, 1))
                u = subject.reference.roundoff(name)
                finite = np.where(np.isfinite(y), y, 0.0)
                spread[name] = np.full(y.shape, u * rms(finite) * np.sqrt(depth), np.float32)
        return Measured(base, spread, {}, {})

    def _from_original(self, number: int, measured: Measured) -> Measured:
        subject, original = self.subject, self.subject.original
        assert original is not None
        feeds = subject.samples[number]
        missing = [n for n in subject.graph.outputs if n not in original.graph.outputs]
        if missing:
            raise InputError(
                f"--reference-model has no output {missing[0]!r}; give the original of this model"
            )
        wide = {n: widen_array(v) for n, v in feeds.items()}
        truth = original.ends(wide, samples=0).base
        ends = [
            judge_output(
                n, measured.base[n], replace(measured, base=truth), subject.reference.roundoff(n),
                limit_for(subject.roundoff),
            )
            for n in subject.graph.outputs
        ]  # fmt: skip
        if any(e.failing for e in ends) and self.export is None:
            self.export = self._first_mismatch(wide, ends)
        return replace(measured, base={n: truth[n] for n in subject.graph.outputs})

    def _first_mismatch(self, feeds: Mapping[str, Array], ends: list[End]) -> Export:
        """Replays the converted model on the original's own tensors, by equal names."""
        subject, original = self.subject, self.subject.original
        assert original is not None
        common = [t for t in subject.reference.topology.tappable if t in original.graph.producer]
        values = original.capture(feeds, [*common, *subject.graph.outputs])
        judged, _ = Replay(subject.reference, feeds, values).judge()
        suspects = sorted(
            (j for j in judged.values() if j.suspect),
            key=lambda j: subject.reference.topology.position.get(j.tensor, 0),
        )
        worst = max(ends, key=lambda e: e.floors)
        why = f"the model itself differs from its original: {worst.name!r}, {worst.reason}"
        return Export(suspects[0] if suspects else None, why)

    def within(
        self, number: int, before: Ends, classes: Classes, *, coherent: bool = False
    ) -> str | None:
        """Returns why the effective precision explains all failing outputs, or ``None``.

        Args:
            number: The sample.
            before: Its judged outputs.
            classes: The effective precision.
            coherent: Whether roundings may all point one way.
        """
        stated = self.subject.roundoff
        coarsest = max(classes.contraction, classes.rest)
        if coarsest < stated or coarsest <= 2.0**-24:
            return None
        limit = limit_for(coarsest)
        failing = {n: v for n, (end, v) in before.items() if end.failing}
        rounded = self.subject.reference.narrowed(self.subject.samples[number], coarsest)
        for samples in (END_SAMPLES, MORE_SAMPLES):
            ends = self._at(number, failing, classes, samples, rounded, coherent=coherent)
            if not any(e.doubtful(limit.end) for e in ends):
                break
        if any(e.failing for e in ends):
            return None
        named = classes.named(stated, self.subject.options.precision)
        return (
            f"contractions compute at {named['contractions']}, the rest at {named['the rest']}; "
            f"the outputs lie within {limit.end:g} floors of that"
        )

    def _at(
        self, number: int, values: Mapping[str, Array | None], classes: Classes, samples: int,
        rounded: Mapping[str, Array], *, coherent: bool,
    ) -> list[End]:  # fmt: skip
        """Returns the outputs judged at the precision the engine was found to compute in."""
        subject = self.subject
        limit = limit_for(max(classes.contraction, classes.rest))
        measured = coarse_ends(
            subject.reference, subject.samples[number], classes, samples=samples,
            rounded=rounded, coherent=coherent,
        )  # fmt: skip
        measured = replace(measured, base=self.measured(number).base)
        return [
            judge_output(
                name, value, measured, subject.reference.roundoff(name, classes.rest), limit,
                explained=self.explained(number, name, value, classes),
            )
            for name, value in values.items()
        ]  # fmt: skip

    def explained(
        self, number: int, name: str, value: Array | None, classes: Classes | None = None
    ) -> Array | None:
        """Returns which elements of a discrete output noise at twice u explains.

        Of an output whose shape differs: all or none, by whether noise changes its shape, too.
        """
        base = self.measured(number).base.get(name)
        if base is None or value is None or np.array_equal(value, base):
            return None
        if value.shape != base.shape:
            kept = self._shake(number, classes).kept.get(name, MORE_SAMPLES)
            return np.asarray(kept < MORE_SAMPLES)
        if base.dtype.kind == "f":
            return None
        reference, graph = self.subject.reference, self.subject.graph
        node = graph.nodes[graph.producer[name]] if name in graph.producer else None
        reads = [t for t in node.reads if t not in graph.constants] if node else []
        inputs = reference.capture(self.subject.samples[number], reads) if node else {}
        level = classes.rest if classes is not None else 0.0
        u = reference.roundoff(reads[0], level) if reads else 0.0
        exact = u <= 2.0**-24 and bool(reads) and reference.topology.unrounded(reads[0])
        changed = self._shake(number, classes).changed.get(name)
        return ~unexplained(node, inputs, value, base, changed, u, exact=exact)

    def _shake(self, number: int, classes: Classes | None) -> Measured:
        """Returns what 32 runs at twice u do to the outputs."""
        key = (number, classes)
        if key not in self._shaken:
            level, contraction = (classes.rest, classes.contraction) if classes else (0.0, None)
            self._shaken[key] = self.subject.reference.ends(
                self.subject.samples[number], samples=MORE_SAMPLES, factor=2.0,
                level=level, contraction=contraction,
            )  # fmt: skip
        return self._shaken[key]


class EndJudge:
    """Judges the engine's outputs as the user asked: floors, tolerance, or a judge."""

    def __init__(self, subject: Subject, truth: Truth) -> None:
        self.subject, self.truth = subject, truth

    def judge(self, number: int, values: Mapping[str, Array]) -> Ends:
        """Returns each output's judgement with the engine's value."""
        limit = limit_for(self.subject.roundoff).end
        ends = self._judge(number, values)
        if self.truth.samples(number) < MORE_SAMPLES and any(
            e.doubtful(limit) for e, _ in ends.values()
        ):
            self.truth.refine(number)
            ends = self._judge(number, values)
        return ends

    def _judge(self, number: int, values: Mapping[str, Array]) -> Ends:
        subject = self.subject
        measured = self.truth.measured(number)
        limit = limit_for(subject.roundoff)
        ends: dict[str, tuple[End, Array | None]] = {}
        for name, kind in subject.graph.outputs.items():
            value = values.get(name)
            dtype = numpy_dtype(kind.elem)
            end = judge_output(
                name, value, measured, subject.reference.roundoff(name), limit,
                dtype=dtype.name if dtype is not None else None,
                tolerance=subject.options.tolerance,
                explained=self.truth.explained(number, name, value),
            )  # fmt: skip
            ends[name] = (end, value)
        return self._user(ends, values, measured) if subject.judge is not None else ends

    def _user(
        self, ends: Mapping[str, tuple[End, Array | None]], values: Mapping[str, Array],
        measured: Measured,
    ) -> Ends:  # fmt: skip
        judge: Any = self.subject.judge
        # Taps come with the outputs, and are no matter of the judge's; what is his he may change.
        given = [
            {n: each[n].copy() for n in self.subject.graph.outputs if n in each}
            for each in (values, measured.base)
        ]
        try:
            why = judge(*given)
        except Exception as error:
            raise InputError(
                f"--judge {self.subject.options.judge} raised {type(error).__name__}: {error}"
            ) from error
        if not why:
            return {n: (replace(e, kind=None), v) for n, (e, v) in ends.items()}
        reason = why if isinstance(why, str) else "the judge says so"
        differing = {n for n, (e, _) in ends.items() if e.failing or e.error}
        return {
            n: (
                replace(e, kind=e.kind or "accuracy", reason=reason)
                if n in differing or not differing else e, v,
            )
            for n, (e, v) in ends.items()
        }  # fmt: skip
