"""Looking back: one entry or fault through all runs, flaky entries, and forgetting old runs."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapsect.triage.history import History
from tapsect.triage.nightly import FINDINGS, RUNS
from tapsect.triage.records import Run
from tapsect.triage.states import WINDOW, Seen, flips
from tapsect.triage.tables import findings, observations

__all__ = ["flaky_entries", "forget", "history_of", "old_runs"]


def history_of(history: History, name: str) -> list[str]:
    """Returns what became of an entry, or whom a signature hit, a line a run; else nothing."""
    rows = history.observed(observations.c.entry == name)
    if rows:
        return [f"{name}:", *(_line(row, row.state, row.message) for row in rows)]
    told = history.signatures([name]).get(name)
    if told is None:
        return []
    rows = history.observed(findings.c.signature == name)
    head = [f"{told.words}", f"first seen {told.first_seen:%Y-%m-%d} (run {told.first_run})"]
    pattern = [f"  {line}" for line in told.body["pattern"]]
    return [*head, *pattern, *(_line(row, row.state, row.entry) for row in rows)]


def _line(row: Any, state: str, what: str) -> str:
    beside = f" ({row.note})" if row.note else ""
    known = ", known from before" if row.cached else ""
    return f"  {row.started:%Y-%m-%d %H:%M}  {row.run}  {state:9s} {what}{beside}{known}"


def flaky_entries(history: History) -> list[str]:
    """Returns the entries that were flaky when they were seen last, with their rates."""
    found: list[tuple[float, str]] = []
    for suite in dict.fromkeys(run.suite for run in history.runs()):
        for entry, past in history.past(suite).items():
            if past.looks and past.looks[-1].state == "flaky":
                looks = [s for s in past.looks if not s.cached][-WINDOW:]
                found.append((_rate(looks), _told(entry, looks)))
    return [line for _, line in sorted(found, key=lambda f: (-f[0], f[1]))]


def _rate(looks: Sequence[Seen]) -> float:
    return sum(s.signature is not None for s in looks) / max(1, len(looks))


def _told(entry: str, looks: Sequence[Seen]) -> str:
    failed = sum(s.signature is not None for s in looks)
    shown = "".join("." if s.signature is None else "F" for s in looks)
    return f"{entry}: fails {failed} of {len(looks)} looks, {flips(looks)} changes  {shown}"


def old_runs(history: History, *, keep: int | None, before: dt.datetime | None) -> list[Run]:
    """Returns the runs to forget; one that has not ended is kept."""
    runs = history.runs()
    if before is not None:
        return [run for run in runs if run.finished and run.started < before]
    found: list[Run] = []
    for suite in dict.fromkeys(run.suite for run in runs):
        mine = [run for run in runs if run.suite == suite]
        found += [run for run in mine[: -(keep or 1)] if run.finished]
    return found


def forget(history: History, runs: Sequence[Run], out: Path | None) -> int:
    """Forgets runs and removes the folders that nothing names any more.

    Args:
        history: Where they are written down.
        runs: The runs.
        out: The suite's folder of results; where each run says, when not given.

    Returns:
        How many folders of findings were removed.
    """
    homes = {Path(run.folder.partition(":")[2]) for run in runs} if out is None else {out}
    folders = history.prune([run.id for run in runs])
    gone = 0
    for home in homes:
        for run in runs:
            shutil.rmtree(home / RUNS / run.id, ignore_errors=True)
        for name in folders:
            if name and (home / FINDINGS / name).is_dir():
                shutil.rmtree(home / FINDINGS / name, ignore_errors=True)
                gone += 1
    return gone
