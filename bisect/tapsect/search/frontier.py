"""Which taps can be trusted, and how close they come to the fault.

One build with every tap answers most questions.  Some builders refuse some taps, and some taps
cure the failure they were to show (they break up a wrong fusion), so that nothing measured beside
them is evidence.  This search finds taps that leave the failure as it was, as near to the fault
as they come, and the single taps that do not.

    order      0   1   2   3   4   5   6   7   8   9        the fault sits between 5 and 6
    probe all  .   .   .   .   .   .   .   .   .   .        healed: some tap cures it
    probe      x   x   x   x   x                            accepted: the fault lies beyond 4
    dropped    x   x   x   x                                no longer relevant; 4 bounds it
    probe                  x   x   x                        healed: 5 or 6
    probe                  x           x   x   x            accepted: the fault lies before 7
    dropped                                x   x
    probe                  x   x       x                    healed: 5
    probe                  x       x   x                    healed: 6
    result     accepted (4, 7), healing (5, 6)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tapsect.search.halving import halving_order
from tapsect.search.looks import Limit, Look, Refined

__all__ = ["Limit", "Look", "Refined", "refine"]

T = TypeVar("T", bound=Hashable)


def refine(
    order: Sequence[T],
    probe: Callable[[tuple[T, ...]], Look[T]],
    *,
    limit: Limit[T] | None = None,
    max_calls: int | None = None,
    favoured: Callable[[T], bool] | None = None,
) -> Refined[T]:
    """Returns trusted taps as near to the fault as they come, and the taps that disturb it.

    Args:
        order: What may be tapped, in topological order, without repeats.
        probe: Builds with exactly these taps (in the order of ``order``) and looks.
        limit: How much one build may tap; ``None`` means everything at once.
        max_calls: Most builds to look at; ``None`` means as many as it takes.
        favoured: Which items divide well (where a graph narrows, say); asked only where not
            everything fits.

    Returns:
        The taps, sorted by what they did.

    Notes:
        The first probe taps everything that fits, spread evenly, favoured items first.  A probe
        that is not accepted is split in halves; accepted taps stay in later probes while they
        are relevant; an item that stops being relevant is dropped without a probe.  Where a run
        of disturbing taps crosses a split, each side is searched from the end far from it.

        What heals is most often short: where many taps heal together, a few with wide gaps
        between them are tried first, at two offsets.  One that is accepted leaves a single gap.

        A build that is late is no look: fewer taps are spread over the same items next, as many
        as it says make all builds cheapest (``Look.worth``), half at most.

        A builder may take some taps but not many: when a chunk and both its halves are refused,
        a quarter is tapped next, and no build holds more taps again than were ever taken, as
        long as more are refused.  Where seven single taps are refused and none was ever taken,
        the builder takes none, and the rest is not asked.

        Cost: 1 call when no tap disturbs and all fit.  With k neighbouring disturbing taps
        among n and one bad region, at most ``2 * log2(n) + 2 * k + 1``; 14 where k is 2 at
        most, however large n is.  With a limit of m taps in one build, about
        ``log(n) / log(m / 2)`` calls when none disturbs.  At worst (every tap disturbs,
        everywhere) ``2 * n + 1``: give ``max_calls``.
        Guarantee: each healing or refusing item was probed by itself beside accepted ones
        (except where the builder takes none), and each accepted one was part of an accepted
        probe.
        Non-guarantee: taps that only *together* disturb are not told apart from single ones: the
        last of them to be added is named.  See ``subsets`` for the smallest disturbing set.

    References:
        A. Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE
        Transactions on Software Engineering 28 (2002), doi:10.1109/32.988498.
        F. K. Hwang, "A method for detecting all defective members in a population by group
        testing", Journal of the American Statistical Association 67 (1972),
        doi:10.1080/01621459.1972.10481257.

    Examples:
        A fault between 5 and 6; tapping 5 or 6 cures it:

        >>> def probe(taps):
        ...     low = max((t for t in taps if t <= 5), default=0)
        ...     high = min((t for t in taps if t >= 6), default=9)
        ...     inside = frozenset(range(low, high + 1))
        ...     return Look(accepted=not {5, 6} & set(taps), relevant=inside)
        >>> refine(range(10), probe)
        Refined(accepted=(4, 7), healing=(5, 6), refusing=(), too_heavy=(), untried=(), calls=6)
    """
    search = _Refinement(
        order=tuple(order), probe=probe, limit=limit, max_calls=max_calls, favoured=favoured
    )  # fmt: skip
    search.run()
    return search.result()


# Single taps that are refused before a builder is taken to take none.
_SINGLES = 7

# A run of up to half a gap of healing taps misses one of the two offsets; what is looked at so
# must be long enough to be worth two builds.
_GAP, _LONG = 16, 64


class _OutOfCalls(Exception):
    """Raised by the probe that is not affordable, and caught by the search that made it."""


@dataclass(slots=True)
class _Refinement(Generic[T]):
    """The state of one search: ``open`` items are undecided and relevant."""

    order: tuple[T, ...]
    probe: Callable[[tuple[T, ...]], Look[T]]
    limit: Limit[T] | None
    max_calls: int | None
    favoured: Callable[[T], bool] | None
    calls: int = 0
    most: int | None = None
    taken: int = 0
    refused: bool = False
    late: bool = False
    skimmed: bool = False
    open: set[T] = field(default_factory=set)
    accepted: set[T] = field(default_factory=set)
    healing: set[T] = field(default_factory=set)
    refusing: set[T] = field(default_factory=set)
    too_heavy: set[T] = field(default_factory=set)

    def run(self) -> None:
        self.open = set(self.order)
        try:
            while self.open:
                if not self.taken and len(self.refusing) >= _SINGLES:
                    self.refusing |= self.open
                    self.open = set()
                chunk = self.choose()
                if chunk:
                    self.settle(chunk)
        except _OutOfCalls:
            pass

    def result(self) -> Refined[T]:
        return Refined(
            accepted=self.sort(self.accepted),
            healing=self.sort(self.healing),
            refusing=self.sort(self.refusing),
            too_heavy=self.sort(self.too_heavy),
            untried=self.sort(self.open),
            calls=self.calls,
        )

    def sort(self, items: set[T]) -> tuple[T, ...]:
        return tuple(item for item in self.order if item in items)

    def fits(self, items: set[T]) -> bool:
        count = self.most is None or len(items) <= self.most
        return count and (self.limit is None or self.limit.fits(self.sort(items)))

    def choose(self) -> tuple[T, ...]:
        """Returns what to tap next: all that fits beside the accepted taps, spread evenly."""
        limit = self.limit or Limit(budget=1.0, weight=lambda _: 0.0)
        heavy = {item for item in self.open if not limit.fits((item,))}
        self.too_heavy |= heavy
        self.open -= heavy
        waiting = self.sort(self.open)
        every = len(self.order) if self.most is None else self.most
        # What the accepted taps bound is known: a look that they would half fill goes without.
        room = limit.budget - sum(map(limit.weight, self.sort(self.accepted)))
        count = every - len(self.accepted)
        if room < limit.budget / 2 or (self.most is not None and count < every / 2):
            room, count = limit.budget, every
        chosen = self.spread(limit.weight, waiting, room=room, count=count)
        return chosen or self.spread(limit.weight, waiting, room=limit.budget, count=every)

    def spread(
        self, weight: Callable[[T], float], waiting: tuple[T, ...], *, room: float, count: int
    ) -> tuple[T, ...]:
        """Returns items at about 1/2, 1/4, 3/4, 1/8 … of ``waiting`` until ``room`` is filled."""
        if len(waiting) <= count and sum(map(weight, waiting)) <= room:
            return waiting
        chosen: set[T] = set()
        for item in halving_order(waiting, self.favoured):
            if weight(item) <= room and len(chosen) < count:
                chosen.add(item)
                room -= weight(item)
        return self.sort(chosen)

    def settle(self, chunk: tuple[T, ...]) -> None:
        """Decides every item of ``chunk`` that is still open."""
        if not chunk or self.accepts(chunk) or len(chunk) == 1 or self.crowded(len(chunk)):
            return
        if not self.skims(chunk):
            self.split(chunk, from_right=False)

    def skims(self, chunk: tuple[T, ...]) -> bool:
        """Returns whether a few taps with wide gaps, of a long chunk that heals, are accepted."""
        if self.skimmed or self.refused or len(chunk) < _LONG:
            return False
        self.skimmed = True
        return any(self.accepts(chunk[offset::_GAP]) for offset in (_GAP // 2, 0))

    def crowded(self, size: int) -> bool:
        """Returns whether so many are too many; lowers the most taps of a build accordingly."""
        if self.late:
            return True
        if not self.refused or self.most is None or size <= self.taken:
            return False
        self.most = max(1, self.taken, size // (2 if self.taken else 4))
        return True

    def split(self, chunk: tuple[T, ...], *, from_right: bool) -> None:
        """Decides the items of a chunk that is known to disturb, by halves.

        ``from_right`` tells that the disturbing taps are expected at the left end, beside a
        chunk that disturbs as well: the right half goes first, since when it is accepted the
        other one need not be probed as a whole.
        """
        middle = len(chunk) // 2
        left, right = chunk[:middle], chunk[middle:]
        near, far = (left, right) if from_right else (right, left)
        if self.accepts(far):
            self.settle_remaining(near, from_right=from_right)
            return
        crowd = self.refused
        if self.accepts(near):
            self.settle_remaining(far, from_right=from_right)
        elif crowd and self.refused and middle > self.taken:
            self.most = max(1, self.taken, middle // 2)
        else:
            for half, direction in ((left, False), (right, True)):
                remaining = self.still_open(half)
                if len(half) == 1:
                    continue
                if remaining == half:
                    self.split(half, from_right=direction)
                else:
                    self.settle(remaining)

    def settle_remaining(self, half: tuple[T, ...], *, from_right: bool) -> None:
        """Decides a half whose sister was just accepted.

        Untouched, it must disturb: the two together did.  What is left of it after items were
        dropped may not, and a single item is probed before it is named.
        """
        remaining = self.still_open(half)
        if remaining == half and len(half) > 1:
            self.split(half, from_right=from_right)
        else:
            self.settle(remaining)

    def still_open(self, chunk: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(item for item in chunk if item in self.open)

    def accepts(self, chunk: tuple[T, ...]) -> bool:
        """Probes ``chunk`` beside the accepted taps and takes in what was seen."""
        if self.max_calls is not None and self.calls >= self.max_calls:
            raise _OutOfCalls
        self.calls += 1
        together = self.accepted | set(chunk)
        tapped = together if self.fits(together) else set(chunk)
        look = self.probe(self.sort(tapped))
        self.refused, self.late = look.refused, False
        if look.worth is not None and len(tapped) > 1:
            self.late, self.most = True, max(1, min(len(tapped) // 2, look.worth))
            return False
        if look.accepted:
            self.taken = max(self.taken, len(tapped))
            self.accepted |= set(chunk)
            self.open -= set(chunk)
            if look.relevant is not None:
                self.accepted &= look.relevant
                self.open &= look.relevant
        elif len(chunk) == 1:
            self.open -= set(chunk)
            (self.refusing if look.refused else self.healing).update(chunk)
        return look.accepted
