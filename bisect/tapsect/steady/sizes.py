"""``tapsect sweep``: at which sizes of its dynamic dimensions does a model fail?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tapsect
from debugtaps import (
    Array,
    Build,
    EngineFailure,
    InputSpec,
    TensorType,
    UsageError,
    WorkerError,
    random_inputs,
    write_json_atomic,
)
from tapsect.diagnose.ends import EndJudge, Truth
from tapsect.diagnose.given import Options
from tapsect.diagnose.subject import Subject, open_subject
from tapsect.environment import environment
from tapsect.finding import Cost, Finding, OutputReport, Step
from tapsect.folder import RESULT, claimed
from tapsect.observed import InputsSeen
from tapsect.progress import Progress, Silent
from tapsect.replay.reference import numpy_dtype
from tapsect.rounding.outputs import End

__all__ = ["MOST_SIZES", "Sized", "Sweep", "sample_for", "sweep_sizes"]

MOST_SIZES = 64

Sizes = Mapping[str, int]
"""A size by ``input.axis`` or by the name of a dimension."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What one choice of sizes showed: why it fails, empty where it agrees."""

    sizes: Sizes
    ends: tuple[End, ...]
    why: str

    @property
    def words(self) -> str:
        """Returns the sizes."""
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(frozen=True, slots=True)
class Sweep:
    """What all sizes showed."""

    finding: Finding
    sized: tuple[Sized, ...]
    folder: Path


def sample_for(subject: Subject, rows: Mapping[str, int]) -> Mapping[str, Array]:
    """Returns the first sample, or one with so many rows in these inputs."""
    if not rows:
        return subject.samples[0]
    shapes = {
        n: (rows[n], *v.shape[1:]) if n in rows else v.shape for n, v in subject.samples[0].items()
    }
    return _random(subject, shapes)


def _random(subject: Subject, shapes: Mapping[str, Sequence[int]]) -> Mapping[str, Array]:
    specs = [
        InputSpec(name, numpy_dtype(kind.elem) or "string", kind.shape)
        for name, kind in subject.graph.inputs.items()
    ]
    return random_inputs(specs, shapes, seed=subject.options.seed)[0].feeds


def sweep_sizes(
    options: Options, wanted: Mapping[str, Sequence[int]], *, progress: Progress | None = None
) -> Sweep:
    """Runs one build on random data of each choice of sizes, judged as a diagnosis judges.

    Args:
        options: Model, engine and reference; of its inputs only the sizes count.
        wanted: The sizes to try, by ``input.axis`` or by the name of a dimension.
        progress: Hears of each.

    Raises:
        UsageError: No such dimension, or it is fixed; or too many choices.
        EnvironmentFailure: A worker or the reference cannot be started.
    """
    started, listener = time.monotonic(), progress or Silent()
    name = options.out or Path(f"tapsect-sweep-{options.model.stem}")
    with claimed(name) as folder:
        subject = open_subject(options, folder, listener)
        try:
            choices = _choices(subject.graph.inputs, wanted)
            usual = {n: v.shape for n, v in subject.samples[0].items()}
            subject.samples[:] = [
                _random(subject, _shaped(subject.graph.inputs, usual, each)) for each in choices
            ]
            sized = _judged(subject, choices)
        finally:
            subject.close(finished=True)
        finding = _finding(subject, sized, time.monotonic() - started)
        write_json_atomic(folder / RESULT, finding.to_json())
    return Sweep(finding, sized, folder)


def _choices(inputs: Mapping[str, TensorType], wanted: Mapping[str, Sequence[int]]) -> list[Sizes]:
    places = {
        place: dim
        for name, kind in inputs.items()
        for axis, dim in enumerate(kind.shape or ())
        for place in (f"{name}.{axis}", dim)
        if isinstance(place, str)
    }
    for name in wanted:
        dynamic = ", ".join(p for p, dim in places.items() if not isinstance(dim, int)) or "none"
        if name not in places:
            raise UsageError(f"--dim {name}: no such dimension; dynamic are {dynamic}")
        if isinstance(places[name], int):
            raise UsageError(f"--dim {name}: it is fixed to {places[name]}; dynamic are {dynamic}")
    found = [dict(zip(wanted, sizes, strict=True)) for sizes in itertools.product(*wanted.values())]
    if len(found) > MOST_SIZES:
        raise UsageError(f"--dim asks for {len(found)} choices of sizes; {MOST_SIZES} are the most")
    return list(found)


def _shaped(
    inputs: Mapping[str, TensorType], usual: Mapping[str, Sequence[int]], sizes: Sizes
) -> dict[str, Sequence[int]]:
    """Returns the shape of each input; a dimension that is set in one place is set by name."""
    named = dict(sizes)
    for name, kind in inputs.items():
        for axis, dim in enumerate(kind.shape or ()):
            if isinstance(dim, str) and f"{name}.{axis}" in sizes:
                named[dim] = sizes[f"{name}.{axis}"]
    return {
        name: [
            sizes.get(f"{name}.{axis}", named.get(str(dim), usual[name][axis]))
            for axis, dim in enumerate(kind.shape or ())
        ]
        for name, kind in inputs.items()
    }


def _judged(subject: Subject, choices: Sequence[Sizes]) -> tuple[Sized, ...]:
    try:
        subject.graph = subject.reference.complete(subject.samples[0])
        judge = EndJudge(subject, Truth(subject))
    except EngineFailure as failure:
        raise subject.reference.failed(failure) from failure
    found, build = list[Sized](), None
    for number, sizes in enumerate(choices):
        subject.progress.step("sizes", Sized(sizes, (), "").words)
        try:
            build = build or subject.engine.build(subject.model, timeout=subject.options.timeout)
            values = build.run(subject.samples[number], timeout=subject.options.timeout)
        except EngineFailure as failure:
            _close(build)
            build = None  # what failed may have taken its process along
            line = next(iter(failure.message.splitlines()), "")[:200]
            found.append(Sized(sizes, (), f"{failure.kind}: {line}"))
            continue
        ends = tuple(end for end, _ in judge.judge(number, values).values())
        why = next((f"output {e.name!r}: {e.reason}" for e in ends if e.failing), "")
        found.append(Sized(sizes, ends, why))
    _close(build)
    return tuple(found)


def _close(build: Build | None) -> None:
    if build is not None:
        with suppress(EngineFailure, WorkerError):
            build.close()


def _finding(subject: Subject, sized: Sequence[Sized], seconds: float) -> Finding:
    options = subject.options
    failing = tuple(n for n, each in enumerate(sized) if each.why)
    if not failing:
        message = f"{options.engine} agrees with the reference at all {len(sized)} sizes."
    else:
        first = sized[failing[0]]
        message = (
            f"{options.engine} fails at {len(failing)} of {len(sized)} sizes, first at"
            f" {first.words}: {first.why}."
        )
        if len(failing) == len(sized):
            message += " No size is to blame: tapsect bisect says why it fails."
    some = 0 < len(failing) < len(sized)
    return Finding(
        message=message, status="diverges" if failing else "agrees",
        cause="input_sensitive" if some else None, tool_version=tapsect.__version__,
        command=tuple(options.command),
        model={"path": str(options.model), "sha256": subject.graph.sha256},
        engine={"spec": options.engine, "options": dict(options.engine_options)},
        outputs=tuple(_report(e, n) for n, each in enumerate(sized) for e in each.ends),
        samples=InputsSeen(failing, len(sized)) if failing else None,
        trail=tuple(
            Step("sizes", each.words, each.why or "agrees with the reference") for each in sized
        ),
        cost=Cost(subject.engine.builds, subject.engine.runs, round(seconds, 3)),
        notes=tuple(n for n in subject.notes if not n.startswith("inputs are")),
        environment=environment(),
    )  # fmt: skip


def _report(end: End, number: int) -> OutputReport:
    relative = end.error / end.scale if end.error is not None and end.scale else end.error
    return OutputReport(
        end.name, number, end.failing, end.max_abs, relative, end.cosine, reason=end.reason
    )
