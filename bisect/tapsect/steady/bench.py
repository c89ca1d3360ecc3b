"""The engine, ready to be built again and again, and who says good or bad.

The built-in judge opens what a diagnosis works on.  A command or a person needs no reference:
there only the engine is started, and each build is saved for them to look at.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from debugtaps import (
    Build,
    EngineFailure,
    EngineSpec,
    Graph,
    Host,
    UsageError,
    WorkerError,
    load_graph,
    resolve,
)
from tapsect.ahead import Ahead
from tapsect.axes.repeat import Attempt
from tapsect.diagnose.given import Options
from tapsect.diagnose.subject import open_subject
from tapsect.folder import WORK, clear_results
from tapsect.journal import Journal
from tapsect.probe import CROWDED
from tapsect.progress import Progress
from tapsect.steady.judges import ByCommand, ByPerson, ByReference, Judge, places
from tapsect.steady.plan import CANDIDATE, Check
from tapsect.verdict import Verdict

__all__ = ["Bench", "open_bench"]


@dataclass
class Bench:
    """An engine and who judges it.

    Attributes:
        model: The file that is built.
        spec: The engine.
        host: Its worker.
        judge: Says what a run is.
        check: How often a build is run, and where files go.
        journal: Attempts so far.
        options: Model, engine and time-out.
        notes: What had to be assumed.
        fresh: How many attempts were made, rather than recalled.
        ended: Whether what still runs is of no use any more.
        judging: Held while a run is made and judged.
    """

    model: Path
    spec: EngineSpec
    host: Host
    judge: Judge
    check: Check
    journal: Journal
    options: Options
    notes: list[str] = field(default_factory=list)
    fresh: int = 0
    ended: bool = False
    judging: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def several(self, jobs: int) -> Iterator[Callable[[int, int | None], Attempt]]:
        """Gives attempts, several builds at a time; runs are still made and judged one by one.

        What is given takes the number of an attempt and how many there will be, if that is known.
        A build that ran out of memory or time beside others is made again alone.
        """
        hosts = [self.host, *(self.host.another() for _ in range(jobs - 1))]

        def ask(number: int, lane: int) -> Attempt:
            return self._known(number) or self._made(number, hosts[lane], "build")

        def attempt(number: int, count: int | None) -> Attempt:
            ahead.begin(range(number, count or number + jobs))
            return ahead(number)

        ahead = Ahead(ask, jobs, keep=lambda _, made: self._keep(made), squeezed=_squeezed)
        try:
            yield attempt
        finally:
            self.ended = True
            for host in hosts:
                host.abort()
            ahead.close()
            for host in hosts[1:]:
                host.close()

    def attempt(self, number: int, *, host: Host | None = None, label: str = "build") -> Attempt:
        """Returns one build and what its runs are; one that is written down is not made again."""
        known = self._known(number, label)
        if known is not None:
            return known
        made = self._made(number, host or self.host, label)
        self._keep(made, label)
        return made

    def _key(self, number: int, label: str) -> str:
        return f"{label} {number}, {self.check.runs} runs"

    def _known(self, number: int, label: str = "build") -> Attempt | None:
        """Returns an attempt that is written down."""
        known = self.journal.known.get(self._key(number, label))
        if known is None:
            return None
        runs = tuple(Verdict(word) for word in known["runs"])
        return Attempt(number, runs, known["tactics"], known["why"], known["seconds"])

    def _keep(self, made: Attempt, label: str = "build") -> None:
        """Writes an attempt down, once; one that was cut off shows nothing."""
        key = self._key(made.number, label)
        if self.ended or key in self.journal.known:
            return
        self.fresh += 1
        entry = {
            "entry": "probe", "key": key, "purpose": label, "why": made.why,
            "runs": [run.value for run in made.runs], "tactics": dict(made.tactics),
            "seconds": round(made.seconds, 4),
        }  # fmt: skip
        self.journal.append(entry)
        self.journal.known[key] = entry

    def _made(self, number: int, host: Host, label: str) -> Attempt:
        start, runs, why = time.monotonic(), list[Verdict](), ""
        tactics: Mapping[str, str] = {}
        build: Build | None = None
        try:
            if self.builds:
                build = host.build(self.model, timeout=self.options.timeout)
                tactics = build.tactics() if "tactics" in build.has else {}
                self._place(build)
            for run in range(self.check.runs):
                title = f"{label} {number + 1}" + (
                    f", run {run + 1}" if self.check.runs > 1 else ""
                )
                with self.judging:
                    verdict, said = self.judge.judge(build, title)
                runs.append(verdict)
                why = said if verdict is Verdict.DIVERGES or not why else why
        except EngineFailure as failure:
            runs.append(Verdict.DIVERGES)
            why = f"{failure.kind}: {next(iter(failure.message.splitlines()), '')}"[:300]
        finally:
            if build is not None:
                with suppress(EngineFailure, WorkerError):
                    build.close()
        return Attempt(number, tuple(runs), tactics, why, time.monotonic() - start)

    @property
    def builds(self) -> bool:
        """Returns whether a build is ours to make: not where the command makes its own."""
        line = self.check.line
        return line is None or line.names("{engine}") or not line.names("{model}")

    @property
    def builder(self) -> str:
        """Returns who builds."""
        return self.options.engine if self.builds else "the check"

    def _place(self, build: Build) -> None:
        """Writes the candidate, for those who look at it there.

        Raises:
            UsageError: The engine cannot save what it built.
        """
        files = self.check.artifacts.files if self.check.artifacts is not None else ()
        if self.check.builtin and CANDIDATE not in files:
            return
        if "save" not in build.has:
            if self.check.line is not None:
                way = "leave --check out, or let the check build {model} itself"
            else:
                way = f"leave {'out --ask' if self.check.ask else f'{CANDIDATE} out'}"
            raise UsageError(
                f"engine {self.options.engine!r} cannot save what it builds, so nobody can look at"
                f" {CANDIDATE}; {way}"
            )
        part = CANDIDATE.with_name(f".{CANDIDATE.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        build.save(part)
        shutil.rmtree(CANDIDATE, ignore_errors=True)
        part.rename(CANDIDATE)


def _squeezed(made: Attempt) -> bool:
    return made.why.partition(":")[0] in CROWDED


@contextmanager
def open_bench(options: Options, check: Check, folder: Path, progress: Progress) -> Iterator[Bench]:
    """Gives the engine and its judge; the journal stays open until it is left without an error.

    Raises:
        UsageError: Something that was given cannot be used.
        EnvironmentFailure: A worker cannot be started.
    """
    if check.builtin:
        subject = open_subject(options, folder, progress)
        finished = False
        try:
            yield Bench(
                subject.model, subject.specs[0], subject.engine, ByReference(subject), check,
                subject.journal, options, subject.notes,
            )  # fmt: skip
            finished = True
        finally:
            subject.close(finished=finished)
        return
    with _bare(options, check, folder) as bench:
        yield bench


@contextmanager
def _bare(options: Options, check: Check, folder: Path) -> Iterator[Bench]:
    """Gives the engine alone, with a command or a person as its judge."""
    spec = resolve(options.engine, options.engine_options)
    work = folder / WORK
    shutil.rmtree(work, ignore_errors=True)
    host = Host(spec, python=options.engine_python, timeout=max(options.timeout, 600.0))
    journal: Journal | None = None
    finished = False
    try:
        graph = load_graph(options.model, work)
        host.room = work
        if options.engine_python is not None or check.line is None or check.line.names("{engine}"):
            host.ready()
        judge = _judge(options, check, graph, work)
        clear_results(folder)
        about = [graph.sha256, graph.weights, options.engine, dict(options.engine_options),
                 str(options.engine_python), repr(check.line), check.runs]  # fmt: skip
        text = json.dumps(about, sort_keys=True, default=str)
        journal = Journal(folder, hashlib.sha256(text.encode()).hexdigest())
        yield Bench(options.model, spec, host, judge, check, journal, options)
        finished = True
    finally:
        host.close()
        shutil.rmtree(work, ignore_errors=True)
        if journal is not None:
            journal.close(finished=finished)


def _judge(options: Options, check: Check, graph: Graph, work: Path) -> Judge:
    if check.line is not None:
        return ByCommand(check.line, places(check.line, options, graph, work))
    assert check.ask is not None
    return ByPerson(check.ask)
