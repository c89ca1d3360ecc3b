"""In what precision a tensor was stored, read off its bits.

A float32 tensor whose last bits are all zero was not computed in float32: its values lie on the
grid of a narrower type.  By chance one float32 value lies on the grid of fp16 once in 2¹³, two of
them once in 2²⁶.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapsect.rounding.boxes import parts

__all__ = ["fits_half", "stored_roundoff"]

Array = npt.NDArray[Any]

_ENOUGH = 2
_GRIDS = ((2.0**-8, 0xFFFF), (2.0**-11, 0x1FFF))


def stored_roundoff(values: Array) -> float | None:
    """Returns u of the coarsest grid that float32 values lie on; 0 where they do not.

    ``None`` for fewer than two different values, which prove nothing.  Cost: two passes over
    the bits.

    >>> x = np.linspace(1, 2, 50, dtype=np.float32)
    >>> stored_roundoff(x), stored_roundoff(x.astype(np.float16).astype(np.float32)) == 2.0**-11
    (0.0, True)
    """
    if values.dtype != np.float32:
        return 0.0
    bits = np.ascontiguousarray(values).view(np.uint32)
    for u, mask in _GRIDS:
        if not any(np.any(p & np.uint32(mask)) for (p,) in parts(bits)):
            return u if _varied(values) else None
    return 0.0


def _varied(values: Array) -> bool:
    some = values.ravel()[:4096]
    return np.unique(some[some != 0]).size >= _ENOUGH


def fits_half(values: Array) -> bool:
    """Returns whether fp16 holds every value of a wider tensor, and they are not trivial.

    >>> fits_half(np.arange(9, dtype=np.float32)), fits_half(np.linspace(0, 1, 11))
    (True, False)
    """
    if values.size < _ENOUGH or values.dtype.itemsize < 4:
        return False
    with np.errstate(over="ignore"):
        same = all(np.array_equal(p.astype(np.float16), p) for (p,) in parts(values))
    return same and _varied(values)
