"""An error held against its floor: over the tensor, over its slices, element by element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tapsect.rounding.boxes import Boxed, boxes, lazily, parts
from tapsect.rounding.floors import LIMITS, Limit

__all__ = ["ZERO", "Ratios", "contrast", "luck", "ratios", "step_of"]

Array = npt.NDArray[Any]

ELEMENT_CONTRAST = 8.0
"""How far an isolated element must stand above the 99th percentile."""

_TINY = float(np.finfo(np.float64).tiny)
_LEAST_ELEMENT = min(limit.element for _, limit in LIMITS)


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
    error: Boxed, floor: Boxed, *, step: float = 0.0, jump: float = 0.0, chance: float = 0.0
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
    if error.size == 0 or not any(np.any(part) for (part,) in parts(error)):
        return ZERO
    more = 4.0 * step * step
    sums = _Sums(error, floor, more)
    if not math.isfinite(sums.floor_rms):
        error, floor = _bounded(error, floor)
        sums = _Sums(error, floor, more)
    worst, axis, index = sums.norm, None, None
    for candidate in sums.axes:
        part = sums.slices(candidate)
        if chance:
            part /= luck(error.size // part.size, part.size, chance)
        place = int(np.argmax(part))
        if part[place] > worst:
            worst, axis, index = float(part[place]), candidate, place
    # An element may fail to move in every sample by chance: alone it is held against the whole.
    least = max(sums.floor_rms, 2.0 * jump, _TINY)
    each = lazily(error.shape, lambda box: error[box] / np.maximum(floor[box], least))
    top = max(float(part.max()) for (part,) in parts(each))
    # The crowd is worth finding only where an element could stand out from it.
    stands = contrast(each) if top >= _LEAST_ELEMENT / 4 else 0.0
    return Ratios(sums.norm, worst, top, stands, axis, index)


def _bounded(error: Boxed, floor: Boxed) -> tuple[Boxed, Boxed]:
    """Returns both without the elements that an infinite floor explains."""
    return (
        lazily(error.shape, lambda box: np.where(np.isfinite(floor[box]), error[box], 0.0)),
        lazily(error.shape, lambda box: np.where(np.isfinite(b := floor[box]), b, 1.0)),
    )


class _Sums:
    """Squares of error and floor, summed over the tensor and over the slices of each axis."""

    def __init__(self, error: Boxed, floor: Boxed, more: float) -> None:
        shape, self._more, self._size = error.shape, more, error.size
        self.axes = [a for a, n in enumerate(shape) if n > 1 and error.ndim > 1]
        self._over = {a: (np.zeros(shape[a]), np.zeros(shape[a])) for a in self.axes}
        self._error = self._floor = 0.0
        for box in boxes(shape):
            with np.errstate(over="ignore"):
                e2, f2 = np.square(error[box]), np.square(floor[box])
                self._error += float(e2.sum())
                self._floor += float(f2.sum())
                for axis, sums in self._over.items():
                    others = tuple(a for a in range(error.ndim) if a != axis)
                    for total, square in zip(sums, (e2, f2), strict=True):
                        total[box[axis]] += square.sum(axis=others)

    @property
    def floor_rms(self) -> float:
        return math.sqrt(self._floor / self._size)

    @property
    def norm(self) -> float:
        with np.errstate(over="ignore"):  # against a floor of nothing any error is endless
            return float(np.sqrt(np.float64(self._error) / max(self._floor + self._more, _TINY)))

    def slices(self, axis: int) -> Array:
        """Returns the norm of each slice of an axis."""
        error, floor = self._over[axis]
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt(error / np.maximum(floor + self._more, _TINY)))


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


def step_of(y: Boxed, spread: Boxed, u: float, *, smooth: float) -> float:
    """Returns the size of the steps in which a tensor moves; 0 where it moves smoothly.

    Behind a quantisation, a comparison or a Floor noise moves an element by a whole step or not
    at all; few samples cannot tell which of those at rest might have moved.

    Args:
        y: Values without noise.
        spread: How far each moved.
        u: Unit roundoff: an element at rest still carries its own rounding.
        smooth: A tensor that moves by less u of its largest value than this has no steps.
    """
    top = largest = 0.0
    for values, moved in parts(y, spread):
        top = float(np.maximum(top, moved.max(initial=0.0)))
        largest = float(np.maximum(largest, np.abs(values).max(initial=0.0)))  # NaN stays
    if not top > smooth * u * largest:
        return 0.0
    rests = any(
        bool(np.any((moved <= u * (size := np.abs(values))) & (size > 0)))
        for values, moved in parts(y, spread)
    )
    return top if rests else 0.0


def contrast(each: Boxed) -> float:
    """Returns how far the largest ratio stands above the 99th percentile (inf above zero)."""
    top = max(float(part.max(initial=0.0)) for (part,) in parts(each))
    if top == 0.0:
        return 0.0
    if each.size < 2:
        return 1.0
    # The largest itself never belongs to the crowd it is compared with.
    rank = min(each.size - 2, int(0.99 * (each.size - 1)))
    crowd = _nth_largest(each, each.size - rank)
    return top / crowd if crowd > 0 else float("inf")


def _nth_largest(values: Boxed, n: int) -> float:
    """Returns the n-th largest element; of a large tensor few are held at a time."""
    kept, least = np.empty(0), -np.inf
    for (part,) in parts(values):
        kept = np.concatenate([kept, part[part > least]])
        if kept.size > 4 * n:
            kept = np.partition(kept, kept.size - n)[kept.size - n :]
            least = float(kept.min())
    return float(np.partition(kept, kept.size - n)[kept.size - n])
