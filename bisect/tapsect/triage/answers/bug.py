"""One bug report a fault, not one a model: whom it hits, since when, and one case of it in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapsect.escape import code, md
from tapsect.finding import Finding
from tapsect.report import render_markdown
from tapsect.triage.answers.plain import counted, since_words
from tapsect.triage.summary import Group

__all__ = ["render_bug"]

_LISTED = 30


def render_bug(group: Group, result: Mapping[str, Any] | None, *, root: str) -> str:
    """Returns the report as Markdown.

    Args:
        group: The fault; its first entry is the one that is shown.
        result: The ``result.json`` of that entry; ``None`` when it could not be judged.
        root: The way from the report to the folder of all findings.
    """
    shown = group.rows[0]
    lines = [
        f"# {md(group.words)}", "",
        f"Hits {counted(len(group.rows), 'entry')}; signature `{group.digest}`.", "",
        *(f"- {code(row.entry)}" for row in group.rows[:_LISTED]),
    ]  # fmt: skip
    if len(group.rows) > _LISTED:
        lines.append(f"- … and {len(group.rows) - _LISTED} more")
    lines += ["", "## Since when", "", *(f"- {md(line)}" for line in since_words(shown)), ""]
    lines += [md(group.proof), ""] if group.proof else []
    lines += [f"## The case of {code(shown.entry)}", ""]
    if result is None:
        return "\n".join([*lines, md(shown.message), ""])
    finding = Finding.from_json(result)
    if finding.minimal is not None:
        lines += [f"The smallest failing case is in {code(root + shown.folder + '/case')}.", ""]
    report = render_markdown(finding).replace("\n## ", "\n#### ")
    return "\n".join([*lines, report.replace("# ", "### ", 1)])
