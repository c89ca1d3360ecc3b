"""What is diagnosed: model, samples, engine and reference, ready to be asked.

Everything that can be wrong with what the user gave is found here, before any work.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from debugtaps import (
    Array,
    EngineSpec,
    Graph,
    Host,
    InputError,
    InputSpec,
    SpecError,
    Tolerance,
    load_golden,
    load_graph,
    load_inputs,
    promote,
    random_inputs,
    resolve,
    save,
)
from tapsect.numbers.floors import PRECISIONS, limit_for
from tapsect.probe import Journal, Prober
from tapsect.progress import Progress
from tapsect.replay.reference import Reference, numpy_dtype, own_roundoff

__all__ = ["Judge", "Options", "Subject", "open_subject"]

Judge = Callable[[Mapping[str, Array], Mapping[str, Array]], Any]
Source = str | Path | Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for; see ``tapsect bisect --help``."""

    model: Path
    inputs: Sequence[Source] = ()
    input_shapes: Mapping[str, Sequence[int]] | None = None
    engine: str = "ort"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    engine_python: Path | None = None
    reference: str | Path | None = None
    reference_model: Path | None = None
    precision: str | None = None
    tolerance: Tolerance | None = None
    judge: str | None = None
    tap_memory: int = 1 << 30
    timeout: float = 600.0
    budget: float = 120.0
    out: Path | None = None
    seed: int = 0
    command: Sequence[str] = ()


@dataclass
class Subject:
    """A diagnosis' material, with the workers that run it.

    Attributes:
        options: What the user asked for.
        graph: The model.
        samples: Feeds, one mapping a sample.
        origins: Where each sample came from.
        golden: Values the user gave as truth, one mapping a sample; None when a run tells.
        original: The fp32 original of a converted model, as a reference of its own.
        judge: The user's own decision on outputs.
        engine, truth: The two workers.
        reference: The run we believe.
        prober: Probes the engine.
        stated: Unit roundoff of the stated precision; None where tensors' own types state it.
        folder, work: Where results go; where candidates are written.
        notes: What had to be assumed.
        specs: Engine and reference, as they were resolved.
        progress: Hears of each step.
        model: The file the engine gets first: as given, or with node names made unique.
    """

    options: Options
    graph: Graph
    samples: list[Mapping[str, Array]]
    origins: list[str]
    golden: list[dict[str, Array]] | None
    original: Reference | None
    judge: Judge | None
    engine: Host
    truth: Host
    reference: Reference
    prober: Prober
    journal: Journal
    stated: float | None
    folder: Path
    work: Path
    notes: list[str]
    specs: tuple[EngineSpec, EngineSpec]
    progress: Progress
    model: Path

    @property
    def roundoff(self) -> float:
        """Returns the stated unit roundoff: the coarsest float type of the model when none is."""
        if self.stated is not None:
            return self.stated
        floats = [own_roundoff(t.elem) for t in self.graph.types.values()]
        return max(2.0**-24, *floats, 0.0)

    @property
    def end_limit(self) -> float:
        """Returns F at the stated precision."""
        return limit_for(self.roundoff).end

    def close(self, *, finished: bool) -> None:
        """Ends workers and removes what nobody needs after a finished diagnosis."""
        with suppress(Exception):
            self.reference.close()
        self.engine.close()
        self.truth.close()
        self.journal.close(finished=finished)
        if finished:
            shutil.rmtree(self.work, ignore_errors=True)


def open_subject(options: Options, folder: Path, progress: Progress) -> Subject:
    """Returns everything a diagnosis needs; its workers are starting.

    Raises:
        UsageError: Something the user gave cannot be used; the message names it and the mend.
    """
    stated = _stated(options.precision)
    engine_spec = resolve(options.engine, options.engine_options)
    golden_file, truth_spec = _truth(options.reference)
    if options.engine_python is not None and not options.engine_python.exists():
        raise SpecError(f"--engine-python {options.engine_python}: no such file; name a Python")
    judge = _load_judge(options.judge) if options.judge else None
    engine = Host(engine_spec, python=options.engine_python, timeout=options.timeout)
    truth = Host(truth_spec, timeout=max(options.timeout, 600.0))
    try:
        engine.start()
        truth.start()
        work = folder / ".work"
        graph = load_graph(options.model, work)
        samples, origins, notes = _samples(options, graph)
        graph = graph.feeding(n for s in samples for n in s)
        if options.tolerance is not None:
            options.tolerance.check_names(graph.outputs)
        golden = _golden(golden_file, graph, len(samples)) if golden_file else None
        largest = 65504.0 if options.precision == "fp16" else None
        reference = Reference(graph, truth, work, stated=stated, seed=options.seed, largest=largest)
        model = options.model
        if graph.renamed:
            notes.append("several nodes bear one name: each is called by its first output")
            model = save(promote(graph, ()), work / "renamed.onnx")
        original = _original(options, truth, work, stated)
        identity = _identity(options, graph, samples)
        journal = Journal(folder, identity)
        if journal.resumed:
            notes.append(f"continued: {len(journal.known)} probes were known from an earlier run")
        prober = Prober(engine, journal, _engine_identity(options, graph), options.timeout)
        return Subject(
            options, graph, samples, origins, golden, original, judge, engine, truth, reference,
            prober, journal, stated, folder, work, notes, (engine_spec, truth_spec), progress, model,
        )  # fmt: skip
    except BaseException:
        engine.close()
        truth.close()
        shutil.rmtree(folder / ".work", ignore_errors=True)
        raise


def _stated(precision: str | None) -> float | None:
    if precision is None:
        return None
    if precision not in PRECISIONS:
        raise SpecError(
            f"--precision {precision!r} is not known; expected one of {', '.join(PRECISIONS)}"
        )
    return PRECISIONS[precision]


def _truth(reference: str | Path | None) -> tuple[Path | None, EngineSpec]:
    if reference is None:
        return None, resolve("ort-reference", {})
    text = str(reference)
    if text.endswith((".npz", ".json")):
        if not Path(text).is_file():
            raise InputError(f"--reference {text}: no such file; expected golden values")
        return Path(text), resolve("ort-reference", {})
    return None, resolve(text, {})


def _samples(
    options: Options, graph: Graph
) -> tuple[list[Mapping[str, Array]], list[str], list[str]]:
    specs = [_spec(n, t.elem, t.shape) for n, t in graph.inputs.items()]
    specs += [_spec(n, t.elem, t.shape, optional=True) for n, t in graph.overridable.items()]
    if options.inputs:
        found = load_inputs(options.inputs, specs)
        if not found:
            raise InputError("the inputs hold no sample; give at least one")
        return [s.feeds for s in found], [s.origin for s in found], []
    sample, warnings = random_inputs(specs, options.input_shapes, seed=options.seed)
    return [sample.feeds], [sample.origin], [f"inputs are {sample.origin}", *warnings]


def _spec(
    name: str, elem: int, shape: tuple[int | str | None, ...] | None, *, optional: bool = False
) -> InputSpec:
    dtype = numpy_dtype(elem)
    if dtype is None:
        return InputSpec(name, "string", shape, optional)
    return InputSpec(name, dtype, shape, optional)


def _golden(path: Path, graph: Graph, samples: int) -> list[dict[str, Array]]:
    golden = load_golden(path)
    if len(golden) != samples:
        raise InputError(
            f"--reference {path} holds {len(golden)} samples, the inputs hold {samples}; "
            "give golden values for each sample"
        )
    for values in golden:
        missing = [n for n in graph.outputs if n not in values]
        if missing:
            raise InputError(
                f"--reference {path} lacks output {missing[0]!r}; it holds "
                f"{', '.join(sorted(values)[:6])}"
            )
    return golden


def _original(options: Options, truth: Host, work: Path, stated: float | None) -> Reference | None:
    if options.reference_model is None:
        return None
    graph = load_graph(options.reference_model, work)
    return Reference(graph, truth, work, stated=stated, seed=options.seed)


def _load_judge(text: str) -> Judge:
    path, _, name = text.rpartition(":")
    if not path or not Path(path).is_file():
        raise InputError(f"--judge {text}: expected file.py:function of an existing file")
    spec = importlib.util.spec_from_file_location("tapsect_judge", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"--judge {path} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    judge = getattr(module, name, None)
    if not callable(judge):
        raise InputError(f"--judge {path} has no function {name!r}")
    found: Judge = judge
    return found


def _identity(options: Options, graph: Graph, samples: Sequence[Mapping[str, Array]]) -> str:
    digest = hashlib.sha256(_engine_identity(options, graph).encode())
    parts = (options.reference, options.reference_model, options.precision, options.tolerance,
             options.judge, options.tap_memory, options.seed)  # fmt: skip
    digest.update(repr(parts).encode())
    for sample in samples:
        for name in sorted(sample):
            value = sample[name]
            digest.update(f"{name}{value.dtype}{value.shape}".encode())
            body = repr(value.tolist()) if value.dtype.kind in "OU" else None
            digest.update(body.encode() if body else np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def _engine_identity(options: Options, graph: Graph) -> str:
    return json.dumps(
        [graph.sha256, options.engine, dict(options.engine_options), str(options.engine_python)],
        sort_keys=True, default=str,
    )  # fmt: skip
