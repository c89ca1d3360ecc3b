"""A run for a terminal: what is new first, what is as it was in one line."""

from __future__ import annotations

from collections.abc import Iterator

from tapsect.escape import clean
from tapsect.triage.answers.plain import counted, headline, since_words
from tapsect.triage.summary import Group, Row, Summary

__all__ = ["render_text"]

_LISTED = 8
_QUIET = frozenset({"known", "expected", "agrees"})


def render_text(summary: Summary, *, verbose: bool = False) -> str:
    """Returns the summary as text.

    Args:
        summary: What a run saw.
        verbose: Whether to list faults that are known or expected with their entries, too.
    """
    return "\n".join(clean(line, limit=1000) for line in _lines(summary, verbose=verbose))


def _lines(summary: Summary, *, verbose: bool) -> Iterator[str]:
    yield headline(summary)
    for group in summary.groups:
        if verbose or group.state not in _QUIET:
            yield ""
            yield from _group(group, summary)
    fixed = [row for row in summary.rows if row.state == "fixed"]
    flaky = [row for row in summary.rows if row.state == "flaky" and row.signature is None]
    for title, rows in (("fixed", fixed), ("flaky, agrees this time", flaky)):
        if rows:
            yield ""
            yield f"{title}: {', '.join(row.entry for row in rows[:_LISTED])}" + _more(rows)
    noted = [row for row in summary.rows if row.note and row.state == "agrees"]
    yield from (f"{row.entry}: {row.note}" for row in noted)
    looks = [row for row in summary.rows if not row.cached]
    yield ""
    yield (
        f"run {summary.run.id}: {counted(len(looks), 'look')}, {summary.seconds:.0f} s;"
        f" {len(summary.rows) - len(looks)} known from before"
    )


def _group(group: Group, summary: Summary) -> Iterator[str]:
    yield f"{group.state}: {group.words}"
    if not group.rows:
        yield f"  hits nothing any more (signature {group.digest})"
        return
    first = "first seen now" if group.fresh else f"first seen {group.first_seen:%Y-%m-%d}"
    yield f"  hits {counted(len(group.rows), 'entry')}; {first}; signature {group.digest}"
    for row in group.rows[:_LISTED]:
        yield f"  {row.state:9s} {row.entry}{_beside(row)}"
    if len(group.rows) > _LISTED:
        yield f"  … and {len(group.rows) - _LISTED} more"
    for line in (*since_words(group.rows[0]), group.proof):
        if line:
            yield f"    {line}"


def _beside(row: Row) -> str:
    rate = "" if row.rate is None else f", fails {row.rate:.0%} of the time"
    return (f"  ({row.note}{rate})" if row.note else "") + (
        f"  {row.message}" if row.message else ""
    )


def _more(rows: list[Row]) -> str:
    return f" … and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
