"""A summary as JSON data, and the words that several answers share."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from tapsect.triage.since import Since
from tapsect.triage.states import NEWS
from tapsect.triage.summary import Group, Row, Summary

__all__ = ["counted", "first_since", "headline", "since_words", "to_json"]

SCHEMA = 1


def to_json(summary: Summary) -> dict[str, Any]:
    """Returns the content of ``summary.json``."""
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "counts": summary.counts,
        "exit_code": summary.exit_code,
        "seconds": round(summary.seconds, 3),
        **_plain(summary),
    }
    for group in body["groups"]:  # the rows stand above, whole
        group["entries"] = [row["entry"] for row in group.pop("rows")]
    return body


def _plain(value: Any) -> Any:
    if isinstance(value, Since):
        return {
            "good": _plain(value.good), "bad": _plain(value.bad), "differs": list(value.differs),
        }  # fmt: skip
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value


def counted(number: int, word: str) -> str:
    """Returns ``1 entry``, ``2 entries``."""
    if number == 1:
        return f"1 {word}"
    return f"{number} {word[:-1]}ies" if word.endswith("y") else f"{number} {word}s"


def headline(summary: Summary) -> str:
    """Returns a run in one line: ``zoo: 2 new, 1 fixed; 27 agree, of 30 entries``."""
    counts = summary.counts
    told = [f"{n} {state}" for state, n in counts.items() if state != "agrees"]
    quiet = f"{counts.get('agrees', 0)} agree, of {counted(len(summary.rows), 'entry')}"
    return f"{summary.suite}: {', '.join(told) or 'nothing new'}; {quiet}"


def first_since(group: Group) -> Since | None:
    """Returns since when the entry that brings the news of a group fails."""
    news = [row for row in group.rows if row.state in NEWS] or list(group.rows)
    return next((row.since for row in news if row.since is not None), None)


def since_words(row: Row) -> list[str]:
    """Returns since when an entry fails, and what differs between the runs, a line each."""
    since = row.since
    if since is None or since.bad is None:
        return []
    bad = f"since {since.bad.when:%Y-%m-%d %H:%M} (run {since.bad.run})"
    if since.good is None:
        return [f"{bad}; no earlier run is known without it"]
    lines = [f"{bad}; last without it {since.good.when:%Y-%m-%d %H:%M} (run {since.good.run})"]
    return lines + (list(since.differs) or ["nothing that is known differs between the two"])
