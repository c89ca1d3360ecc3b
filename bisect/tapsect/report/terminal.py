"""The report in a terminal: plain text that fits its width, and the same with colours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tapsect.escape import clean
from tapsect.finding import Finding
from tapsect.report.content import Style, sections

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["render", "render_brief", "render_text", "wrapped"]

_LABEL = 10
_BRIEF = ("Where", "How sure", "Cause", "Cost")
_COLOURS = {"agrees": "bold green", "diverges": "bold red", "inconclusive": "bold yellow"}


def render_brief(finding: Finding, *, width: int = 80) -> str:
    """Returns the answer, the place, the proof and the cost alone."""
    shown = _lines(finding, None, width, only=_BRIEF, gaps=False)
    return "\n".join(label + text for label, text in shown) + "\n"


def wrapped(text: str, *, label: str = "", width: int = 80) -> str:
    """Returns a paragraph, its first line behind a label in the column that reports have."""
    indent = _LABEL if label else 0
    lines = _wrapped(label.ljust(indent), clean(text, limit=4000), width, indent=indent)
    return "\n".join(lead + line for lead, line in lines)


def render_text(finding: Finding, *, folder: Path | None = None, width: int = 80) -> str:
    """Returns the report as plain text, no line longer than ``width`` unless a name is."""
    return "\n".join(label + text for label, text in _lines(finding, folder, width)) + "\n"


def render(finding: Finding, *, folder: Path | None = None, width: int = 80) -> Text:
    """Returns the same text for ``rich``; nothing in it is read as markup."""
    from rich.text import Text

    text = Text()
    for number, (label, line) in enumerate(_lines(finding, folder, width)):
        text.append(label, _COLOURS[finding.status] if number == 0 else "bold")
        text.append(line + "\n")
    return text


def _lines(
    finding: Finding,
    folder: Path | None,
    width: int,
    *,
    only: Sequence[str] = (),
    gaps: bool = True,
) -> list[tuple[str, str]]:
    style = Style(name=lambda text: f"'{clean(text)}'", text=clean)
    verdict = finding.status.upper() + "  "
    found = _wrapped(verdict, clean(finding.message, limit=2000), width, indent=len(verdict))
    for section in sections(finding, style, folder):
        if only and section.title not in only:
            continue
        if gaps:
            found.append(("", ""))
        label = section.title.ljust(_LABEL)
        for line in section.lines:
            found += _wrapped(label, line, width, indent=_LABEL)
            label = " " * _LABEL
    return found


def _wrapped(label: str, line: str, width: int, *, indent: int) -> list[tuple[str, str]]:
    pieces = textwrap.wrap(
        line, max(20, width - indent), break_long_words=False, break_on_hyphens=False
    ) or [""]
    blank = " " * indent
    return [(label if i == 0 else blank, piece) for i, piece in enumerate(pieces)]
