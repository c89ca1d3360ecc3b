"""A finding as text, page, bug report, bundle and for build servers; and its files on disk.

Each form is made from the finding and the data files that lie beside it, and nothing else::

    finding ─┬─ content, tables, words ─┬─ terminal
             │                          ├─ markdown ── ownrun (commands without this tool)
             │                          └─ page ── charts, graphs ── neighbourhood
             ├─ ci                          JUnit, JSON Lines
             └─ bundle ── redact, redact_model
"""

from __future__ import annotations

from pathlib import Path

from debugtaps import write_json_atomic, write_text_atomic
from tapsect.finding import Finding
from tapsect.folder import MARKDOWN, PAGE, RESULT
from tapsect.report.ci import render_jsonl, render_junit
from tapsect.report.forms import Form, Made, make
from tapsect.report.markdown import render_markdown
from tapsect.report.page import check_page
from tapsect.report.reading import read_result
from tapsect.report.terminal import render, render_brief, render_text, wrapped

__all__ = [
    "Form",
    "Made",
    "check_page",
    "make",
    "read_result",
    "render",
    "render_brief",
    "render_jsonl",
    "render_junit",
    "render_markdown",
    "render_text",
    "wrapped",
    "write_page",
    "write_reports",
]


def write_reports(folder: Path, finding: Finding) -> None:
    """Writes ``result.json`` and ``report.md`` into ``folder``."""
    from tapsect.report.ownrun import case_facts

    write_json_atomic(folder / RESULT, finding.to_json())
    case = case_facts(folder) if finding.minimal is not None else None
    write_text_atomic(folder / MARKDOWN, render_markdown(finding, case=case))


def write_page(folder: Path, finding: Finding) -> Path:
    """Returns ``report.html`` in ``folder`` after writing it.

    Raises:
        MissingPackage: The extra ``report`` is not installed.
    """
    path = folder / PAGE
    make(finding, folder, "html").write(path)
    return path
