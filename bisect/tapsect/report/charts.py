"""The pictures of numbers: the error along the model, and the values of the place.

Bokeh draws them.  What a reader may point at stands in the columns of the source ``points``;
``page.js`` knows it by this name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from tapsect.escape import clean
from tapsect.report.pictures import COLOURS, blank, legend_above, point_text, state_of
from tapsect.traced import Culprit, Point, Profile

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

__all__ = ["along", "histogram"]


def along(profile: Profile, shown: Sequence[int], culprits: Collection[int]) -> Figure:
    """Returns introduced and inherited error and the floor of each tensor, in model order.

    Args:
        profile: What was measured.
        shown: Which of its points are drawn.
        culprits: Numbers of the operators at fault.
    """
    from bokeh.models import ColumnDataSource, HoverTool

    points = [profile.points[i] for i in shown]
    known = [v for p in points for v in (p.introduced, p.inherited, p.floor) if _positive(v)]
    low, high = min(known, default=1e-9) / 4, max(known, default=1.0) * 4
    plot = blank(
        height=340, y_axis_type="log", y_range=(low / 1.5, high * 1.5), name="along",
        tools="pan,xwheel_zoom,xbox_zoom,tap,reset,save", x_axis_label="node, in model order",
        y_axis_label="error (rms, relative)",
    )  # fmt: skip
    source = ColumnDataSource(_columns(profile, points, culprits, low, high), name="points")
    for key, dash, legend in (
        ("floor", "dotted", "rounding floor"),
        ("inherited", "dashed", "inherited (propagated)"),
    ):
        drawn = [(p.node, v) for p in points if _positive(v := getattr(p, key))]
        if drawn:
            xs, ys = zip(*drawn, strict=True)
            plot.line(xs, ys, color=COLOURS[key], line_dash=dash, line_width=2, legend_label=legend)
    marks = plot.scatter(
        "x", "y", source=source, marker="marker", size="size", fill_color=COLOURS["introduced"],
        line_color=COLOURS["introduced"], alpha="alpha", legend_label="introduced",
        nonselection_alpha=0.5, selection_line_width=3,
    )  # fmt: skip
    tips = [("tensor", "@tensor"), ("node", "@node"), ("", "@text")]
    plot.add_tools(HoverTool(renderers=[marks], tooltips=tips))
    legend_above(plot, 2)
    return plot


def _columns(
    profile: Profile, points: Sequence[Point], culprits: Collection[int], low: float, high: float
) -> Mapping[str, list[Any]]:
    def height(point: Point) -> float:
        if point.introduced is not None and math.isfinite(point.introduced):
            return max(point.introduced, low)
        return high if point.kind not in ("ok", "not_judged") else low

    operators = profile.operators
    at_fault = [p.node in culprits for p in points]
    return {
        "x": [p.node for p in points],
        "y": [height(p) for p in points],
        "marker": [
            "star" if f else ("circle" if state_of(p) != "beyond rounding" else "triangle")
            for p, f in zip(points, at_fault, strict=True)
        ],
        "size": [16 if f else 6 for f in at_fault],
        "alpha": [0.15 if not p.introduced and p.kind == "ok" else 0.9 for p in points],
        "tensor": [clean(p.tensor, limit=120) for p in points],
        "node": [
            f"{clean(operators[p.node].name, limit=120)} ({clean(operators[p.node].op)})"
            for p in points
        ],
        "text": [point_text(p) for p in points],
    }


def _positive(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value > 0


def histogram(culprit: Culprit) -> Figure | None:
    """Returns how the values of the place are spread, engine against reference."""
    if not culprit.edges:
        return None
    plot = blank(
        height=260, tools="pan,xwheel_zoom,reset,save", x_axis_label="value",
        y_axis_label="elements", name="histogram",
    )  # fmt: skip
    left, right = culprit.edges[:-1], culprit.edges[1:]
    plot.quad(
        left=left, right=right, bottom=0, top=culprit.expected, fill_alpha=0.45,
        color=COLOURS["inherited"], legend_label="expected",
    )  # fmt: skip
    plot.step(
        left, culprit.engine, mode="after", color=COLOURS["introduced"], line_width=2,
        legend_label="engine",
    )  # fmt: skip
    legend_above(plot, 2)
    plot.y_range.start = 0
    return plot
