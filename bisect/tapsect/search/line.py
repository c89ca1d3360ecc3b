"""The first bad position on a line, when some positions cannot be judged.

A bisection that survives what real probes do: some candidates do not build (``INVALID``), some
answer differently each time (``UNSTABLE``).  Neither is good nor bad; the search steps aside, as
``git bisect skip`` does, and says so when that leaves more than one position open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tapsect.verdict import Verdict

__all__ = ["LineResult", "first_bad"]


@dataclass(frozen=True, slots=True)
class LineResult:
    """Where a line turns bad.

    Attributes:
        index: The smallest position that was seen bad.
        low: The largest position below ``index`` that was seen good.
        calls: How many positions were asked, repeats included.
        monotone: Whether ``low`` and ``index`` are neighbours and, asked again, answered alike.
        skipped: The positions between ``low`` and ``index`` that could not be judged, sorted.
    """

    index: int
    low: int
    calls: int
    monotone: bool
    skipped: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing lies between the last good and the first bad position."""
        return self.index - self.low == 1


def first_bad(
    n: int,
    is_bad: Callable[[int], Verdict],
    *,
    hint: int | None = None,
    recheck: int = 1,
    max_skips: int = 16,
) -> LineResult:
    """Returns where the positions ``0..n`` turn from good to bad.

    Positions are prefix lengths.  The caller has seen that ``0`` is good and ``n`` is bad;
    ``0`` (nothing at all) is never asked.

    Args:
        n: The last position, known to be bad.
        is_bad: What one look at a position says; ``DIVERGES`` is bad, ``AGREES`` is good, and
            anything else is stepped around.
        hint: The position believed to be the answer.  It is asked first, then positions at
            distances 1, 2, 4 … from it.
        recheck: How often each border is asked again at the end.
        max_skips: How many positions in a row may fail to be judged before the search stops
            and returns the bracket that it has.

    Returns:
        The border.  ``exact`` is false when positions that cannot be judged lie inside it.

    Raises:
        ValueError: There is no position to search (``n < 1``).

    Notes:
        Cost: at most ``ceil(log2(n)) + 2 * recheck`` calls without skips; with a hint that is
        d away from the answer, about ``2 * log2(d) + 2``.
        Guarantee: ``index`` was seen bad and ``low`` was seen good, so the result is a true
        border, whatever the rest of the line does.
        Non-guarantee: when bad positions may be followed by good ones, it is *a* border, not
        the first; ``monotone`` only says that this border answered alike when asked again.

    References:
        J. L. Bentley, A. C.-C. Yao, "An almost optimal algorithm for unbounded searching",
        Information Processing Letters 5 (1976), doi:10.1016/0020-0190(76)90071-5.
        The manual of ``git bisect``, section "Bisect skip".

    Examples:
        >>> first_bad(600, lambda i: Verdict.DIVERGES if i >= 417 else Verdict.AGREES)
        LineResult(index=417, low=416, calls=11, monotone=True, skipped=())
        >>> first_bad(600, lambda i: Verdict.DIVERGES if i >= 417 else Verdict.AGREES,
        ...           hint=417, recheck=0).calls
        2
    """
    if n < 1:
        raise ValueError(f"a line needs a bad end: n is {n}, expected at least 1")
    line = _Line(high=n, is_bad=is_bad)
    if hint is not None:
        line.gallop(min(max(hint, 1), n))
    line.bisect(max_skips)
    held = line.borders_hold(recheck)
    return LineResult(
        index=line.high,
        low=line.low,
        calls=line.calls,
        monotone=held and line.high - line.low == 1,
        skipped=tuple(sorted(p for p in line.skipped if line.low < p < line.high)),
    )


@dataclass(slots=True)
class _Line:
    """The bracket ``(low, high]`` that holds the border, and what it cost so far."""

    high: int
    is_bad: Callable[[int], Verdict]
    low: int = 0
    calls: int = 0
    skipped: set[int] = field(default_factory=set)

    def ask(self, position: int) -> Verdict:
        self.calls += 1
        verdict = self.is_bad(position)
        if verdict is Verdict.DIVERGES:
            self.high = position
        elif verdict is Verdict.AGREES:
            self.low = position
        else:
            self.skipped.add(position)
        return verdict

    def gallop(self, hint: int) -> None:
        """Narrows the bracket from ``hint`` outwards, in steps that double."""
        if hint < self.high:
            self.ask(hint)
        step = 1
        if self.high <= hint:
            while self.high - step > self.low and self.ask(self.high - step) is Verdict.DIVERGES:
                step *= 2
        elif self.low == hint:
            while self.low + step < self.high and self.ask(self.low + step) is Verdict.AGREES:
                step *= 2

    def bisect(self, max_skips: int) -> None:
        skips = 0
        while skips < max_skips:
            position = next(self.open_positions(), None)
            if position is None:
                return
            verdict = self.ask(position)
            skips = 0 if verdict in (Verdict.DIVERGES, Verdict.AGREES) else skips + 1

    def open_positions(self) -> Iterator[int]:
        """Yields what may be asked next: the middle, then ever further from it.

        The distance doubles before it is filled in: positions that cannot be built come in
        runs, and stepping aside one by one would walk the whole run.
        """
        middle = (self.low + self.high) // 2
        reach = self.high - self.low
        doubling = [0] + [1 << k for k in range(reach.bit_length())]
        for distance in [*doubling, *range(reach)]:
            for position in (middle + distance, middle - distance):
                if self.low < position < self.high and position not in self.skipped:
                    yield position

    def borders_hold(self, times: int) -> bool:
        """Returns whether both borders, asked again, answer as before."""
        borders = [(self.high, Verdict.DIVERGES)]
        if self.low > 0:
            borders.append((self.low, Verdict.AGREES))
        for position, expected in borders * times:
            self.calls += 1
            if self.is_bad(position) is not expected:
                return False
        return True
