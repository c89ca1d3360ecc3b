"""The numbers that replace tolerances: unit roundoffs, floors and thresholds.

One table (:data:`LIMITS`) holds every threshold.  ``make calibrate`` prints what correct kernels
and planted faults score against it.

References:
    N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM 2002, ch. 2-3
    (unit roundoff, error of sums); N. J. Higham and T. Mary, "A new approach to probabilistic
    rounding error analysis", SIAM J. Sci. Comput. 41 (2019) (errors grow as the root of n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tapsect.rounding.boxes import Box, Boxed, boxes, lazily, parts

__all__ = [
    "COARSE_STEPS",
    "LIMITS",
    "PRECISIONS",
    "SMALLEST_NORMAL",
    "Limit",
    "cosine",
    "floor_of",
    "inner",
    "limit_for",
    "rms",
    "u_name",
]

Array = npt.NDArray[Any]

PRECISIONS = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "fp8e4m3": 2.0**-4,
    "fp8e5m2": 2.0**-3,
}
"""Unit roundoff u of each precision that ``--precision`` takes."""

COARSE_STEPS = (2.0**-24, 2.0**-11, 2.0**-8)
"""The roundoffs at which a class of operators is judged, finest first."""

_SUBNORMAL = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 0.0}

SMALLEST_NORMAL = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
"""Below it lie subnormals, which some engines flush to zero."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Thresholds at one unit roundoff.

    Attributes:
        end: F, how many end-to-end floors an output may be off.
        norm: T, for the ratio of norms over a tensor or a slice.
        element: least ratio of an isolated element.
    """

    end: float
    norm: float
    element: float


LIMITS: tuple[tuple[float, Limit], ...] = (
    (2.0**-24, Limit(end=8.0, norm=64.0, element=64.0)),
    (2.0**-11, Limit(end=2.0, norm=12.0, element=24.0)),
    (2.0**-8, Limit(end=2.0, norm=3.0, element=24.0)),
    (1.0, Limit(end=2.0, norm=6.0, element=24.0)),
)
"""(largest u, thresholds), finest first."""

AMPLIFICATION = 1000.0
"""End-to-end floor over u·rms from which an output counts as ill-conditioned."""


def limit_for(u: float) -> Limit:
    """Returns the thresholds at unit roundoff ``u``."""
    return next(limit for bound, limit in LIMITS if u <= bound)


def u_name(u: float) -> str:
    """Returns the name of a unit roundoff.

    >>> u_name(2.0**-11), u_name(2.0**-24)
    ('tf32/fp16', 'fp32')
    """
    if u <= 2.0**-40:
        return "fp64"
    names = {2.0**-24: "fp32", 2.0**-11: "tf32/fp16", 2.0**-8: "bf16", 2.0**-4: "fp8"}
    return names.get(u, f"u=2^{math.log2(u):.0f}")


def inner(a: Boxed, b: Boxed) -> float:
    """Returns the sum of products of two arrays, in float64.

    Not ``np.dot``: its threads wait for each other where other processes use the cores, and the
    workers do.
    """
    total = 0.0
    for pair in parts(a, b):
        x, y = (np.asarray(each, dtype=np.float64).ravel() for each in pair)
        total += float(np.einsum("i,i->", x, y))
    return total


def rms(values: Boxed) -> float:
    """Returns the root mean square; 0 of nothing."""
    return math.sqrt(inner(values, values) / values.size) if values.size else 0.0


def cosine(a: Boxed, b: Boxed) -> float:
    """Returns the cosine between two arrays; 1 where both vanish, 0 where one does.

    >>> cosine(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    1.0
    """
    size = math.sqrt(inner(a, a)) * math.sqrt(inner(b, b))
    if size == 0.0:
        return 0.0 if any(x.any() or y.any() for x, y in parts(a, b)) else 1.0
    return inner(a, b) / size


def floor_of(
    y: Boxed, spread: Boxed, u: float, dtype: str, extra: Array | None = None, *,
    least: float = 0.0,
) -> Boxed:  # fmt: skip
    """Returns the rounding floor of each element of a replayed tensor.

    Args:
        y: Replayed values, float64, finite (non-finite elements are judged apart).
        spread: rms deviation of each element over the noisy samples.
        u: Unit roundoff the tensor is judged at.
        dtype: Storage type of the engine's tensor.
        extra: What accumulation adds, for contractions and reductions.
        least: What is lost near zero, where that is more than half the smallest subnormal.

    Returns:
        An array of ``y``'s shape: spread + u·|y| + u·rms(y) + half the smallest subnormal.
    """
    scale, lost = _scale(y), max(_SUBNORMAL.get(dtype, 2.0**-149) / 2, least)

    def part(box: Box) -> Array:
        floor = np.abs(y[box])
        floor += scale if isinstance(scale, float) else scale[(*box[:-1], slice(None))]
        floor *= u
        floor += spread[box]
        floor += lost
        if extra is not None:
            floor += extra[box]
        return floor

    return lazily(y.shape, part)


def _scale(y: Boxed) -> Array | float:
    """Returns rms(y): over the last axis where its rows differ in scale, else over the tensor."""
    whole = rms(y)
    if y.ndim < 2 or y.shape[-1] < 2 or y.size == 0:
        return whole
    rows = np.zeros((*y.shape[:-1], 1))
    for box in boxes(y.shape):
        rows[box[:-1]] += np.sum(np.square(y[box]), axis=-1, keepdims=True)
    rows = np.sqrt(rows / y.shape[-1])
    smallest = rows[rows > 0].min(initial=np.inf)
    return rows if rows.max(initial=0.0) > 16.0 * smallest else whole
