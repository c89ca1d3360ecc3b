"""The index of a suite as one HTML file: no network, no script; its links lead to the findings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tapsect.escape import clean
from tapsect.triage.answers.plain import headline, since_words
from tapsect.triage.states import STATES
from tapsect.triage.summary import Night, Summary

__all__ = ["render_page"]

_HERE = Path(__file__).parent
_WIDTH, _HEIGHT = 14, 120


def render_page(summary: Summary, linked: Mapping[str, str], *, root: str) -> str:
    """Returns the page.

    Args:
        summary: What a run saw.
        linked: The report of each finding by its folder, below the folder of all findings.
        root: The way from the page to the suite's folder of results.
    """
    import jinja2

    loader = jinja2.FileSystemLoader(_HERE)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["clean"] = lambda text: clean(str(text), limit=1000)
    page: str = environment.get_template("page.html").render(
        summary=summary, headline=headline(summary), root=root, since=since_words,
        links={folder: f"{root}findings/{path}" for folder, path in linked.items() if path},
        bars=_bars(summary), states=STATES, width=_WIDTH, height=_HEIGHT,
    )  # fmt: skip
    return page


def _bars(summary: Summary) -> list[dict[str, Any]]:
    """Returns the trend as stacked bars: one a run, the worst state at the bottom."""
    most = max((sum(night.counts.values()) for night in summary.trend), default=0) or 1
    return [
        {"x": n * _WIDTH, "title": _title(night), "parts": _parts(night, most)}
        for n, night in enumerate(summary.trend)
    ]


def _title(night: Night) -> str:
    told = ", ".join(f"{night.counts[s]} {s}" for s in STATES if night.counts.get(s))
    return f"{night.when:%Y-%m-%d %H:%M}: {told or 'nothing'}"


def _parts(night: Night, most: int) -> list[dict[str, Any]]:
    parts, below = [], 0.0
    for state in STATES:
        tall = _HEIGHT * night.counts.get(state, 0) / most
        below += tall
        if tall:
            parts.append({"state": state, "y": round(_HEIGHT - below, 2), "height": round(tall, 2)})
    return parts
