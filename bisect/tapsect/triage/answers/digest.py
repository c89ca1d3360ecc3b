"""A run as a few lines of Markdown for a chat."""

from __future__ import annotations

from tapsect.escape import code, md
from tapsect.triage.answers.plain import counted, first_since, headline
from tapsect.triage.summary import Group, Summary

__all__ = ["render_digest"]

_LISTED = 10
_QUIET = frozenset({"known", "expected"})


def render_digest(summary: Summary) -> str:
    """Returns the digest: a headline, then a line a fault that is news."""
    lines = [f"**{md(headline(summary))}**", ""]
    told = [group for group in summary.groups if group.state not in _QUIET]
    lines += [_line(group) for group in told[:_LISTED]]
    if len(told) > _LISTED:
        lines.append(f"- … and {len(told) - _LISTED} more faults")
    fixed = [row.entry for row in summary.rows if row.state == "fixed"]
    if fixed:
        more = f" and {len(fixed) - _LISTED} more" if len(fixed) > _LISTED else ""
        lines.append(f"- fixed: {', '.join(code(name) for name in fixed[:_LISTED])}{more}")
    quiet = sum(group.state in _QUIET for group in summary.groups)
    if quiet:
        lines.append(f"- {counted(quiet, 'fault')} as before")
    return "\n".join(lines) + "\n"


def _line(group: Group) -> str:
    if not group.rows:
        return f"- **gone**: {md(group.words)}"
    names = ", ".join(code(row.entry) for row in group.rows[:3])
    more = f" and {len(group.rows) - 3} more" if len(group.rows) > 3 else ""
    line = f"- **{group.state}**: {md(group.words)}; hits {names}{more}"
    since = first_since(group)
    if since is not None and since.differs:
        line += f"; since then changed: {', '.join(code(d) for d in since.differs[:3])}"
    return line
