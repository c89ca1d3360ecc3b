"""What the page's pictures share: a figure without a background, colours, words for a tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tapsect.escape import clean
from tapsect.report.words import number
from tapsect.traced import Point

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

__all__ = ["COLOURS", "blank", "legend_above", "point_text", "state_of"]

# Colours of Okabe and Ito, told apart with every kind of colour blindness; each also has a marker
# or a line style of its own.
COLOURS = {"introduced": "#D55E00", "inherited": "#2F87C9", "floor": "#009E73"}


def blank(**more: Any) -> Figure:
    """Returns an empty figure that lets the page's own background through."""
    from bokeh.plotting import figure

    made = figure(
        sizing_mode="stretch_width", background_fill_color=None, border_fill_color=None,
        outline_line_color=None, min_border_left=4, min_border_right=4, **more,
    )  # fmt: skip
    made.toolbar.logo = None
    return made


def legend_above(plot: Figure, columns: int) -> None:
    """Moves the legend out of the picture."""
    legend = plot.legend[0]
    legend.orientation, legend.ncols = "horizontal", columns
    legend.background_fill_alpha = legend.border_line_alpha = 0.0
    plot.add_layout(legend, "above")


def state_of(point: Point | None) -> str:
    """Returns how a tensor was judged, in words."""
    if point is None or point.kind == "not_judged" or point.ratio is None:
        return "not judged"
    if point.kind != "ok":
        return "beyond rounding"
    return "near the limit" if point.ratio > (point.limit or math.inf) / 4 else "within rounding"


def point_text(point: Point) -> str:
    """Returns what is known of one tensor, in one line."""
    shape = ", ".join(map(str, point.shape))
    parts = [f"{clean(point.dtype)} [{shape}]"]
    for words, value in (
        ("introduced", point.introduced),
        ("inherited", point.inherited),
        ("floor", point.floor),
        ("ratio", point.ratio),
    ):
        if value is not None:
            parts.append(f"{words} {number(value)}")
    if point.low is not None and point.high is not None:
        parts.append(f"values {number(point.low)} to {number(point.high)}")
    if point.kind != "ok":
        parts.append(clean(point.kind.replace("_", " ")))
    return "; ".join(parts)
