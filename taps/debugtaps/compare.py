"""What two tensors differ by: numbers only, non-finite values counted first.

Everything here is a pure function of numpy arrays.  Nothing is paired by a similar name, and no
tolerance is assumed; what a user allows stands in ``tolerance``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from debugtaps.ulp import ulp_distance

__all__ = [
    "Metrics",
    "comparable",
    "mape",
    "measure",
    "measure_fully",
    "nonfinite_differs",
    "widened",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The difference of one tensor, engine against reference.

    Attributes:
        reason: ``""``, ``"shape"``, ``"dtype"`` or ``"nonfinite"``: what differs before any number.
        nonfinite_engine: NaN and infinities in the engine's tensor.
        nonfinite_reference: The same in the reference's.
        nonfinite_differs: Places where one is non-finite and the other is not, or is another one.
        max_abs: Largest absolute error over the places where both are finite.
        rms: Root mean square error there.
        rms_reference: Root mean square of the reference there.
        cosine: Cosine of the angle between the two there; ``None`` when one of them is zero.
        mape: Mean absolute error there in percent of the reference; from `measure_fully` only, as
            are the next two.
        ulp_max: Largest distance there in units in the last place of the engine's type; ``None``
            where that has none (text, booleans).
        ulp_p99: The distance that 99 % of the elements do not exceed.
    """

    reason: str = ""
    nonfinite_engine: int = 0
    nonfinite_reference: int = 0
    nonfinite_differs: int = 0
    max_abs: float | None = None
    rms: float | None = None
    rms_reference: float | None = None
    cosine: float | None = None
    mape: float | None = None
    ulp_max: int | None = None
    ulp_p99: int | None = None

    @property
    def mse(self) -> float | None:
        """Returns the mean square error."""
        return None if self.rms is None else self.rms * self.rms

    @property
    def snr_db(self) -> float | None:
        """Returns the signal-to-noise ratio in decibels; infinite where there is no error."""
        if self.rms is None or self.rms_reference is None:
            return None
        if self.rms == 0:
            return math.inf
        if self.rms_reference == 0:
            return -math.inf
        return 20 * (math.log10(self.rms_reference) - math.log10(self.rms))

    @property
    def rel_rms(self) -> float | None:
        """Returns the rms error over the rms of the reference; infinite if only that is zero."""
        if self.rms is None or self.rms_reference is None:
            return None
        if self.rms_reference == 0:
            return 0.0 if self.rms == 0 else math.inf
        return self.rms / self.rms_reference


def measure(engine: Array, reference: Array) -> Metrics:
    """Returns what ``engine`` differs from ``reference`` by.

    Computed in float64 (complex128 for complex tensors); O(n) time, a few copies of the tensor.
    Strings and booleans count as 0 where equal and 1 where not.  Where the shapes differ there
    are no numbers; where only the types differ there are.

    >>> m = measure(np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.5, np.nan]))
    >>> m.reason, m.nonfinite_engine, m.nonfinite_differs, m.max_abs
    ('', 1, 0, 0.5)
    >>> measure(np.array([np.inf, 1.0]), np.array([2.0, 1.0])).reason
    'nonfinite'
    >>> measure(np.zeros((2, 3)), np.zeros((3, 2))).reason
    'shape'
    """
    dtypes_differ = _kind(engine) != _kind(reference)
    if engine.shape != reference.shape:
        return Metrics(
            reason="shape",
            nonfinite_engine=_count_nonfinite(engine),
            nonfinite_reference=_count_nonfinite(reference),
        )
    if (engine.dtype.kind in "OUST") != (reference.dtype.kind in "OUST"):
        return Metrics(reason="dtype")
    got, want = comparable(engine, reference)
    metrics = _numbers(got, want)
    return dataclasses.replace(metrics, reason="dtype") if dtypes_differ else metrics


def measure_fully(engine: Array, reference: Array) -> Metrics:
    """Returns what `measure` does, with the mean percentage and the distance in last places.

    The percentage is infinite where the reference is zero throughout and the engine's is not.

    >>> m = measure_fully(np.array([1.0, 4.0], np.float32), np.array([1.0, 5.0], np.float32))
    >>> m.mape, m.ulp_max, round(m.snr_db, 1)
    (10.0, 2097152, 14.1)
    """
    metrics = measure(engine, reference)
    if metrics.max_abs is None:
        return metrics
    got, want = comparable(engine, reference)
    both = np.isfinite(got) & np.isfinite(want)
    percent = mape(got, want)
    if metrics.rms_reference == 0 and metrics.max_abs > 0:
        percent = math.inf
    steps = ulp_distance(engine, reference)
    worst, most = (None, None) if steps is None else _largest(steps[both])
    return dataclasses.replace(metrics, mape=percent, ulp_max=worst, ulp_p99=most)


def _largest(steps: Array) -> tuple[int, int]:
    """Returns the maximum and the 99th percentile, which is one of the elements."""
    if not steps.size:
        return 0, 0
    place = max(0, math.ceil(0.99 * steps.size) - 1)
    return int(steps.max()), int(np.partition(steps, place)[place])


def widened(array: Array) -> Array:
    """Returns the tensor in float64 (complex128 if complex), types of ``ml_dtypes`` included.

    >>> widened(np.array([True, False])).tolist()
    [1.0, 0.0]
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def mape(engine: Array, reference: Array) -> float:
    """Returns the mean absolute error in percent of the reference.

    Elements whose reference is zero or not finite have no percentage and are left out.

    >>> mape(np.array([1.1, 2.0, 5.0]), np.array([1.0, 2.0, 0.0]))  # doctest: +ELLIPSIS
    5.00...
    """
    got, want = widened(engine), widened(reference)
    used = (want != 0) & np.isfinite(want) & np.isfinite(got)
    if not used.any():
        return 0.0
    return float(100 * np.mean(np.abs(got[used] - want[used]) / np.abs(want[used])))


def _kind(array: Array) -> str:
    return "string" if array.dtype.kind in "OUST" else array.dtype.name


def comparable(engine: Array, reference: Array) -> tuple[Array, Array]:
    """Returns both tensors as numbers whose difference means what it says.

    Text becomes 1 where it differs and 0 where not; 64-bit integers keep a difference that
    float64 would round away.

    >>> a, b = comparable(np.array([2**62 + 1]), np.array([2**62]))
    >>> bool((a != b).all())
    True
    """
    if engine.dtype.kind in "OUST":
        same = engine.astype(object) == reference.astype(object)
        return np.where(same, 0.0, 1.0), np.zeros(reference.shape)
    if engine.dtype.kind in "iu" and reference.dtype.kind in "iu":
        return _exact_integers(engine, reference)
    return widened(engine), widened(reference)


def _exact_integers(engine: Array, reference: Array) -> tuple[Array, Array]:
    """Widens integers so that the difference of two 64-bit ones stays exact near zero."""
    got, want = engine.astype(np.float64), reference.astype(np.float64)
    if max(np.abs(v).max(initial=0) for v in (got, want)) < 2.0**53:
        return got, want
    error = np.array(
        [int(a) - int(b) for a, b in zip(engine.ravel(), reference.ravel(), strict=True)],
        dtype=np.float64,
    ).reshape(reference.shape)
    differs = error != 0
    got = np.where(differs, want + error, want)
    got = np.where(differs & (got == want), np.nextafter(want, np.inf), got)
    return got, want


def _count_nonfinite(array: Array) -> int:
    if array.dtype.kind in "OUSTbiu":
        return 0
    return int((~np.isfinite(widened(array))).sum())


def nonfinite_differs(got: Array, want: Array) -> npt.NDArray[np.bool_]:
    """Returns where one value is non-finite and the other is not the same.

    >>> nonfinite_differs(np.array([np.nan, np.inf, 1.0]), np.array([np.nan, 1.0, 1.0])).tolist()
    [False, True, False]
    """
    either = ~(np.isfinite(got) & np.isfinite(want))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return cast("npt.NDArray[np.bool_]", either & ~same)


def _numbers(got: Array, want: Array) -> Metrics:
    finite_got, finite_want = np.isfinite(got), np.isfinite(want)
    differs = int(nonfinite_differs(got, want).sum())
    both = finite_got & finite_want
    a, b = (got, want) if both.all() else (got[both], want[both])
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(a - b)
        return Metrics(
            reason="nonfinite" if differs else "",
            nonfinite_engine=int(got.size - finite_got.sum()),
            nonfinite_reference=int(want.size - finite_want.sum()),
            nonfinite_differs=differs,
            max_abs=float(error.max()) if error.size else 0.0,
            rms=_rms(error),
            rms_reference=_rms(np.abs(b)),
            cosine=_cosine(a, b),
        )


def _rms(values: Array) -> float:
    """Scaled by the largest value, so that squares of float64 extremes do not overflow."""
    top = float(values.max()) if values.size else 0.0
    if top == 0 or not math.isfinite(top):
        return top
    return top * math.sqrt(float(np.mean(np.square(values / top))))


def _cosine(a: Array, b: Array) -> float | None:
    top_a, top_b = (float(np.abs(v).max()) if v.size else 0.0 for v in (a, b))
    if top_a == 0 or top_b == 0:
        return None
    unit_a, unit_b = (a / top_a).ravel(), (b / top_b).ravel()
    norm = math.sqrt(float(np.vdot(unit_a, unit_a).real) * float(np.vdot(unit_b, unit_b).real))
    return float(np.vdot(unit_a, unit_b).real) / norm
