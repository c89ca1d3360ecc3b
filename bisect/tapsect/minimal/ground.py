"""The model, its samples and recorded values, ready to be cut.

For the built-in check this is what a diagnosis works on.  A command or a person needs no engine
of ours: there the reference alone runs, to record what parts of the model are fed.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from debugtaps import (
    Array,
    EngineFailure,
    Graph,
    Host,
    InputSpec,
    ModelError,
    TensorType,
    UsageError,
    extract,
    follow,
    implied_inputs,
    load_graph,
    random_inputs,
)
from tapsect.candidate import Candidate
from tapsect.diagnose.given import read_samples, stated_roundoff
from tapsect.diagnose.shrink import GraphStructure
from tapsect.diagnose.subject import Subject, open_subject
from tapsect.diagnose.workers import truth_of
from tapsect.folder import WORK, clear_results
from tapsect.journal import Journal
from tapsect.localize.examine import Recorded
from tapsect.minimal.plan import Plan
from tapsect.minimal.trial import Trial
from tapsect.progress import Progress
from tapsect.reduction import Problem
from tapsect.replay.light import lighten
from tapsect.replay.reference import Reference, numpy_dtype

__all__ = ["Ground", "Parts", "Unfed", "ground_of", "open_ground"]


class Unfed(Exception):
    """What a part reads cannot be recorded."""


class CutStructure(GraphStructure):
    """A graph of which inner tensors may become inputs, or not."""

    def __init__(
        self, reference: Reference, shapes: dict[str, tuple[int, ...]], *, keep_inputs: bool
    ) -> None:
        super().__init__(reference, shapes)
        self.keep_inputs = keep_inputs

    def feedable(self, tensor: str) -> bool:
        """Returns whether a tensor may become an input, or is one."""
        if tensor in self.graph.inputs:
            return True
        return not self.keep_inputs and super().feedable(tensor)


class Parts(Problem):
    """A failing part of a graph whose outputs may have to stay."""

    keep_outputs = False

    def why_invalid(self, candidate: Candidate) -> str:
        """Returns why a part need not be asked."""
        if self.keep_outputs and candidate.outputs != self.current.outputs:
            return "the outputs shall stay as they are"
        return super().why_invalid(candidate)


@dataclass
class Ground:
    """What is cut.

    Attributes:
        graph: The model.
        reference: Records values.
        samples: Feeds of the whole model.
        recorded: Values of inner tensors, by sample.
        structure: The graph as the reducer sees it.
        work: Where candidates may be written.
        journal: Answers so far.
        notes: What had to be assumed.
        golden: Whether parts are fed with recorded or with drawn values.
        subject: The diagnosis' material, where the engine is checked.
        runs: Whether the reference can run the model.
        seed: Of drawn values.
    """

    graph: Graph
    reference: Reference
    samples: list[Mapping[str, Array]]
    recorded: list[Recorded]
    structure: CutStructure
    work: Path
    journal: Journal
    notes: list[str]
    golden: str = "once"
    subject: Subject | None = None
    runs: bool = True
    seed: int = 0
    _drawn: dict[str, Array] = field(default_factory=dict, repr=False)

    def start(self) -> Candidate:
        """Returns what the model's outputs need.

        Raises:
            ModelError: No operator writes an output.
        """
        graph = self.graph
        shown = [t for t in graph.outputs if t in graph.producer]
        if not shown:
            raise ModelError(
                f"{graph.path}: no operator writes an output of it; there is nothing to reduce"
            )
        shown.sort(key=lambda t: graph.producer[t])
        return Candidate(self.reference.topology.ancestors(shown), tuple(shown))

    def trial(
        self, candidate: Candidate, samples: Sequence[int] | None = None, *, fed: bool = True
    ) -> Trial:
        """Returns a part as a model that can be run by itself.

        Args:
            candidate: The part.
            samples: Which samples; all of them when not given.
            fed: Whether its inputs are read; if not they may be missing.

        Raises:
            Unfed: What it reads could not be recorded.
        """
        aliases = dict(candidate.bypass)
        names = implied_inputs(self.graph, candidate.nodes, aliases)
        numbers = range(len(self.samples)) if samples is None else samples
        try:
            feeds = [self.values(names, number) for number in numbers]
        except (EngineFailure, KeyError) as error:
            if fed:
                raise Unfed(str(error)) from error
            feeds = [{}]
        types = self._told(names, feeds[0]) | self._shown(candidate, numbers[0])
        model = extract(
            self.graph, candidate.nodes, candidate.outputs, aliases=aliases, types=types
        )
        count, total = len(candidate.nodes), len(self.graph.nodes)
        ops = sorted({self.graph.nodes[i].op for i in candidate.nodes})
        label = f"{count} of {total} nodes ({', '.join(ops[:6])}{' …' if len(ops) > 6 else ''})"
        label += f", looked at: {', '.join(candidate.outputs[:3])}"
        return Trial(model, self.graph.folder, feeds, count, label)

    def _told(self, names: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, TensorType]:
        """Returns the types of inputs that inference cannot tell, as their values have them."""
        types = self.graph.types
        return {
            name: TensorType(self.graph.elem(name) or 0, feeds[name].shape)
            for name in names if name in feeds and _unknown(types.get(name))
        }  # fmt: skip

    def _shown(self, candidate: Candidate, sample: int) -> dict[str, TensorType]:
        """Returns the types of outputs of which inference cannot tell even the rank."""
        aliases, types = dict(candidate.bypass), self.graph.types
        shown = (follow(tensor, aliases) for tensor in candidate.outputs)
        blank = [t for t in shown if (kind := types.get(t)) is None or kind.shape is None]
        if not blank or not self.runs:
            return {}
        with suppress(EngineFailure, KeyError):
            seen = self.recorded[sample].values(blank, "reference")
            return {t: TensorType(self.graph.elem(t) or 0, seen[t].shape) for t in blank}
        return {}

    def values(self, names: Sequence[str], sample: int) -> dict[str, Array]:
        """Returns what is fed to a part: the model's own inputs, and recorded or drawn values."""
        if self.golden == "once":
            return self.recorded[sample].values(names, "reference")
        own = {n: self.samples[sample][n] for n in names if n in self.samples[sample]}
        return own | {n: self._draw(n, sample) for n in names if n not in own}

    def _draw(self, name: str, sample: int) -> Array:
        if name not in self._drawn:
            dtype = numpy_dtype(self.graph.elem(name))
            shape = self.reference.shapes(self.samples[sample]).get(name)
            if dtype is None or shape is None:
                return self.recorded[sample].values([name], "reference")[name]
            drawn, _ = random_inputs([InputSpec(name, dtype, shape)], seed=self.seed)
            self._drawn[name] = drawn.feeds[name]
        return self._drawn[name]


def _unknown(kind: TensorType | None) -> bool:
    return kind is None or kind.shape is None or any(d is None for d in kind.shape)


@contextmanager
def open_ground(plan: Plan, folder: Path, progress: Progress) -> Iterator[Ground]:
    """Gives what a plan reduces; its workers run while it is held.

    Raises:
        UsageError: Something the user gave cannot be used.
    """
    if plan.line is None and plan.ask is None:
        subject = open_subject(plan.options, folder, progress, plan.begun)
        try:
            yield _of_subject(subject, plan)
        finally:
            subject.close(finished=False)
        return
    options, work = plan.options, folder / WORK
    golden, spec = truth_of(options.reference)
    if options.judge or options.reference_model or golden:
        raise UsageError(
            "--judge, --reference-model and golden values judge an engine; with --check the"
            " command alone judges: drop them, or give --engine in place of --check"
        )
    shutil.rmtree(work, ignore_errors=True)
    stated = stated_roundoff(options.precision)
    truth = Host(spec, timeout=options.timeout)
    try:
        truth.start()
        graph = load_graph(options.model, work)
        lighten(truth, work)
        given = read_samples(options, graph)
        graph = graph.feeding(n for s in given.samples for n in s)
        reference = Reference(graph, truth, work, stated=stated, seed=options.seed)
        clear_results(folder)
        journal = Journal(folder, _identity(plan, graph, given.samples))
        if journal.resumed:
            progress.step("continued", f"{len(journal.known)} answers are known")
        yield ground_of(plan, reference, given.samples, work, journal, given.notes)
    finally:
        truth.close()
        shutil.rmtree(work, ignore_errors=True)


def _of_subject(subject: Subject, plan: Plan) -> Ground:
    ground = ground_of(
        plan, subject.reference, subject.samples, subject.work, subject.journal, subject.notes
    )
    ground.subject = subject
    subject.graph = ground.graph
    return ground


def ground_of(
    plan: Plan, reference: Reference, samples: list[Mapping[str, Array]], work: Path,
    journal: Journal, notes: list[str],
) -> Ground:  # fmt: skip
    """Returns a model, ready to be cut.

    Raises:
        ReferenceFailed: The reference cannot run it, and the engine is to be compared with it.
    """
    runs = True
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        reference.complete(samples[0])
        shapes = dict(reference.shapes(samples[0]))
    except EngineFailure as failure:
        if plan.line is None and plan.ask is None:
            raise reference.failed(failure) from failure
        runs = False
        notes.append("the reference cannot run the model: no inner values were recorded")
    structure = CutStructure(reference, shapes, keep_inputs=plan.keep_inputs)
    recorded = [Recorded(reference, sample, {}) for sample in samples]
    return Ground(
        reference.graph, reference, samples, recorded, structure, work, journal, notes,
        golden=plan.golden, runs=runs, seed=plan.options.seed,
    )  # fmt: skip


def _identity(plan: Plan, graph: Graph, samples: Sequence[Mapping[str, Array]]) -> str:
    line = plan.line
    asked = None if line is None else (line.words, repr(line.rule))
    whole = Trial(graph.shell, graph.folder, samples, 0).key(fed=True)
    return hashlib.sha256(repr((graph.sha256, asked, plan.golden, whole)).encode()).hexdigest()
