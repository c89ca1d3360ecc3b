"""How many representable numbers lie between two tensors.

The distance in units in the last place says of any float type, without a tolerance, how far a
value is from another: 1 between neighbours, 0 between the two zeros, whatever the magnitude.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["ulp_distance", "unit_roundoff"]

Array = npt.NDArray[Any]
Steps = npt.NDArray[np.uint64]

_UNSIGNED = "float8_e8m0fnu"  # powers of two: no sign bit
_BITS: dict[int, np.dtype[Any]] = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}
_FLIP = np.uint64(1 << 63)


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Returns u of a float type, half the gap above 1; 0 for types that hold no floats.

    >>> unit_roundoff(np.dtype(np.float16)) == 2.0**-11
    True
    >>> unit_roundoff(np.dtype(ml_dtypes.bfloat16)) == 2.0**-8, unit_roundoff(np.dtype(int))
    (True, 0.0)
    """
    info = _float_info(np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype)
    return 0.0 if info is None else 2.0 ** -(int(info.nmant) + 1)


def ulp_distance(values: Array, others: Array) -> Steps | None:
    """Returns, element by element, how many steps of the type of ``values`` lie between the two.

    ``others`` is rounded to that type first; what lies beyond its range counts as its largest
    number.  Infinity is the neighbour of the largest number; distances to NaN mean nothing.
    Integers are one step apart, complex numbers as far as the farther of their parts.  O(n) time.

    >>> ulp_distance(np.array([1.0, -0.0], np.float32), np.array([1 + 2.0**-23, 0.0])).tolist()
    [1, 0]
    >>> ulp_distance(np.array([True]), np.array([False])) is None
    True

    Args:
        values: A tensor of floats, complex numbers or integers.
        others: A tensor of the same shape and the same sort.

    Returns:
        The distances, or ``None`` where the types have no common steps (text, booleans, floats
        against integers, longer than 64 bits).
    """
    if values.dtype.kind == "c" and others.dtype.kind == "c":
        real = ulp_distance(values.real, others.real)
        imaginary = ulp_distance(values.imag, others.imag)
        return None if real is None or imaginary is None else np.maximum(real, imaginary)
    if "c" in (values.dtype.kind, others.dtype.kind):
        return None
    if _float_info(values.dtype) is not None and _float_info(others.dtype) is not None:
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return _apart(_float_places(native), _float_places(_rounded(others, native.dtype)))
    if _is_integer(values.dtype) and _is_integer(others.dtype):
        if (values.dtype == np.uint64) != (others.dtype == np.uint64):
            return None
        return _apart(_integer_places(values), _integer_places(others))
    return None


def _float_info(dtype: np.dtype[Any]) -> Any:
    """Returns the limits of a float type, ``None`` for any other."""
    if dtype.kind in "iubOUSTcMm" or dtype.itemsize not in _BITS:
        return None
    try:
        return ml_dtypes.finfo(dtype.newbyteorder("="))  # type: ignore[no-untyped-call]
    except ValueError:  # the narrow integers of ml_dtypes
        return None


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or (dtype.kind == "V" and dtype.name.startswith(("int", "uint")))


def _rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Returns ``values`` in ``dtype``, what is too large for it as its largest number."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = values.astype(np.float64)
        near = values.astype(dtype)
        lost = np.isfinite(wide) & ~np.isfinite(near.astype(np.float64))
    if not lost.any():
        return near
    top = float(_float_info(dtype).max)
    return np.where(lost, np.copysign(top, wide).astype(dtype), near)


def _float_places(values: Array) -> Steps:
    """Returns the place of each float among all of its type, in ascending order."""
    info = _float_info(values.dtype)
    bits = values.copy(order="C").view(_BITS[values.dtype.itemsize]).astype(np.uint64)
    if values.dtype.name == _UNSIGNED:
        return bits
    sign = np.uint64(1 << (int(info.bits) - 1))
    size = (bits & (sign - np.uint64(1))).astype(np.int64)
    return _from_signed(np.where(bits & sign != 0, -size, size))


def _integer_places(values: Array) -> Steps:
    return values if values.dtype == np.uint64 else _from_signed(values.astype(np.int64))


def _from_signed(places: npt.NDArray[np.int64]) -> Steps:
    """Shifts places so that they stay in order without a sign: no difference overflows then."""
    return places.astype(np.uint64) ^ _FLIP


def _apart(a: Steps, b: Steps) -> Steps:
    return np.maximum(a, b) - np.minimum(a, b)
