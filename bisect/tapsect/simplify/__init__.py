"""The plainest model that still fails: sizes, values, bodies, names.

The same driver as for parts of a graph (``tapsect.reduction``), over whole small models.  A pass is
one file here and one row of ``TABLE``; what the driver relies on stands in
``tapsect.reduction.passes``.  Every pass here only beautifies: it may be stopped at any question.
"""

from __future__ import annotations

from tapsect.reduction import Pass
from tapsect.simplify.drop_unused import drop_unused
from tapsect.simplify.fold_constants import DEFAULT_THRESHOLD, fold_constants
from tapsect.simplify.problem import Simplification, elements, nearest_passing
from tapsect.simplify.short_names import short_names
from tapsect.simplify.shrink_axes import shrink_axes
from tapsect.simplify.shrink_bodies import shrink_bodies
from tapsect.simplify.shrink_kernels import shrink_kernels
from tapsect.simplify.shrink_shapes import shrink_shapes
from tapsect.simplify.simplify_data import simplify_constants, simplify_inputs
from tapsect.simplify.specimen import Specimen, TooLarge, specimen, whole
from tapsect.simplify.strip_metadata import strip_metadata

__all__ = [
    "DEFAULT_THRESHOLD",
    "ON_REQUEST",
    "TABLE",
    "Simplification",
    "Specimen",
    "TooLarge",
    "elements",
    "nearest_passing",
    "specimen",
    "table",
    "whole",
]


def table(fold_threshold: int = DEFAULT_THRESHOLD) -> tuple[Pass, ...]:
    """Returns the passes in the order in which they run.

    What takes most away comes first; sizes before values, since fewer values are asked faster.

    Args:
        fold_threshold: Bytes that a folded constant may have.
    """
    fold = fold_constants(fold_threshold)
    return (
        Pass("drop-unused", "drop outputs, inputs nobody reads", drop_unused, "beautify"),
        Pass("fold-constants", "fold what derives from constants", fold, "beautify"),
        Pass("shrink-bodies", "reduce inside If, Loop, functions", shrink_bodies, "beautify"),
        Pass("shrink-shapes", "smaller sizes, equal ones at once", shrink_shapes, "beautify"),
        Pass("shrink-kernels", "smaller windows of Conv and pooling", shrink_kernels, "beautify"),
        Pass("shrink-axes", "batch, channels, length by themselves", shrink_axes, "beautify"),
        Pass("simplify-constants", "zeros, ones, few values", simplify_constants, "beautify"),
        Pass("simplify-inputs", "the same for what is fed", simplify_inputs, "beautify"),
        Pass("strip-metadata", "documentation, origin, imports", strip_metadata, "beautify"),
    )


TABLE = table()

ON_REQUEST: tuple[Pass, ...] = (
    Pass("short-names", "rename nodes and tensors", short_names, "beautify"),
)
"""Passes that run only when they are named."""
