"""What a run saw, as frozen data: everything an answer needs, and nothing of databases."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tapsect.triage.history import History
from tapsect.triage.records import Run
from tapsect.triage.since import Look, Since
from tapsect.triage.states import NEWS, STATES
from tapsect.triage.tables import observations

__all__ = ["Group", "Night", "Row", "Summary", "summarise"]

TREND = 30


@dataclass(frozen=True, slots=True)
class Row:
    """What a run saw of one entry; ``folder`` holds the finding, empty when there is none."""

    entry: str
    state: str
    note: str
    rate: float | None
    message: str
    signature: str | None
    folder: str
    finding: str
    cached: bool
    seconds: float
    builds: int
    since: Since | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One fault and the entries it hits in this run.

    Attributes:
        digest, words: Its signature.
        state: The worst of its entries', or ``fixed`` when it hits none any more.
        first_run, first_seen: When any entry showed it first.
        rows: The entries.
        fresh: Whether no earlier run has seen it.
        hits: How many entries it hit in each run of the trend.
        proof: Which release of the engine brought it, where that was tried; else empty.
    """

    digest: str
    words: str
    state: str
    first_run: str
    first_seen: dt.datetime
    rows: tuple[Row, ...]
    fresh: bool
    hits: tuple[int, ...] = ()
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Night:
    """One run of the trend and how many entries had each state."""

    run: str
    when: dt.datetime
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run, whole.

    Attributes:
        suite: Its name.
        run: The run.
        rows: All entries, those to be read first.
        groups: Faults, those to be read first.
        trend: The last runs, this one last.
    """

    suite: str
    run: Run
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    trend: tuple[Night, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Returns how many entries have each state; states that none has are left out."""
        found = Counter(row.state for row in self.rows)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def exit_code(self) -> int:
        """Returns 1 when something is new or regressed, else 0."""
        return int(any(row.state in NEWS for row in self.rows))

    @property
    def seconds(self) -> float:
        """Returns what the looks of this run cost; cached ones cost nothing."""
        return sum(row.seconds for row in self.rows if not row.cached)


def summarise(history: History, run: Run) -> Summary:
    """Returns what a run saw."""
    mine = history.observed(observations.c.run == run.id)
    looks = _looks(history, run, mine)
    rows = [_row(each, looks) for each in mine]
    rows.sort(key=lambda r: (STATES.index(r.state), r.entry))
    trend, hits = _trend(history, run)
    digests = {r.signature for r in rows if r.signature} | _gone(history, run, rows)
    told = history.signatures(digests)
    groups = [_group(told[d], rows, run, hits) for d in digests]
    groups.sort(key=lambda g: (STATES.index(g.state), -len(g.rows), g.digest))
    return Summary(run.suite, run, tuple(rows), tuple(groups), tuple(trend))


def _row(row: Any, looks: Mapping[tuple[str, str], Look]) -> Row:
    since = None
    if row.signature is not None:
        since = Since(looks.get((row.good, row.entry)), looks.get((row.bad, row.entry)))
    return Row(
        row.entry, row.state, row.note, row.rate, row.message, row.signature, row.folder,
        row.finding, row.cached, row.seconds, row.builds, since,
    )  # fmt: skip


def _looks(history: History, run: Run, mine: Sequence[Any]) -> dict[tuple[str, str], Look]:
    """Returns the looks between which entries began to fail."""
    failing = [row for row in mine if row.signature is not None]
    ids = {r for row in failing for r in (row.good, row.bad) if r is not None} - {run.id}
    found = {(run.id, row.entry): Look(run.id, row.started, row.facts) for row in failing}
    if ids:
        wanted = {(r, row.entry) for row in failing for r in (row.good, row.bad)}
        for row in history.observed(observations.c.run.in_(ids)):
            if (row.run, row.entry) in wanted:
                found[row.run, row.entry] = Look(row.run, row.started, row.facts)
    return found


def _trend(history: History, run: Run) -> tuple[list[Night], list[tuple[str, Counter[str]]]]:
    """Returns the last runs up to this one, and how many entries each fault hit in each."""
    before = [r for r in history.runs(run.suite) if r.started <= run.started][-TREND:]
    counts: dict[str, Counter[str]] = {r.id: Counter() for r in before}
    hits: dict[str, Counter[str]] = {r.id: Counter() for r in before}
    for row in history.tallies(counts):
        counts[row.run][row.state] += row.count
        if row.signature is not None:
            hits[row.run][row.signature] += row.count
    nights = [Night(r.id, r.started, dict(counts[r.id])) for r in before]
    return nights, [(r.id, hits[r.id]) for r in before]


def _gone(history: History, run: Run, rows: Collection[Row]) -> set[str]:
    """Returns faults of entries that were fixed and that no entry of the suite shows any more."""
    fixed = {row.entry for row in rows if row.state == "fixed"}
    if not fixed:
        return set()
    before, now = set(), set()
    for entry, past in history.past(run.suite).items():
        mine = next((n for n, look in enumerate(past.looks) if look.run == run.id), None)
        if mine is not None:
            now.add(past.looks[mine].signature)
        elif past.looks:  # it was not looked at in this run
            now.add(past.looks[-1].signature)
        if entry in fixed and mine:
            before.add(past.looks[mine - 1].signature)
    return {signature for signature in before - now if signature is not None}


def _group(
    told: Any, rows: Sequence[Row], run: Run, hits: Sequence[tuple[str, Counter[str]]]
) -> Group:
    mine = tuple(row for row in rows if row.signature == told.digest)
    state = min((row.state for row in mine), key=STATES.index, default="fixed")
    return Group(
        told.digest, told.words, state, told.first_run, told.first_seen, mine,
        told.first_run == run.id, tuple(count[told.digest] for _, count in hits),
        told.proof or "",
    )  # fmt: skip
