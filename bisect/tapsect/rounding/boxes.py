"""Wide numbers of a large tensor, made a part at a time: float64 copies of it would not fit.

What is computed of a tensor element by element is a recipe (:class:`Lazy`) where the tensor is
large, and an array where it is not.  Both give the numbers of one part ``[box]``; sums and maxima
go through the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST", "Box", "Boxed", "Lazy", "boxes", "divided", "lazily", "parts", "wide"]

Array = npt.NDArray[Any]
Box = tuple[slice | EllipsisType, ...]

WHOLE: Box = (...,)

MOST = 1 << 20
"""Elements of a tensor that is not divided."""
PART = 1 << 17
"""Elements of a part of a larger one: few enough for the cache."""


class Lazy:
    """A recipe for an array.

    Args:
        shape: Of the array.
        make: Returns its elements of one part.
    """

    def __init__(self, shape: tuple[int, ...], make: Callable[[Box], Array]) -> None:
        self.shape, self._make = shape, make
        self.size, self.ndim = math.prod(shape), len(shape)

    def __getitem__(self, box: Box) -> Array:
        return self._make(box)


Boxed = Array | Lazy


def boxes(shape: tuple[int, ...]) -> Iterator[Box]:
    """Yields parts that cover a tensor, in C order; one for a tensor that is not divided."""
    yield from divided(shape, PART if math.prod(shape) > MOST else MOST)


def divided(shape: tuple[int, ...], most: int) -> Iterator[Box]:
    """Yields parts of at most ``most`` elements that cover a tensor, in C order.

    >>> [tuple((s.start, s.stop) for s in box) for box in divided((2, 3, 4), most=8)]
    [((0, 1), (0, 2), (0, 4)), ((0, 1), (2, 3), (0, 4)), ((1, 2), (0, 2), (0, 4)), \
((1, 2), (2, 3), (0, 4))]
    """
    size = math.prod(shape)
    if size <= most:
        yield tuple(slice(0, n) for n in shape)
        return
    inner = size // shape[0]
    step = max(1, most // inner)
    for start in range(0, shape[0], step):
        first = slice(start, min(start + step, shape[0]))
        if inner <= most:
            yield (first, *(slice(0, n) for n in shape[1:]))
        else:
            yield from ((first, *rest) for rest in divided(shape[1:], most))


def parts(first: Boxed, *others: Boxed) -> Iterator[tuple[Array, ...]]:
    """Yields the elements of arrays of one shape, part by part."""
    if first.size <= MOST:  # most tensors: they are not looked at twice
        yield (first[WHOLE], *(each[WHOLE] for each in others))
        return
    for box in boxes(first.shape):
        yield (first[box], *(each[box] for each in others))


def lazily(shape: tuple[int, ...], make: Callable[[Box], Array]) -> Boxed:
    """Returns what ``make`` gives: at once where a tensor is one part, else when asked for it."""
    return Lazy(shape, make) if math.prod(shape) > MOST else make(WHOLE)


def wide(values: Array) -> Boxed:
    """Returns values in float64."""
    return lazily(values.shape, lambda box: values[box].astype(np.float64))
