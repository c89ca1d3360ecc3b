"""What a build with taps showed, how much one may tap, and where the taps ended."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Limit", "Look", "Refined"]

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """What one build with taps showed.

    Attributes:
        accepted: The failure was the same with these taps as without them.
        refused: The builder did not take the taps (only when not accepted).
        worth: How many taps make all builds cheapest, where this one was late: it took longer
            than so many are worth (only when refused).
        relevant: The items that, given this evidence, still lie inside a bad region or bound
            one; ``None`` when the evidence rules nothing out.  Read only when accepted.
    """

    accepted: bool
    refused: bool = False
    worth: int | None = None
    relevant: frozenset[T] | None = None


@dataclass(frozen=True, slots=True)
class Limit(Generic[T]):
    """How much one build may tap.

    Attributes:
        budget: The most that the taps of one build may weigh together.
        weight: What one tap weighs, in the unit of ``budget``.
    """

    budget: float
    weight: Callable[[T], float]

    def fits(self, items: Iterable[T]) -> bool:
        """Returns whether ``items`` can be tapped in one build."""
        return sum(self.weight(item) for item in items) <= self.budget


@dataclass(frozen=True, slots=True)
class Refined(Generic[T]):
    """Where the taps ended; every tuple is in the order the items were given.

    Attributes:
        accepted: Taps that left the failure as it was and still bound or divide a bad region.
        healing: Items whose tap, added to accepted ones, changed the failure.
        refusing: Items whose tap, added to accepted ones, the builder refused.
        too_heavy: Items that no build can hold.
        untried: Relevant items that were not decided, because ``max_calls`` came first.
        calls: How many builds were looked at.
    """

    accepted: tuple[T, ...]
    healing: tuple[T, ...]
    refusing: tuple[T, ...]
    too_heavy: tuple[T, ...]
    untried: tuple[T, ...]
    calls: int
