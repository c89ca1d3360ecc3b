"""A run from a suite's file to its answers: everything is opened before any work begins."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debugtaps import InputError, OutputError
from tapsect.environment import environment
from tapsect.folder import room
from tapsect.progress import Progress, Silent
from tapsect.triage.answers import write_answers
from tapsect.triage.database import Database
from tapsect.triage.history import History
from tapsect.triage.local import Executor, Local
from tapsect.triage.nightly import FINDINGS, Clock, Night, utc_now
from tapsect.triage.plan import Entry, read_plan
from tapsect.triage.proof import prove
from tapsect.triage.states import NEWS
from tapsect.triage.suite import read_suite
from tapsect.triage.summary import Summary, summarise

__all__ = ["How", "moment", "open_history", "run_suite"]


@dataclass(frozen=True, slots=True)
class How:
    """How a suite is run; see ``tapsect triage run --help``.

    Attributes:
        only: Patterns of entries.
        since: A day, a time or a run: entries that are as they were then are left out.
        fresh: Whether findings of equal content are made again.
        jobs: How many at once; one a GPU, or one, when not given.
        ray: The address of a Ray cluster.
        shared: A folder, as fsspec names it, that driver and nodes of the cluster can reach.
        versions: Whether the release of the engine that brought a new fault is searched for.
        history: Where it is kept, in place of what the suite says.
        out: The folder of results, in place of what the suite says.
    """

    only: Sequence[str] = ()
    since: str | None = None
    fresh: bool = False
    jobs: int | None = None
    ray: str | None = None
    shared: str | None = None
    versions: bool = False
    history: str | None = None
    out: Path | None = None


def run_suite(
    path: Path, how: How = How(), *, now: Clock = utc_now, progress: Progress | None = None
) -> tuple[Summary, Path]:
    """Returns what a run saw, and the folder of its answers.

    Args:
        path: The suite's file.
        how: How it is run.
        now: The clock.
        progress: Hears of each entry.

    Raises:
        InputError: Suite, patterns or ``since`` cannot be used.
        EnvironmentFailure: The history or the cluster cannot be reached, or the history not
            written.
    """
    plan = read_plan(path)
    entries = plan.only(how.only)
    listener = progress or Silent()
    out = how.out or plan.folder / plan.suite.out
    told = how.history
    where = Database(told or plan.suite.history, Path() if told else plan.folder)
    with where as database, room(out):
        history = History(database)
        since = moment(history, how.since) if how.since is not None else None
        with _executor(how, out) as executor:
            night = Night(plan, history, out, now, how.fresh, listener)
            run = night.run(entries, executor, since=since)
        summary = summarise(history, run)
        if how.versions and _proved(summary, entries, history, listener):
            summary = summarise(history, run)
        return summary, write_answers(out, summary, history)


def _proved(
    summary: Summary, entries: Sequence[Entry], history: History, progress: Progress
) -> bool:
    """Searches for the release that brought each fault that is news; returns whether any was."""
    named = {entry.name: entry for entry in entries}
    proofs = {}
    for group in summary.groups:
        row = next((r for r in group.rows if r.state in NEWS and r.since is not None), None)
        if row is not None and row.since is not None:
            proofs[group.digest] = prove(named[row.entry], row.since, progress)
    for digest, proof in proofs.items():
        if proof is not None:
            history.prove(digest, proof)
    return any(proofs.values())


@contextmanager
def _executor(how: How, out: Path) -> Iterator[Executor]:
    home = out / FINDINGS
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror}); choose another --out."
        ) from None
    if how.ray is not None:
        from tapsect.triage.cluster import Cluster

        executor: Executor = Cluster(home, how.ray, shared=how.shared)
    else:
        gpus = [str(n) for n in range(len(environment().get("gpus", ())))]
        executor = Local(home, jobs=how.jobs or max(1, len(gpus)), gpus=gpus)
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def open_history(where: str) -> Iterator[History]:
    """Gives the history that a suite's file names, or a file or URL of one.

    Raises:
        InputError: There is none.
    """
    folder = Path()
    if where.endswith((".yaml", ".yml")):
        suite, _ = read_suite(Path(where))
        folder, where = Path(where).parent, suite.history
    if "://" not in where and not (folder / where).is_file():
        raise InputError(f"{folder / where}: there is no history yet; tapsect triage run makes it.")
    with Database(where, folder) as database:
        yield History(database)


def moment(history: History, text: str) -> dt.datetime:
    """Returns when a run began, or the time that a text says, in UTC where it names no zone.

    Raises:
        InputError: It is neither a run nor a time.
    """
    for run in history.runs():
        if run.id == text:
            return run.started
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{text!r} is no run of the history and no time; write 2030-12-31 or a run's name."
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
