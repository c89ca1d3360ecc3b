"""The culprit on a line, when a bad position only sometimes shows that it is bad.

A build that fails seven times of ten turns every "good" into a maybe: one lucky pass sends a
bisection down the wrong half for ever.  Here each answer only moves probabilities:

    position     0     1     2     3     4     5     6     7
    before      .12   .12   .12   .12   .12   .12   .12   .12
    prefix 4 passes once, a fault fires at 0.7
    after       .06   .06   .06   .06   .19   .19   .19   .19

The next prefix is the one whose answer is expected to tell most.  The answer comes with what is
believed of it, and says when that is not enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from tapsect.verdict import Verdict

__all__ = ["Firing", "NoisyResult", "noisy_first_bad", "repeats_for"]

# Rates that are told apart: a grid is enough, since the answer is a position, not a rate.
_RATES = tuple((2 * n + 1) / 20 for n in range(10)) + (0.99,)
# How often a candidate that lacks the culprit fails all the same.
_STRAY = 1e-3


@dataclass(frozen=True, slots=True)
class Firing:
    """How often the whole was seen to fail: ``failed`` of ``of`` times.

    Attributes:
        failed: Runs of the whole that failed.
        of: Runs of the whole.
    """

    failed: int
    of: int

    @property
    def rate(self) -> float:
        """Returns the expected rate (a uniform prior, so that 3 of 3 is not "always")."""
        return (self.failed + 1) / (self.of + 2)

    def prior(self) -> list[float]:
        """Returns how likely each rate of the grid is."""
        passed = self.of - self.failed
        weights = [rate**self.failed * (1 - rate) ** passed for rate in _RATES]
        total = sum(weights)
        return [weight / total for weight in weights]


@dataclass(frozen=True, slots=True)
class NoisyResult:
    """Where a fault that fires now and then most probably sits.

    Attributes:
        index: The most probable position: the smallest prefix length that holds the fault.
        confidence: The probability that it is this one.
        sure: Whether that reached what was asked for.
        calls: How many looks it took; those that could not be judged count.
        rate: How often the fault fires, as believed at the end.
        least: The rate that it has with a probability of 95 % or more: what repeats go by.
        likely: The positions that together hold 95 % of the probability, best first.
    """

    index: int
    confidence: float
    sure: bool
    calls: int
    rate: float
    least: float
    likely: tuple[int, ...]


def repeats_for(rate: float, *, miss: float = 1e-3) -> int:
    """Returns how many passes in a row prove that a fault of this rate is not there.

    >>> repeats_for(0.7), repeats_for(0.3)
    (6, 20)
    """
    if rate >= 1.0:
        return 1
    return max(1, math.ceil(math.log(miss) / math.log(1.0 - max(rate, 0.01))))


def noisy_first_bad(
    n: int,
    is_bad: Callable[[int], Verdict],
    *,
    firing: Firing,
    confidence: float = 0.99,
    max_calls: int | None = None,
) -> NoisyResult:
    """Returns which of the prefix lengths ``1..n`` is the first that holds the fault.

    Args:
        n: The last position: the whole, which was seen to fail.
        is_bad: One look at a prefix: ``DIVERGES`` when it failed this time, ``AGREES`` when it
            did not; anything else is no evidence and is not asked again.
        firing: How often the whole fails.
        confidence: How probable the answer must be.
        max_calls: Most looks; ``None`` means ``10 * log2(n) / rate + 50``.

    Returns:
        The most probable position and what is believed of it.  When ``sure`` is false the looks
        ran out, or no look could tell more.

    Notes:
        Each look costs ``O(n)`` arithmetic.  For a fault that fires at rate r about
        ``log2(n) / C(r)`` looks are made, where C is the capacity of the channel "a prefix that
        holds the fault fails at r, one that does not never does" (0.50 bit at r = 0.7), and
        some ten more to be sure.
        Guarantee: with one culprit, and a rate that is the same in all prefixes that hold it,
        the answer is wrong no more often than ``1 - confidence``.
        Non-guarantee: where the rate differs between prefixes the posterior is an approximation:
        the caller must look at the answer again, as at any other.

    References:
        M. Ben-Or, A. Hassidim, "The Bayesian learner is optimal for noisy binary search",
        FOCS 2008, doi:10.1109/FOCS.2008.58.

    Examples:
        >>> import random
        >>> draw = random.Random(4)
        >>> def look(length):
        ...     fires = length >= 417 and draw.random() < 0.7
        ...     return Verdict.DIVERGES if fires else Verdict.AGREES
        >>> found = noisy_first_bad(600, look, firing=Firing(7, 10))
        >>> found.index, found.sure
        (417, True)

    Raises:
        ValueError: There is no position to search (``n < 1``).
    """
    if n < 1:
        raise ValueError(f"a line needs a bad end: n is {n}, expected at least 1")
    belief = _Belief(n, firing)
    most = max_calls
    if most is None:
        most = math.ceil(10 * math.log2(n + 1) / firing.rate) + 50
    calls, blind = 0, set[int]()
    while calls < most and belief.best()[1] < confidence:
        position = belief.most_telling(blind)
        if position is None:
            break
        calls += 1
        verdict = is_bad(position)
        if verdict is Verdict.DIVERGES:
            belief.learn(position, failed=True)
        elif verdict is Verdict.AGREES:
            belief.learn(position, failed=False)
        else:
            blind.add(position)
    index, probability = belief.best()
    return NoisyResult(
        index=index,
        confidence=probability,
        sure=probability >= confidence,
        calls=calls,
        rate=belief.rate(),
        least=belief.least(0.05),
        likely=belief.likely(0.95),
    )


class _Belief:
    """What is believed of position and rate together.

    One row of weights a rate; ``weights[r][i]`` belongs to "the fault needs the prefix i + 1 and
    fires at rate r".
    """

    def __init__(self, n: int, firing: Firing) -> None:
        prior = firing.prior()
        kept = [(rate, weight) for rate, weight in zip(_RATES, prior, strict=True) if weight > 1e-4]
        self.rates = [rate for rate, _ in kept]
        self.weights = [[weight / n] * n for _, weight in kept]

    def learn(self, length: int, *, failed: bool) -> None:
        """Takes in one look at the prefix of ``length``."""
        for row, rate in zip(self.weights, self.rates, strict=True):
            inside = rate if failed else 1.0 - rate
            outside = _STRAY if failed else 1.0 - _STRAY
            row[:length] = [weight * inside for weight in row[:length]]
            row[length:] = [weight * outside for weight in row[length:]]
        total = sum(map(sum, self.weights))
        self.weights = [[weight / total for weight in row] for row in self.weights]

    def positions(self) -> list[float]:
        """Returns how probable each position is, whatever the rate."""
        return [sum(column) for column in zip(*self.weights, strict=True)]

    def best(self) -> tuple[int, float]:
        """Returns the most probable position, the smaller of equals, and its probability."""
        found = self.positions()
        top = max(found)
        return found.index(top) + 1, top

    def likely(self, share: float) -> tuple[int, ...]:
        """Returns the positions that together hold ``share``, best first."""
        ranked = sorted(enumerate(self.positions(), 1), key=lambda pair: (-pair[1], pair[0]))
        sums = accumulate(probability for _, probability in ranked)
        count = next((k for k, held in enumerate(sums, 1) if held >= share), len(ranked))
        return tuple(position for position, _ in ranked[:count])

    def rate(self) -> float:
        """Returns the expected rate."""
        held = [sum(row) for row in self.weights]
        return sum(rate * share for rate, share in zip(self.rates, held, strict=True))

    def least(self, share: float) -> float:
        """Returns the smallest rate that is not among the least ``share`` of the belief."""
        sums = accumulate(sum(row) for row in self.weights)
        held = zip(self.rates, sums, strict=True)
        return next((rate for rate, total in held if total >= share), self.rates[-1])

    def most_telling(self, blind: set[int]) -> int | None:
        """Returns the prefix whose answer is expected to tell most of the position.

        Told is the entropy of the answer less what is left of it when the position is known.
        The rate is averaged: to tell rates apart is worth nothing by itself.
        """
        rate = self.rate()
        inside = [0.0, *accumulate(self.positions())]
        best: tuple[float, int] | None = None
        for length in range(1, len(inside)):
            if length not in blind:
                gain = _gain(min(inside[length], 1.0), rate)
                if best is None or gain > best[0] + 1e-12:
                    best = (gain, length)
        return best[1] if best is not None and best[0] > 1e-9 else None


def _gain(inside: float, rate: float) -> float:
    fails = inside * rate + (1.0 - inside) * _STRAY
    return _entropy(fails) - inside * _entropy(rate) - (1.0 - inside) * _entropy(_STRAY)


def _entropy(p: float) -> float:
    return -sum(q * math.log2(q) for q in (p, 1.0 - p) if q > 0.0)
