"""The numbers that replace tolerances: unit roundoffs, floors, ratios and their thresholds.

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
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "COARSE_STEPS",
    "LIMITS",
    "PRECISIONS",
    "SMALLEST_NORMAL",
    "ZERO",
    "Limit",
    "Ratios",
    "contrast",
    "cosine",
    "floor_of",
    "inner",
    "limit_for",
    "luck",
    "ratios",
    "rms",
    "step_of",
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

_TINY = float(np.finfo(np.float64).tiny)

_LEAST_ELEMENT = min(limit.element for _, limit in LIMITS)

ELEMENT_CONTRAST = 8.0
"""How far an isolated element must stand above the 99th percentile."""

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


def inner(a: Array, b: Array) -> float:
    """Returns the sum of products of two flat float64 arrays.

    Not ``np.dot``: its threads wait for each other where other processes use the cores, and the
    workers do.
    """
    return float(np.einsum("i,i->", a, b))


def rms(values: Array) -> float:
    """Returns the root mean square; 0 of nothing."""
    if values.size == 0:
        return 0.0
    flat = np.asarray(values, dtype=np.float64).ravel()
    return float(np.sqrt(inner(flat, flat) / flat.size))


def cosine(a: Array, b: Array) -> float:
    """Returns the cosine between two arrays; 1 where both vanish, 0 where one does.

    >>> cosine(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    1.0
    """
    x, y = a.ravel(), b.ravel()
    size = float(np.sqrt(inner(x, x)) * np.sqrt(inner(y, y)))
    if size == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(inner(x, y) / size)


def floor_of(
    y: Array, spread: Array, u: float, dtype: str, extra: Array | None = None, *,
    least: float = 0.0,
) -> Array:  # fmt: skip
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
    floor = np.abs(y)
    floor += _scale(y)
    floor *= u
    floor += spread
    floor += max(_SUBNORMAL.get(dtype, 2.0**-149) / 2, least)
    if extra is not None:
        floor += extra
    return floor


def _scale(y: Array) -> Array | float:
    """Returns rms(y): over the last axis where its rows differ in scale, else over the tensor."""
    whole = rms(y)
    if y.ndim < 2 or y.shape[-1] < 2 or y.size == 0:
        return whole
    rows = np.sqrt(np.mean(np.square(y), axis=-1, keepdims=True))
    smallest = rows[rows > 0].min(initial=np.inf)
    return rows if rows.max(initial=0.0) > 16.0 * smallest else whole


@dataclass(frozen=True, slots=True)
class Ratios:
    """Error over floor, three ways: whole tensor, worst slice of an axis, isolated element."""

    norm: float
    slice: float
    element: float
    contrast: float
    axis: int | None = None
    index: int | None = None

    def exceed(self, limit: Limit, *, norm: float | None = None) -> bool:
        """Returns whether any of the three lies above its threshold."""
        bound = limit.norm if norm is None else norm
        isolated = self.element >= limit.element and self.contrast >= ELEMENT_CONTRAST
        return self.norm > bound or self.slice > bound or isolated

    def score(self, limit: Limit) -> float:
        """Returns the ratio that decided: the norm ratios, or an isolated element's."""
        worst = max(self.norm, self.slice)
        isolated = self.element >= limit.element and self.contrast >= ELEMENT_CONTRAST
        return max(worst, self.element) if isolated else worst


ZERO = Ratios(0.0, 0.0, 0.0, 0.0)


def ratios(
    error: Array, floor: Array, *, step: float = 0.0, jump: float = 0.0, chance: float = 0.0
) -> Ratios:
    """Returns the three ratios of an absolute error to its floor, both float64 of one shape.

    Elements with an infinite floor are explained by it.  Cost: a few passes over the tensor.

    Args:
        error: Absolute errors.
        floor: What rounding explains of them.
        step: Size of the steps in which the tensor moves (:func:`step_of`): tensor and slices
            may be two of them off.
        jump: The same, where a step of a single element is beyond doubt.
        chance: Probability at which the worst slice of correct values may stand out.  Where
            floors are plain standard deviations, a slice of few elements exceeds its own by
            luck; 0 where they are bounds.
    """
    if error.size == 0 or not np.any(error):
        return ZERO
    infinite = ~np.isfinite(floor)
    if np.any(infinite):
        error, floor = np.where(infinite, 0.0, error), np.where(infinite, 1.0, floor)
    # An element may fail to move in every sample by chance: alone it is held against the whole.
    each = error / np.maximum(floor, max(rms(floor), 2.0 * jump, _TINY))
    with np.errstate(over="ignore"):
        e2, f2 = np.square(error), np.square(floor)
    more = 4.0 * step * step
    with np.errstate(over="ignore"):  # against a floor of nothing any error is endless
        norm = float(np.sqrt(e2.sum() / max(f2.sum() + more, _TINY)))
    worst, axis, index = norm, None, None
    for candidate in range(error.ndim):
        if error.shape[candidate] < 2 or error.ndim == 1:
            continue
        others = tuple(a for a in range(error.ndim) if a != candidate)
        allowed = np.maximum(f2.sum(axis=others) + more, _TINY)
        with np.errstate(over="ignore"):
            part = np.sqrt(e2.sum(axis=others) / allowed)
        if chance:
            part /= luck(error.size // part.size, part.size, chance)
        place = int(np.argmax(part))
        if part[place] > worst:
            worst, axis, index = float(part[place]), candidate, place
    top = float(each.max())
    # The crowd is worth finding only where an element could stand out from it.
    stands = contrast(each) if top >= _LEAST_ELEMENT / 4 else 0.0
    return Ratios(norm, worst, top, stands, axis, index)


def luck(size: int, count: int, chance: float) -> float:
    """Returns how far the norm of the worst of ``count`` slices lies above its expectation.

    Slices hold ``size`` independent normal numbers; at most with probability ``chance`` the worst
    one exceeds this.  Reference: E. B. Wilson and M. M. Hilferty, "The distribution of
    chi-square", PNAS 17 (1931).

    >>> round(luck(1, 10, 0.01), 1), round(luck(10000, 10, 0.01), 2)
    (3.3, 1.02)
    """
    z = NormalDist().inv_cdf(1.0 - chance / max(count, 1))
    variance = 2.0 / (9.0 * max(size, 1))
    return float((1.0 - variance + z * math.sqrt(variance)) ** 1.5)


def step_of(y: Array, spread: Array, u: float, *, smooth: float) -> float:
    """Returns the size of the steps in which a tensor moves; 0 where it moves smoothly.

    Behind a quantisation, a comparison or a Floor noise moves an element by a whole step or not
    at all; few samples cannot tell which of those at rest might have moved.

    Args:
        y: Values without noise.
        spread: How far each moved.
        u: Unit roundoff: an element at rest still carries its own rounding.
        smooth: A tensor that moves by less u of its largest value than this has no steps.
    """
    size = np.abs(y)
    top = float(spread.max(initial=0.0))
    if not top > smooth * u * float(size.max(initial=0.0)):
        return 0.0
    return top if bool(np.any((spread <= u * size) & (size > 0))) else 0.0


def contrast(each: Array) -> float:
    """Returns how far the largest ratio stands above the 99th percentile (inf above zero)."""
    flat = each.ravel()
    top = float(flat.max())
    if top == 0.0:
        return 0.0
    if flat.size < 2:
        return 1.0
    # The largest itself never belongs to the crowd it is compared with.
    rank = min(flat.size - 2, int(0.99 * (flat.size - 1)))
    crowd = float(np.partition(flat, rank)[rank])
    return top / crowd if crowd > 0 else float("inf")
