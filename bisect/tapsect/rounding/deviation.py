"""How far one float output is off: its deviation, and the end-to-end floor it is held against."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapsect.rounding.boxes import Box, Boxed, lazily, parts, wide
from tapsect.rounding.floors import Limit, rms
from tapsect.rounding.ratios import Ratios, ratios, step_of

__all__ = ["CHANCE", "alike", "end_floor", "end_ratios", "gap", "kept", "nonfinite", "unlike"]

Array = npt.NDArray[Any]

CHANCE = 0.01
"""How likely the worst slice of one correct output may stand above what luck explains."""


def end_floor(base: Boxed, spread: Boxed, u: float) -> Boxed:
    """Returns the end-to-end floor of each element.

    The spread, never less than what storing the element rounds and a quarter u of the tensor's
    rms: eight samples may all fall near zero by chance, and a saturated element does not move.
    """
    y = lazily(base.shape, lambda box: np.where(np.isfinite(v := base[box]), v, 0.0))
    least = 0.25 * u * rms(y)
    if not least:
        return spread

    def part(box: Box) -> Array:
        # In units of the least: squares stay in range, and np.hypot takes five times as long.
        floor = np.square(y[box] * (0.29 * u / least))
        floor += np.square(spread[box] / least)
        floor += 1.0
        return np.asarray(least * np.sqrt(floor))

    return lazily(base.shape, part)


def end_ratios(
    error: Boxed, given: Boxed, size: float, base: Boxed, drift: Boxed, u: float, limit: Limit
) -> Ratios:  # fmt: skip
    """Returns the ratios of an output's error to its floor.

    Args:
        error: Absolute errors.
        given: The floor, from ``end_floor``.
        size: Its rms.
        base: The reference's values.
        drift: How far noise moves each.
        u: Stated unit roundoff.
        limit: Thresholds at it.
    """

    # What noise moves by more than its own size has long tails (a Softmax far from its winner):
    # a deviation over few samples says too little of it, and it is held against the whole.
    def part(box: Box) -> Array:
        floor = given[box]
        return np.where(_wild(drift[box], base[box]), np.maximum(floor, size), floor)

    wild = any(np.any(_wild(*pair)) for pair in parts(drift, base))
    floor = lazily(base.shape, part) if wild else given
    found = ratios(error, floor, chance=CHANCE)
    if found.exceed(limit, norm=limit.end) and (step := step_of(base, drift, u, smooth=1.0)):
        jump = step_of(base, drift, u, smooth=4.0)
        found = ratios(error, floor, chance=CHANCE, step=step, jump=jump)
    return found


def _wild(drift: Array, base: Array) -> Array:
    return np.asarray(np.isfinite(drift) & (drift > np.abs(base)))


def nonfinite(engine: Boxed, base: Boxed, drift: Boxed) -> tuple[dict[str, int], int]:
    """Returns how many elements are non-finite on each side, and how many noise leaves unlike."""
    ours = theirs = lost = 0
    for e, r, moved in parts(engine, base, drift):
        ours += int(np.count_nonzero(~np.isfinite(e)))
        theirs += int(np.count_nonzero(~np.isfinite(r)))
        lost += int(np.count_nonzero(unlike(e, r) & np.isfinite(moved)))
    return {"nonfinite_engine": ours, "nonfinite_reference": theirs}, lost


def alike(x: Array, y: Array) -> Array:
    """Returns which elements are the same, NaN for NaN."""
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))


def unlike(x: Array, y: Array) -> Array:
    """Returns which elements are non-finite on one side only, or of other kinds."""
    return np.asarray(~(np.isfinite(x) & np.isfinite(y)) & ~alike(x, y))


def kept(values: Boxed) -> Boxed:
    """Returns values with nothing where they are not finite."""
    return lazily(values.shape, lambda box: np.where(np.isfinite(v := values[box]), v, 0.0))


def gap(x: Array, y: Array) -> Boxed:
    """Returns x - y, with nothing where it is not finite."""
    a, b = wide(x), wide(y)

    def part(box: Box) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(a[box] - b[box])

    return kept(lazily(x.shape, part))
