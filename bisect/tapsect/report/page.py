"""The report as one HTML file that needs nothing else, no network, and runs no script but its own.

The page forbids itself everything by its content security policy: what may run is named by its
hash, so that no text of a model can, and nothing may be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debugtaps import MissingPackage
from tapsect.escape import clean
from tapsect.finding import Finding
from tapsect.folder import CASE
from tapsect.report import tables
from tapsect.report.content import Style, sections
from tapsect.report.words import number
from tapsect.traced import Culprit, Profile

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["INSTALL", "MOST_BYTES", "check_page", "missing_package", "render_page"]

INSTALL = "pip install 'tapsect[report]'"
MOST_BYTES = 3_000_000
MOST_POINTS = 4000
_SUMMARY = ("Where", "How sure", "Cause", "It says", "Next")
_HERE = Path(__file__).parent


def missing_package() -> str | None:
    """Returns a package that the page needs and that is not here; loads none of them."""
    return next((name for name in ("bokeh", "jinja2") if find_spec(name) is None), None)


def check_page() -> None:
    """Checks that the page can be made here.

    Raises:
        MissingPackage: A package of the extra ``report`` is not installed.
    """
    missing = missing_package()
    if missing is not None:
        raise MissingPackage(
            f"The page needs the package '{missing}', which is not installed; {INSTALL}."
        )


def render_page(
    finding: Finding, profile: Profile | None = None, *, folder: Path | None = None
) -> str:
    """Returns the page.

    Args:
        finding: The result.
        profile: What there is to draw; a page without pictures when None.
        folder: Where the result lies, for the commands that are proposed.

    Raises:
        MissingPackage: A package of the extra ``report`` is not installed.
    """
    check_page()
    points = MOST_POINTS
    while True:
        page = _rendered(finding, profile, folder or Path(), points)
        if len(page.encode()) < MOST_BYTES or points < 100:
            return page
        points //= 2


def _rendered(finding: Finding, profile: Profile | None, folder: Path, points: int) -> str:
    style, drawn = _style(), _drawn(finding, profile, points)
    said = sections(finding, style, folder)
    facts = {
        "finding": finding,
        "title": f"{finding.status}: {clean(finding.message, limit=160)}",
        "message": clean(finding.message, limit=2000),
        "subtitle": _subtitle(finding),
        "summary": [_marked(s) for s in said if s.title in _SUMMARY],
        "rest": [_marked(s) for s in said if s.title not in _SUMMARY],
        "pictures": drawn.divs, "omitted": drawn.omitted, "without": _without(finding, profile),
        "names": drawn.names,
        "culprit": _values(profile.culprit) if profile and profile.culprit else None,
        "tables": [_marked_table(t) for t in _tables(finding, style) if t],
        "commands": _commands(finding, folder),
        "css": _text("page.css"), "scripts": drawn.scripts, "policy": _policy(drawn.scripts),
    }  # fmt: skip
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_HERE)
    engine = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    page: str = engine.get_template("page.html").render(facts)
    return page


# ---------------------------------------------------------------------------------------- words


def _style() -> Style:
    from markupsafe import escape

    return Style(
        name=lambda text: f"<code>{escape(clean(text))}</code>",
        text=lambda text: str(escape(clean(text, limit=2000))),
    )


def _marked(section: Any) -> Mapping[str, Any]:
    """Returns a section whose lines the style has escaped."""
    from markupsafe import Markup

    return {"title": section.title, "lines": [Markup(line) for line in section.lines]}


def _marked_table(table: tables.Table) -> Mapping[str, Any]:
    from markupsafe import Markup

    rows = [[Markup(cell) for cell in row] for row in table.rows]
    return {"title": table.title, "head": table.head, "rows": rows}


def _tables(finding: Finding, style: Style) -> Sequence[tables.Table]:
    return (
        tables.fixes(finding, style), tables.outputs(finding, style, most=200),
        tables.trail(finding, style, most=200), tables.facts(finding, style),
    )  # fmt: skip


def _subtitle(finding: Finding) -> str:
    parts = [
        clean(str(finding.engine.get("spec", "")), limit=80),
        clean(Path(str(finding.model.get("path", ""))).name, limit=80),
        clean(f"{finding.model['nodes']} nodes", limit=40) if "nodes" in finding.model else "",
    ]
    return " · ".join(part for part in parts if part)


def _without(finding: Finding, profile: Profile | None) -> str:
    if profile is not None and profile.operators:
        return ""
    if finding.status == "agrees":
        return "There is no picture: nothing failed, so no inner tensor was looked at."
    return "There is no picture: the folder holds no profile.json, or it is of a very large model."


def _values(culprit: Culprit) -> Mapping[str, Any]:
    seen = "as a tapped build had them" if culprit.source == "tapped" else "as the case gives them"
    words = f"{culprit.differing} of {culprit.elements} elements differ, {seen}"
    errors = ", ".join(f"{n} at 1e{d}" for d, n in reversed(culprit.errors[-8:]))
    worst = [
        (str(list(e.index)), f"{e.engine:.6g}", f"{e.expected:.6g}", number(e.engine - e.expected))
        for e in culprit.worst
    ]
    return {
        "tensor": clean(culprit.tensor), "words": words, "errors": errors, "worst": worst,
    }  # fmt: skip


def _commands(finding: Finding, folder: Path) -> list[tuple[str, str]]:
    place = shlex.quote(clean(str(folder)))
    found = []
    if finding.minimal is not None:
        check = shlex.quote(clean(str(folder / CASE / "check.py")))
        found.append(("See the bug alone; exit status 1 while it is there:", f"python {check}"))
    found += [
        (
            "Hand it to somebody: case and report in one file, names and weights replaced on"
            " request:",
            f"tapsect report {place} --format zip [--redact]",
        ),
        ("A text for a bug tracker:", f"tapsect report {place} --format markdown"),
    ]
    if finding.command:
        found.append(("Make this diagnosis again:", clean(shlex.join(finding.command), limit=4000)))
    return found


# ------------------------------------------------------------------------------- pictures, scripts


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Pictures as empty places by name, the scripts that fill them, and what can be searched."""

    divs: Mapping[str, Markup | None] = field(
        default_factory=lambda: dict.fromkeys(("along", "graph", "histogram"))
    )
    scripts: Sequence[Markup] = ()
    names: Markup | None = None
    omitted: int = 0


def _drawn(finding: Finding, profile: Profile | None, most: int) -> _Drawn:
    if profile is None or not profile.operators:
        return _Drawn()
    from bokeh.embed import components
    from markupsafe import Markup

    from tapsect.report.charts import along, histogram
    from tapsect.report.graphs import graph
    from tapsect.report.neighbourhood import neighbourhood

    place = {each.name: n for n, each in enumerate(profile.operators)}
    first = finding.first_divergence
    wanted = [*([first.node] if first else ()), *finding.culprit_nodes]
    culprits = list(dict.fromkeys(place[n] for n in wanted if n in place))
    shown = _shown(profile, culprits, most)
    drawing = neighbourhood(profile.operators, culprits)
    made: dict[str, Any] = {"graph": graph(profile, drawing, culprits)}
    if shown:
        made["along"] = along(profile, shown, culprits)
    values = histogram(profile.culprit) if profile.culprit else None
    if values is not None:
        made["histogram"] = values
    script, divs = components(made, wrap_script=False)
    point_of: dict[int, int] = {}
    for at, number_ in enumerate(shown):
        point_of.setdefault(profile.points[number_].node, at)
    names = [
        [clean(o.name, limit=100), drawing.home[n], point_of.get(n, -1)]
        for n, o in enumerate(profile.operators)
    ]
    return _Drawn(
        {k: Markup(divs[k]) if k in divs else None for k in ("along", "graph", "histogram")},
        [Markup(s) for s in (_bokeh(), script, _text("page.js"))],
        Markup(json.dumps(names, separators=(",", ":")).replace("<", "\\u003c")),
        len(profile.points) - len(shown),
    )  # fmt: skip


def _shown(profile: Profile, culprits: Sequence[int], most: int) -> list[int]:
    """Returns the points that are drawn: all, or else the culprits' and the largest ratios."""
    points = profile.points
    if len(points) <= most:
        return list(range(len(points)))
    order = sorted(
        range(len(points)),
        key=lambda i: (
            points[i].node not in culprits, points[i].inherited is None,
            -(points[i].ratio or 0.0), i,
        ),
    )  # fmt: skip
    return sorted(order[:most])


@cache
def _text(name: str) -> Markup:
    from markupsafe import Markup

    return Markup((_HERE / name).read_text(encoding="utf-8"))


def _bokeh() -> str:
    """Returns the one script of Bokeh that the pictures need."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], minified=True).js_raw)


def _policy(scripts: Sequence[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
        " blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
