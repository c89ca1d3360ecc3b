"""The report in a terminal: plain text that fits its width, and the same with colours."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tapsect.escape import clean
from tapsect.finding import Finding
from tapsect.report.content import Style, sections

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["render", "render_text"]

_LABEL = 10
_COLOURS = {"agrees": "bold green", "diverges": "bold red", "inconclusive": "bold yellow"}


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


def _lines(finding: Finding, folder: Path | None, width: int) -> list[tuple[str, str]]:
    style = Style(name=lambda text: f"'{clean(text)}'", text=clean)
    verdict = finding.status.upper() + "  "
    found = _wrapped(verdict, clean(finding.message, limit=2000), width, indent=len(verdict))
    for section in sections(finding, style, folder):
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
