"""What failing samples have that the others have not: range, zeros, denormals, NaN, sizes.

Each property is a number of one input of one sample.  One separates when all failing samples lie
on one side of all others.  Few samples are separated by luck as well, and how often is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from debugtaps import Array

__all__ = ["Separation", "properties", "separating"]

Sample = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Separation:
    """One property that tells failing samples from the others.

    Attributes:
        input: The input.
        what: The property.
        failing: Its least and largest value among failing samples.
        others: The same among the others.
        chance: How likely any property would separate samples that fail at random, at most.
    """

    input: str
    what: str
    failing: tuple[float, float]
    others: tuple[float, float]
    chance: float

    @property
    def words(self) -> str:
        """Returns it for people."""
        low, high = self.failing
        if low > self.others[1]:
            edge, rest = f"{low:.4g} or more", f"{self.others[1]:.4g} or less"
        else:
            edge, rest = f"{high:.4g} or less", f"{self.others[0]:.4g} or more"
        return f"the {self.what} of {self.input!r} is {edge}, in the others {rest}"


def properties(sample: Sample) -> dict[tuple[str, str], float]:
    """Returns the properties of each input of a sample; text has sizes only."""
    found: dict[tuple[str, str], float] = {}
    for name, value in sample.items():
        for axis, size in enumerate(value.shape):
            found[name, f"size along axis {axis}"] = float(size)
        if value.dtype.kind in "biufV" and value.size:
            found |= {(name, what): number for what, number in _numbers(value).items()}
    return found


def _numbers(value: Array) -> dict[str, float]:
    floats = value.dtype.kind not in "biu"
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    found = {"share of zeros": float(np.mean(wide == 0))}
    if floats:
        tiny = float(np.finfo(value.dtype).tiny) if value.dtype.kind == "f" else 2.0**-126
        small = (wide != 0) & (np.abs(wide) < tiny)
        found["share of NaN"] = float(np.mean(np.isnan(wide)))
        found["share of infinities"] = float(np.mean(np.isinf(wide)))
        found["share of denormals"] = float(np.mean(small))
    if finite.size:
        ends = (finite == finite.max()) | (finite == finite.min())
        found["largest value"] = float(finite.max())
        found["smallest value"] = float(finite.min())
        found["largest magnitude"] = float(np.abs(finite).max())
        found["rms"] = float(np.sqrt(np.mean(np.square(finite))))
        if finite.size > 2:
            found["share at its largest or smallest value (saturation)"] = float(np.mean(ends))
    return found


_TELLING = ("share of NaN", "share of infinities", "share of denormals", "size along")


def separating(failing: Sequence[Sample], others: Sequence[Sample]) -> list[Separation]:
    """Returns the properties that separate failing samples from the others, clearest first.

    A property that only one side has at all (NaN, a size) comes first, then by the gap between
    both sides over the width of the sides.

    Args:
        failing: Samples that fail; at least one.
        others: Samples that do not; at least one.
    """
    bad, good = ([properties(s) for s in side] for side in (failing, others))
    common = [k for k in bad[0] if all(k in each for each in (*bad, *good))]
    varying = [k for k in common if len({each[k] for each in (*bad, *good)}) > 1]
    count = len(bad) + len(good)
    chance = min(1.0, 2 * len(varying) / math.comb(count, len(bad)))
    found: list[tuple[tuple[bool, float], Separation]] = []
    for name, what in varying:
        ours, theirs = ([each[name, what] for each in side] for side in (bad, good))
        low, high = (min(ours), max(ours)), (min(theirs), max(theirs))
        gap = max(low[0] - high[1], high[0] - low[1])
        if gap > 0:
            width = (low[1] - low[0]) + (high[1] - high[0]) + 1e-12 * abs(gap)
            order = (not what.startswith(_TELLING), -gap / (gap + width))
            found.append((order, Separation(name, what, low, high, chance)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]
