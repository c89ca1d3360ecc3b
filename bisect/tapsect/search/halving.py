"""The order in which few items divide many about evenly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["halving_order"]

T = TypeVar("T")


def halving_order(items: Sequence[T], favoured: Callable[[T], bool] | None = None) -> list[T]:
    """Returns the items so that every prefix divides the range about evenly.

    A favoured item stands in for a middle that is no further off than half the way to an end.

    >>> halving_order("abcdefg")
    ['d', 'b', 'f', 'a', 'c', 'e', 'g']
    >>> halving_order("abcdefg", lambda item: item == "e")
    ['e', 'c', 'g', 'b', 'd', 'f', 'a']
    """
    order: list[T] = []
    spans = [(0, len(items))]
    for low, high in spans:  # grows while it is walked: breadth first
        if low < high:
            middle = _middle(items, low, high, favoured)
            order.append(items[middle])
            spans += [(low, middle), (middle + 1, high)]
    return order


def _middle(items: Sequence[T], low: int, high: int, favoured: Callable[[T], bool] | None) -> int:
    middle, reach = (low + high) // 2, (high - low) // 4
    if favoured is not None:
        for step in range(reach + 1):
            for place in (middle + step, middle - step):
                if low <= place < high and favoured(items[place]):
                    return place
    return middle
