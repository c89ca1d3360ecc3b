"""The picture of the graph around the place: what was judged how, tapped, fused, folded.

What a reader may point at or search for stands in the columns of the source ``nodes``;
``page.js`` knows it by this name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tapsect.escape import clean
from tapsect.report.neighbourhood import Drawing
from tapsect.report.pictures import blank, legend_above, point_text, state_of
from tapsect.traced import Point, Profile

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

__all__ = ["graph"]

_STATES = {
    "within rounding": "#7FB8E0",
    "near the limit": "#E6C229",
    "beyond rounding": "#D55E00",
    "not judged": "#9A9A9A",
}
_MATH = re.compile(r"\$(?=\$)|\\(?=[\[(])")
_VIEW = 6.0
"""Layers shown above and below the place at first."""
_WHOLE = 18.0
"""Layers of a graph that is shown whole."""


def graph(profile: Profile, drawing: Drawing, culprits: Collection[int]) -> Figure:
    """Returns the drawn graph: the first of ``culprits`` in the middle.

    Args:
        profile: Operators and what was measured of them.
        drawing: What is drawn, and where.
        culprits: Numbers of the operators at fault.
    """
    from bokeh.models import ColumnDataSource, HoverTool, TapTool

    x, y = zip(*drawing.places, strict=True)
    centre = drawing.home[next(iter(culprits), drawing.nodes[0])]
    wide = max(3.2, max(map(abs, x)) + 1.0 if len(set(x)) < 8 else 4.0)
    plot = blank(
        height=560, name="graph", tools="pan,wheel_zoom,box_zoom,zoom_in,zoom_out,tap,reset,save",
        active_scroll=None, x_range=(x[centre] - wide, x[centre] + wide),
        y_range=_window(y, y[centre]),
    )  # fmt: skip
    plot.axis.visible = False
    plot.grid.visible = False
    _fused(plot, profile, drawing)
    plot.segment(
        [x[a] for a, _ in drawing.edges], [y[a] for a, _ in drawing.edges],
        [x[b] for _, b in drawing.edges], [y[b] for _, b in drawing.edges],
        color="#8A8A8A", line_width=1.5,
    )  # fmt: skip
    source = ColumnDataSource(_nodes(profile, drawing, culprits), name="nodes")
    _taps(plot, profile, drawing)
    marks = plot.scatter(
        "x", "y", source=source, marker="marker", size="size", fill_color="colour",
        line_color="#5A5A5A", legend_group="state", nonselection_alpha=1.0,
        selection_line_width=5,
    )  # fmt: skip
    plot.text(
        "x", "y", text="label", source=source, x_offset=16, y_offset=0, text_baseline="middle",
        text_font_size="11px", name="labels", nonselection_alpha=1.0, text_color="#777777",
    )  # fmt: skip
    plot.add_tools(
        HoverTool(renderers=[marks], tooltips=[("", "@name"), ("op", "@op"), ("", "@text")])
    )
    plot.select_one(TapTool).renderers = [marks]  # not the labels beside them
    legend_above(plot, 2)
    return plot


def _window(layers: Sequence[float], centre: float) -> tuple[float, float]:
    """Returns the layers shown at first: all, where they fit, else around the place.

    >>> _window([0.0, 1.0, 2.0], centre=2.0), _window([0.0, 20.0, 40.0], centre=40.0)
    ((-1.0, 3.0), (29.0, 41.0))
    """
    low, high = min(layers) - 1.0, max(layers) + 1.0
    if high - low <= _WHOLE:
        return low, high
    start = min(max(centre - _VIEW, low), high - 2 * _VIEW)  # nothing lies beyond the ends
    return start, start + 2 * _VIEW


def _label(text: str) -> str:
    """Returns a short label that nothing takes for a formula."""
    return _MATH.sub("\\g<0>\u2009", clean(text, limit=28))


def _nodes(
    profile: Profile, drawing: Drawing, culprits: Collection[int]
) -> Mapping[str, list[Any]]:
    operators, judged = profile.operators, _judged(profile)
    x, y = zip(*drawing.places, strict=True)
    found: dict[str, list[Any]] = {"x": list(x), "y": list(y)}

    def add(**row: Any) -> None:
        for key, value in row.items():
            found.setdefault(key, []).append(value)

    for node in drawing.nodes:
        each, point = operators[node], judged.get(node)
        state, fault = state_of(point), node in culprits
        add(
            number=node, name=clean(each.name, limit=120), op=clean(each.op, limit=60), state=state,
            label=_label(each.op), text=point_text(point) if point else "not tapped",
            colour=_STATES[state], size=28 if fault else 16,
            marker="star" if fault else ("diamond" if each.plugin else "circle"),
        )  # fmt: skip
    for fold in drawing.folds:
        worst = max((judged[n] for n in fold.nodes if n in judged), key=_rank, default=None)
        count = f"{len(fold.nodes)} node{'s' if len(fold.nodes) > 1 else ''}"
        add(
            number=-1, name=f"{count} {'before' if fold.before else 'beside or after'}", op="",
            state=state_of(worst), label=count, text="folded; the colour is that of the worst",
            colour=_STATES[state_of(worst)], marker="hex", size=24,
        )  # fmt: skip
    return found


def _judged(profile: Profile) -> dict[int, Point]:
    """Returns the worst point of each operator."""
    found: dict[int, Point] = {}
    for point in profile.points:
        if point.node not in found or _rank(point) > _rank(found[point.node]):
            found[point.node] = point
    return found


def _rank(point: Point) -> tuple[bool, float]:
    ratio = point.ratio or 0.0
    return point.kind not in ("ok", "not_judged"), math.inf if math.isnan(ratio) else ratio


def _fused(plot: Figure, profile: Profile, drawing: Drawing) -> None:
    """Lays a band under the nodes and edges of each kernel of several operators."""
    place, edges = drawing.places, set(drawing.edges)
    drawn = set(drawing.nodes)
    dots: list[tuple[float, float]] = []
    bands: list[tuple[int, int]] = []
    for group in profile.fused:
        held = {drawing.home[n] for n in group if n in drawn}
        if len(held) > 1:
            dots += [place[n] for n in held]
            bands += [(a, b) for a, b in edges if a in held and b in held]
    if not dots:
        return
    look = {"color": "#CC79A7", "alpha": 0.35, "legend_label": "one kernel"}
    plot.scatter([x for x, _ in dots], [y for _, y in dots], size=34, marker="square", **look)
    plot.segment(
        [place[a][0] for a, _ in bands], [place[a][1] for a, _ in bands],
        [place[b][0] for _, b in bands], [place[b][1] for _, b in bands], line_width=22, **look,
    )  # fmt: skip


def _taps(plot: Figure, profile: Profile, drawing: Drawing) -> None:
    """Marks below a node what was tapped, and where the replay began anew."""
    drawn = set(drawing.nodes)
    kinds: tuple[tuple[str, Callable[[Point], bool], str], ...] = (
        ("tap, cut for the replay", lambda p: p.cut, "dash"),
        ("tap", lambda p: not p.cut, "dot"),
    )
    for legend, asked, marker in kinds:
        held = {drawing.home[p.node] for p in profile.points if p.node in drawn and asked(p)}
        spots = [drawing.places[n] for n in sorted(held)]
        if spots:
            plot.scatter(
                [x for x, _ in spots], [y - 0.42 for _, y in spots], marker=marker, size=14,
                color="#8A8A8A", line_width=3, legend_label=legend,
            )  # fmt: skip
