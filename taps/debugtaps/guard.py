"""Does each exposed tensor hold what was tapped?  A loose comparison, before anything is written.

A rewrite may give a name to another value, and a translation may be wrong.  The bounds are far
above any rounding: this tells values apart, it does not judge an engine.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from debugtaps.compare import widened

__all__ = ["mismatch"]

Array = npt.NDArray[Any]

_LOOSE = 0.02
_ROUNDINGS = 64.0
_INTEGERS = 0.05


def mismatch(expected: Array, found: Array) -> str:
    """Returns how two values differ beyond rounding, or nothing.

    >>> mismatch(np.ones(2, np.float32), np.zeros(2, np.float32))
    'the relative difference is 1'
    """
    if expected.shape != found.shape:
        return f"the shape is {list(found.shape)}, torch has {list(expected.shape)}"
    if expected.dtype != found.dtype:
        return f"the type is {found.dtype.name}, torch has {expected.dtype.name}"
    if expected.size == 0:
        return ""
    if expected.dtype.kind in "biu":
        share = float(np.mean(expected != found))
        return f"{share:.0%} of the elements differ" if share > _INTEGERS else ""
    relative = _gap(expected, found)
    return f"the relative difference is {relative:.3g}" if relative > _bound(expected) else ""


def _bound(expected: Array) -> float:
    finfo: Any = ml_dtypes.finfo  # knows numpy's types as well
    return max(_LOOSE, _ROUNDINGS * float(finfo(expected.dtype).eps))


def _gap(expected: Array, found: Array) -> float:
    """Returns the norm of the difference over that of ``expected``.

    Infinite where the shapes differ or non-finite elements do.
    """
    if expected.shape != found.shape:
        return float("inf")
    first, second = (np.asarray(widened(a), np.float64) for a in (expected, found))
    odd = ~np.isfinite(first)
    if not np.array_equal(first[odd], second[odd], equal_nan=True):
        return float("inf")
    first, second = np.where(odd, 0, first), np.where(odd, 0, second)
    if not np.isfinite(second).all():
        return float("inf")
    size, off = float(np.linalg.norm(first)), float(np.linalg.norm(first - second))
    tiny = float(np.finfo(np.float32).tiny) * max(1, first.size) ** 0.5
    return off / max(size, tiny) if off > 1e-6 * max(1.0, size) else 0.0
