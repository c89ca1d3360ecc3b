"""Values that are not smooth: when a differing index, integer or flag is explained by rounding.

An element that differs is explained when noise at twice the unit roundoff changes it too, or,
for an index that a search over values returns, when the value found there lies within two
floors of the winner.  At an exact tie of the unperturbed values the operator's definition
decides, not noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps import Node

__all__ = [
    "ROUNDERS",
    "SEARCHES",
    "differing",
    "index_explained",
    "index_tied",
    "tied",
    "unexplained",
]

Array = npt.NDArray[Any]

SEARCHES = frozenset({"ArgMax", "ArgMin", "TopK"})
"""Operators that return positions of values."""

ROUNDERS = frozenset({"Cast", "Ceil", "Floor", "QuantizeLinear", "Round"})
"""Operators that have ties or steps."""


def differing(ours: Array, theirs: Array) -> Array:
    """Returns the mask of elements that are not equal; shapes must be equal."""
    return np.asarray(ours != theirs)


def index_explained(node: Node, x: Array, floor: Array, ours: Array, theirs: Array) -> Array:
    """Returns which indices of a search lie within two floors of the reference's.

    Args:
        node: An ``ArgMax``, ``ArgMin`` or ``TopK``.
        x: The values it searched, without noise.
        floor: Their rounding floor, element by element.
        ours: Indices of the engine.
        theirs: Indices of the reference.
    """
    axis = _axis(node, x.ndim)
    a, b = (_keep(i, node, axis) for i in (ours, theirs))
    valid = (a >= -x.shape[axis]) & (a < x.shape[axis])
    safe = np.where(valid, a, 0)
    values = np.take_along_axis(x, safe, axis), np.take_along_axis(x, b, axis)
    allowed = 2.0 * np.maximum(
        np.take_along_axis(floor, safe, axis), np.take_along_axis(floor, b, axis)
    )
    gap = np.abs(values[0] - values[1])
    near = valid & (gap <= allowed) & (gap > 0)
    return np.asarray(near.reshape(ours.shape))


def index_tied(node: Node, x: Array, ours: Array, theirs: Array) -> Array:
    """Returns which indices of a search point at values that are exactly equal."""
    axis = _axis(node, x.ndim)
    a, b = (_keep(i, node, axis) for i in (ours, theirs))
    valid = (a >= -x.shape[axis]) & (a < x.shape[axis])
    values = np.take_along_axis(x, np.where(valid, a, 0), axis), np.take_along_axis(x, b, axis)
    return np.asarray((valid & (values[0] == values[1])).reshape(ours.shape))


def _orders(node: Node) -> bool:
    """Returns whether the operator's definition says which of two equal values comes first."""
    return (
        node.op != "TopK" or next((a.i for a in node.proto.attribute if a.name == "sorted"), 1) != 0
    )


def _axis(node: Node, rank: int) -> int:
    default = -1 if node.op == "TopK" else 0
    axis = next((int(a.i) for a in node.proto.attribute if a.name == "axis"), default)
    return axis % max(rank, 1)


def _keep(indices: Array, node: Node, axis: int) -> Array:
    """Returns indices with the searched axis in place, whatever ``keepdims`` says."""
    keep = next((int(a.i) for a in node.proto.attribute if a.name == "keepdims"), 1)
    whole = indices.astype(np.int64)
    return np.expand_dims(whole, axis) if node.op != "TopK" and not keep else whole


def tied(node: Node, x: Array, scale: Array | None) -> Array | None:
    """Returns where a rounding operator stands exactly at a tie or step, unperturbed.

    There a difference is the operator's own, since noise does not belong to the value: halves
    for ``Round`` and ``QuantizeLinear``, whole numbers for ``Floor``, ``Ceil`` and a ``Cast`` to
    integers.

    Args:
        node: One of :data:`ROUNDERS`.
        x: What it rounds.
        scale: The scale of a ``QuantizeLinear``.

    Returns:
        A mask of ``x``'s shape; ``None`` where the scale is not one known number.
    """
    with np.errstate(all="ignore"):
        if node.op == "Round":
            return np.asarray(np.abs(x - np.floor(x)) == 0.5)
        if node.op != "QuantizeLinear":
            return np.asarray(x == np.floor(x))
        if scale is None or scale.size != 1:
            return None
        steps = x / scale.reshape(()).astype(x.dtype)
        # Sums of quantized values stand on a grid.  A tie there is one up to the rounding of its
        # terms, which may be as large as the largest sum.
        largest = float(np.max(np.abs(steps), initial=1.0, where=np.isfinite(steps)))
        near = 4 * 2.0**-24 * largest
        return np.asarray(np.abs(np.abs(steps - np.floor(steps)) - 0.5) <= near)


def unexplained(
    node: Node | None,
    inputs: Mapping[str, Array],
    ours: Array,
    theirs: Array,
    changed: Array | None,
    u: float,
    *,
    exact: bool = False,
) -> Array:
    """Returns which differing elements of a discrete tensor rounding does not explain.

    Args:
        node: The operator that writes the tensor, where one does.
        inputs: Values of what it reads, as the reference has them.
        ours: The engine's values.
        theirs: The reference's values.
        changed: Elements that noise at twice u changed.
        u: Unit roundoff.
        exact: Whether the engine's kernel read these very inputs: then the operator's
            definition, not noise, decides where two of them are equal.
    """
    differ = differing(ours, theirs)
    wrong = differ if changed is None else differ & ~changed
    x = inputs.get(node.reads[0]) if node is not None and node.op in SEARCHES else None
    if node is not None and x is not None and theirs.dtype.kind in "iu":
        wide = x.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        scale = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
        wrong = wrong & ~index_explained(node, wide, u * (np.abs(wide) + scale), ours, theirs)
        if exact and _orders(node):
            wrong = wrong | differ & index_tied(node, wide, ours, theirs)
    return np.asarray(wrong)
