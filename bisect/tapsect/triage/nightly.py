"""The flow of one run: what is known is taken from the history, the rest is looked at.

::

    entries ─▶ content keys ─▶ in the history? ─▶ observation, without a look
                                   │ no
                                   └─▶ executor ─▶ finding ─▶ observation, one transaction each

A run that was killed is taken up where it was by the next one with the same plan.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from debugtaps import OutputError
from tapsect.environment import environment
from tapsect.finding import Finding
from tapsect.folder import locked
from tapsect.progress import Progress, Silent
from tapsect.triage.content import Contents, Known, shared, told_engines
from tapsect.triage.history import History
from tapsect.triage.job import Done, Stopped
from tapsect.triage.local import Executor
from tapsect.triage.plan import Entry, Plan
from tapsect.triage.records import Found, Observation, Run
from tapsect.triage.signatures import of_finding, of_stop
from tapsect.triage.since import borders
from tapsect.triage.states import Past, Seen, judge

__all__ = ["FINDINGS", "RUNS", "Night", "utc_now"]

FINDINGS = "findings"
RUNS = "runs"

Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    """Returns the time."""
    return dt.datetime.now(dt.UTC)


@dataclass
class Night:
    """One run of a suite.

    Attributes:
        plan: The suite.
        history: What was seen before, and where this run is written down.
        out: The suite's folder of results.
        now: The clock.
        fresh: Whether findings of equal content are made again.
        progress: Hears of each entry.
    """

    plan: Plan
    history: History
    out: Path
    now: Clock = utc_now
    fresh: bool = False
    progress: Progress = field(default_factory=Silent)

    def run(
        self, entries: Sequence[Entry], executor: Executor, *, since: dt.datetime | None = None
    ) -> Run:
        """Returns the run after it saw every entry.

        Args:
            entries: What to look at.
            executor: Who looks.
            since: Leaves entries out whose content is as the last run before then saw it.

        Raises:
            EnvironmentFailure: The history cannot be written; what was found is not lost.
        """
        machine = environment()
        contents = Contents(told_engines(e.engine for e in entries), machine)
        known = [contents.of(entry) for entry in entries]
        if since is not None:
            known = self._changed(known, since)
        with self._begun(known, machine) as run:
            past = self.history.past(self.plan.name, without=run.id)
            done = self.history.entries_of(run.id)
            left = [k for k in known if k.entry.name not in done]
            left = self._from_history(run, left, past)
            self._look(run, left, past, executor)
            self.history.finish(run, self.now())
        return replace(run, finished=self.now())

    def _changed(self, known: Sequence[Known], since: dt.datetime) -> list[Known]:
        """Returns the entries that are not as the last run before ``since`` saw them."""
        before = [r for r in self.history.runs(self.plan.name) if r.started <= since]
        then = self.history.entries_of(before[-1].id) if before else {}
        return [k for k in known if then.get(k.entry.name, ("", ""))[0] != k.key]

    @contextmanager
    def _begun(self, known: Sequence[Known], machine: Mapping[str, Any]) -> Iterator[Run]:
        """Gives a new run, or the one that was killed; its folder is held until it ends."""
        text = "\n".join(f"{k.entry.name} {k.key} {self.fresh}" for k in known)
        plan = hashlib.sha256(text.encode()).hexdigest()
        place = f"{socket.gethostname()}:{self.out.absolute()}"
        folder = self.out / RUNS
        folder.mkdir(parents=True, exist_ok=True)
        for old in reversed(self.history.runs(self.plan.name)):
            if old.finished is None and old.plan == plan and old.folder == place:
                held = _taken(folder / f"{old.id}.lock")
                if held is not None:
                    with held:
                        self.progress.step("continued", f"run {old.id}, which did not end")
                        yield old
                    return
        run = self.history.begin(self.plan.name, plan, place, self.now(), machine)
        with locked(folder / f"{run.id}.lock"):
            yield run

    def _from_history(
        self, run: Run, known: Sequence[Known], past: Mapping[str, Past]
    ) -> list[Known]:
        """Writes down what needs no look; returns the rest."""
        latest = self.history.latest({k.key for k in known})
        ready, rest = [], []
        for each in known:
            found = latest.get(each.key)
            if found is None or each.stopped is not None:
                rest.append(each)
            elif found.reusable and not self.fresh and not _shaky(each, past):
                ready.append(self._observed(run, each, found, past, cached=True))
            else:  # a second look at an equal content gets a folder of its own
                job = replace(each.job, folder=f"{each.job.folder}.{run.id}")
                rest.append(replace(each, job=job))
        self.history.record(run, ready)
        if ready:
            self.progress.step("known", f"{len(ready)} of {len(known)} entries have not changed")
        return rest

    def _look(
        self, run: Run, known: Sequence[Known], past: Mapping[str, Past], executor: Executor
    ) -> None:
        for each in known:
            if each.stopped is not None:  # its engine does not load
                self._record(run, [each], Done(each.key, None, each.stopped), past)
        waiting = shared([k for k in known if k.stopped is None])
        jobs = [group[0].job for group in waiting.values()]
        for count, done in enumerate(executor.run(jobs), 1):
            group = waiting[done.key]
            self.progress.step(f"{count} of {len(jobs)}", group[0].entry.name)
            self._record(run, group, done, past)

    def _record(
        self, run: Run, group: Sequence[Known], done: Done, past: Mapping[str, Past]
    ) -> None:
        found = self._found(group[0], done)
        self.history.record(run, [self._observed(run, k, found, past) for k in group])

    def _found(self, known: Known, done: Done) -> Found:
        made = self.now()
        if done.result is None:
            stop = done.stopped or Stopped("died", "no result")
            signature = of_stop(stop, known.entry.engine.name)
            return Found(done.key, made, "", stop.message, known.facts, signature,
                         signature.cause, done.seconds)  # fmt: skip
        finding = Finding.from_json(done.result)
        cost = finding.cost
        cause = None if finding.status == "agrees" else finding.cause or "inconclusive"
        return Found(
            done.key, made, known.job.folder, finding.message, known.facts, of_finding(finding),
            cause, cost.seconds, cost.builds + cost.reduce_builds, done.result,
        )  # fmt: skip

    def _observed(
        self,
        run: Run,
        known: Known,
        found: Found,
        past: Mapping[str, Past],
        *,
        cached: bool = False,
    ) -> Observation:
        name, made = known.entry.name, self.now()
        digest = found.signature.digest if found.signature else None
        seen = Seen(made, found.key, digest, "", cached, found.cause)
        before = past.get(name, past[""])
        verdict = judge(name, seen, before, self.plan.suite.expect)
        good, bad = borders(run.id, digest, before.looks[-1] if before.looks else None)
        return Observation(name, found, verdict, made, cached, good, bad)


def _shaky(known: Known, past: Mapping[str, Past]) -> bool:
    """Returns whether an entry is looked at each time, as its answer is not always the same."""
    looks = past.get(known.entry.name, past[""]).looks
    return bool(looks) and looks[-1].state == "flaky"


def _taken(lock: Path) -> ExitStack | None:
    """Returns a run's lock, held until it is closed; ``None`` when another process holds it."""
    held = ExitStack()
    try:
        held.enter_context(locked(lock))
    except OutputError:
        return None
    return held
