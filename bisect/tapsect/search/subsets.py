"""The smallest set of items that still shows an effect.

Used wherever several things may be needed together: taps that only jointly heal a failure,
optimisations that only jointly cause it, outputs that must be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Subset", "Subsets", "minimal_sets", "minimal_subset"]

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Subset(Generic[T]):
    """One set that shows the effect.

    Attributes:
        items: The set, in the order the items were given.
        calls: How many different sets were tested.
        one_minimal: Whether every set that lacks one of the items was seen not to show the
            effect; false when ``max_calls`` came first.
    """

    items: tuple[T, ...]
    calls: int
    one_minimal: bool


@dataclass(frozen=True, slots=True)
class Subsets(Generic[T]):
    """Disjoint sets that each show the effect.

    Attributes:
        sets: The sets in the order they were found.
        calls: How many different sets were tested, over all of them.
        complete: Whether the items that are left were seen not to show the effect.
    """

    sets: tuple[Subset[T], ...]
    calls: int
    complete: bool


def minimal_subset(
    items: Sequence[T],
    test: Callable[[tuple[T, ...]], bool],
    *,
    max_calls: int | None = None,
) -> Subset[T]:
    """Returns a subset of ``items`` that shows the effect and from which none can be spared.

    Args:
        items: Distinct items that together show the effect; the caller has seen it.
        test: Whether a set shows the effect.  A set that cannot be judged is no evidence:
            answer false.
        max_calls: Most sets to test; ``None`` means as many as it takes.

    Returns:
        The subset, with its price.

    Notes:
        Cost: at most about ``2 * log2(n) + 1`` tests when one item suffices; ``O(k log n)`` for
        k scattered items of a monotone effect; ``O(n**2)`` at worst.  No set is tested twice.
        Guarantee: 1-minimal, also when the effect is not monotone.
        Non-guarantee: there may be a smaller set elsewhere, or inside this one by sparing two
        items at once.

    References:
        A. Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE
        Transactions on Software Engineering 28 (2002), doi:10.1109/32.988498 (``ddmin``).

    Examples:
        >>> minimal_subset(range(64), lambda s: {5, 55} <= set(s)).items
        (5, 55)
        >>> minimal_subset(range(64), lambda s: 40 in s)
        Subset(items=(40,), calls=8, one_minimal=True)
    """
    return _Searcher(test, max_calls).shrink(tuple(items))


def minimal_sets(
    items: Sequence[T],
    test: Callable[[tuple[T, ...]], bool],
    *,
    most: int = 8,
    max_calls: int | None = None,
) -> Subsets[T]:
    """Returns disjoint subsets of ``items`` that each show the effect, each 1-minimal.

    Args:
        items: Distinct items that together show the effect; the caller has seen it.
        test: Whether a set shows the effect; see ``minimal_subset``.
        most: Most sets to look for.
        max_calls: Most sets to test, over all; ``None`` means as many as it takes.

    Returns:
        The sets, with their price.

    Notes:
        Cost: that of ``minimal_subset`` for each set found, plus one test for the rest.
        Guarantee: no set shares an item with another; when ``complete``, the items in no set
        do not show the effect by themselves.
        Non-guarantee: sets that overlap are not enumerated, nor is the number of disjoint sets
        the largest possible.

    Examples:
        >>> found = minimal_sets(range(9), lambda s: 2 in s or {4, 7} <= set(s))
        >>> sorted(one.items for one in found.sets), found.complete
        ([(2,), (4, 7)], True)
    """
    searcher = _Searcher(test, max_calls)
    left = tuple(items)
    found: list[Subset[T]] = []
    while True:
        found.append(searcher.shrink(left))
        left = tuple(item for item in left if item not in found[-1].items)
        more = bool(left) and searcher.shows(left)
        if not more or len(found) == most:
            complete = not more and not searcher.spent
            return Subsets(tuple(found), calls=searcher.calls, complete=complete)


@dataclass(slots=True)
class _Searcher(Generic[T]):
    """The tests made so far.  ``spent`` is set by the first test that was not affordable."""

    test: Callable[[tuple[T, ...]], bool]
    max_calls: int | None
    calls: int = 0
    spent: bool = False
    seen: dict[frozenset[T], bool] = field(default_factory=dict)

    def shows(self, items: tuple[T, ...]) -> bool:
        if not items:
            return False
        key = frozenset(items)
        if key not in self.seen:
            if self.max_calls is not None and self.calls >= self.max_calls:
                self.spent = True
                return False
            self.calls += 1
            self.seen[key] = self.test(items)
        return self.seen[key]

    def shrink(self, items: tuple[T, ...]) -> Subset[T]:
        before = self.calls
        parts = 2
        while len(items) > 1 and not self.spent:
            chunks = _split(items, parts)
            smaller = self.one_chunk(chunks) or self.without_one(items, chunks)
            if smaller is not None:
                # A kept chunk starts over; a dropped one leaves the others as they are.
                parts = max(2, parts - 1) if len(smaller) > len(chunks[0]) else 2
                items = smaller
            elif parts >= len(items):
                break
            else:
                parts = min(len(items), 2 * parts)
        return Subset(items, calls=self.calls - before, one_minimal=not self.spent)

    def one_chunk(self, chunks: list[tuple[T, ...]]) -> tuple[T, ...] | None:
        return next((chunk for chunk in chunks if self.shows(chunk)), None)

    def without_one(
        self, items: tuple[T, ...], chunks: list[tuple[T, ...]]
    ) -> tuple[T, ...] | None:
        for chunk in chunks:
            gone = frozenset(chunk)
            rest = tuple(item for item in items if item not in gone)
            if self.shows(rest):
                return rest
        return None


def _split(items: tuple[T, ...], parts: int) -> list[tuple[T, ...]]:
    """Returns ``items`` in ``parts`` runs whose lengths differ by at most one, longest first."""
    size, longer = divmod(len(items), parts)
    runs: list[tuple[T, ...]] = []
    start = 0
    for k in range(parts):
        end = start + size + (k < longer)
        runs.append(items[start:end])
        start = end
    return runs
