"""What is diagnosed: model, samples, engine and reference, ready to be asked.

Everything that can be wrong with what the user gave is found here, before any work.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from debugtaps import (
    Array,
    EngineSpec,
    Graph,
    Host,
    InputError,
    SpecError,
    load_graph,
    promote,
    save,
)
from tapsect.diagnose.given import (
    Given,
    Judge,
    Options,
    Source,
    TapMode,
    golden_values,
    load_judge,
    read_samples,
    stated_roundoff,
)
from tapsect.diagnose.workers import Workers, workers
from tapsect.folder import WORK, clear_results
from tapsect.journal import Journal
from tapsect.observed import Repeats
from tapsect.probe import Prober
from tapsect.progress import Progress
from tapsect.replay.light import lighten
from tapsect.replay.precision import Classes
from tapsect.replay.reference import Reference, own_roundoff
from tapsect.rounding.floors import limit_for

if TYPE_CHECKING:
    from tapsect.diagnose.from_torch import FromTorch

__all__ = ["Judge", "Options", "Source", "Subject", "TapMode", "open_subject"]


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
        torch: What a Python file tells, where the model is one.
        unsteady: How often the failure comes, once it was seen not to come each time.
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
    torch: FromTorch | None = None
    unsteady: Repeats | None = None

    @property
    def roundoff(self) -> float:
        """Returns the stated unit roundoff: the coarsest float type of the model when none is."""
        if self.stated is not None:
            return self.stated
        floats = [own_roundoff(e) for e in {t.elem for t in self.graph.types.values()}]
        return max(2.0**-24, *floats, 0.0)

    @property
    def end_limit(self) -> float:
        """Returns F at the stated precision."""
        return limit_for(self.roundoff).end

    @property
    def coarse(self) -> Classes | None:
        """Returns the precision the engine says it computes in, where it is coarser than asked."""
        u = self.engine.unit_roundoff()
        return Classes(u, u) if u is not None and u > self.roundoff else None

    def close(self, *, finished: bool) -> None:
        """Ends workers and removes what nobody needs any more."""
        with suppress(Exception):
            self.reference.close()
        self.prober.close()
        self.engine.close()
        self.truth.close()
        shutil.rmtree(self.work, ignore_errors=True)
        self.journal.close(finished=finished)


def open_subject(
    options: Options, folder: Path, progress: Progress, begun: Workers | None = None
) -> Subject:
    """Returns everything a diagnosis needs; its workers are running.

    Nothing is written to ``folder`` that stays before all that was given is known to be usable.

    Args:
        options: What the user asked for.
        folder: Where results go.
        progress: Hears of each step.
        begun: The workers of these options, where they were begun before.

    Raises:
        UsageError: Something the user gave cannot be used; the message names it and the mend.
        EnvironmentFailure: A worker cannot be started, or cannot load its engine.
    """
    stated = stated_roundoff(options.precision)
    both = begun or workers(
        options.engine, options.engine_options, options.engine_python, options.reference,
        options.timeout,
    )  # fmt: skip
    judge = load_judge(options.judge) if options.judge else None
    if options.engine_file is not None and not options.engine_file.is_file():
        raise InputError(f"--engine-file {options.engine_file}: no such file; give a saved engine")
    engine, truth, work = both.engine, both.truth, folder / WORK
    with _undone(both, work):
        torch = _torch(options, work)
        path = torch.path if torch else options.model
        graph = load_graph(path, work)
        engine.room = work
        lighten(truth, work)
        given = torch.read(options, graph) if torch else read_samples(options, graph)
        graph = graph.feeding(n for s in given.samples for n in s)
        if options.tolerance is not None:
            options.tolerance.check_names(graph.outputs)
        golden = golden_values(both.golden, graph, len(given.samples)) if both.golden else None
        if torch is not None and torch.told is not None:
            golden = [told.outputs for told in torch.told]
        largest = 65504.0 if options.precision == "fp16" else None
        reference = Reference(graph, truth, work, stated=stated, seed=options.seed, largest=largest)
        original = _original(options, graph, truth, work, stated)
        for host in (engine, truth):
            host.ready()  # an engine that cannot be loaded is found before anything is kept
        if options.tap_mode not in get_args(TapMode):
            modes = ", ".join(get_args(TapMode))
            raise SpecError(f"--tap-mode {options.tap_mode!r} is not known; expected {modes}")
        if options.tap_mode == "debug" and not engine.promotes_taps:
            raise SpecError(
                f"--tap-mode debug: {options.engine} has no debug tensors; use border or mark"
            )
        who = _engine_identity(options, graph, both.specs[0])
        journal = _journal(folder, _identity(options, who, given.samples), given, progress)
        model = _first_model(path, graph, given, work)
        further = [engine.another() for _ in range(options.jobs - 1)]
        prober = Prober(engine, journal, who, options.timeout, options.most_builds, further)
        return Subject(
            options, graph, given.samples, given.origins, golden, original, judge, engine, truth,
            reference, prober, journal, stated, folder, work, given.notes,
            both.specs, progress, model, torch,
        )  # fmt: skip


def _torch(options: Options, work: Path) -> FromTorch | None:
    """Returns the torch side, where the model is a Python file."""
    if options.model.suffix != ".py":
        return None
    from tapsect.diagnose.from_torch import FromTorch

    return FromTorch(options, work)


@contextmanager
def _undone(both: Workers, work: Path) -> Iterator[None]:
    """Starts both workers; after an error nothing of them and of the working folder is left."""
    shutil.rmtree(work, ignore_errors=True)
    try:
        both.start()
        yield
    except BaseException:
        both.close()
        shutil.rmtree(work, ignore_errors=True)
        raise


def _original(
    options: Options, graph: Graph, truth: Host, work: Path, stated: float | None
) -> Reference | None:
    """Returns the original of a converted model, where one was given."""
    if options.reference_model is None:
        return None
    kept = load_graph(options.reference_model, work)
    missing = next((n for n in graph.outputs if n not in kept.outputs), None)
    if missing is not None:
        raise InputError(
            f"--reference-model {options.reference_model} has no output {missing!r}; "
            "give the original of this model"
        )
    return Reference(kept, truth, work, stated=stated, seed=options.seed)


def _journal(folder: Path, identity: str, given: Given, progress: Progress) -> Journal:
    clear_results(folder)
    journal = Journal(folder, identity)
    if journal.resumed:
        said = f"{len(journal.known)} probes are known from an earlier run"
        given.notes.append(f"continued: {said}")
        progress.step("continued", said)
    elif journal.replaced:
        said = "the folder held another diagnosis"
        given.notes.append(said)
        progress.step("begun anew", said)
    return journal


def _first_model(path: Path, graph: Graph, given: Given, work: Path) -> Path:
    """Returns the model as the engine gets it first."""
    if not graph.renamed:
        return path
    given.notes.append("several nodes bear one name: each is called by its first output")
    return save(promote(graph, ()), work / "renamed.onnx")


def _identity(options: Options, engine: str, samples: Sequence[Mapping[str, Array]]) -> str:
    digest = hashlib.sha256(engine.encode())
    parts = (options.engine_file, options.reference, options.reference_model, options.precision,
             options.tolerance, options.judge, options.tap_memory, options.tap_mode,
             options.seed)  # fmt: skip
    digest.update(repr(parts).encode())
    for sample in samples:
        for name in sorted(sample):
            value = sample[name]
            digest.update(f"{name}{value.dtype}{value.shape}".encode())
            body = repr(value.tolist()) if value.dtype.kind in "OU" else None
            digest.update(body.encode() if body else np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def _engine_identity(options: Options, graph: Graph, spec: EngineSpec) -> str:
    """Returns what an engine's answers depend on, besides what each probe says."""
    how, where, name = spec.target
    source = hashlib.sha256(Path(where).read_bytes()).hexdigest() if how != "module" else where
    return json.dumps(
        [graph.sha256, graph.weights, options.engine, how, name, source,
         dict(options.engine_options), str(options.engine_python)],
        sort_keys=True, default=str,
    )  # fmt: skip
