"""How often something happens, from how often it was seen: a rate and its interval."""

from __future__ import annotations

import math

__all__ = ["alike_for", "interval"]

_Z = 1.959963984540054  # of the normal distribution: 95 % lie within


def interval(seen: int, of: int) -> tuple[float, float]:
    """Returns the 95 % interval of a rate that showed itself ``seen`` of ``of`` times.

    Wilson's score interval: the rates that a normal test at 5 % does not reject.  It never leaves
    0 … 1 and holds for few looks and for none or all of them, where rate ± 2 deviations is a
    point.

    References:
        E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
        J. Am. Stat. Assoc. 22 (1927), doi:10.1080/01621459.1927.10502953.

    >>> [round(end, 3) for end in interval(7, 10)]
    [0.397, 0.892]
    >>> [round(end, 3) for end in interval(0, 20)], interval(0, 0)
    ([0.0, 0.161], (0.0, 1.0))
    """
    if of == 0:
        return 0.0, 1.0
    rate, spread = seen / of, _Z * _Z / of
    middle = rate + spread / 2
    half = math.sqrt(spread * (rate * (1 - rate) + spread / 4))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    return (0.0 if seen == 0 else low), (1.0 if seen == of else high)


def alike_for(rate: float, *, miss: float = 0.05) -> int:
    """Returns how many equal answers in a row rule out that the other one has this rate.

    >>> alike_for(0.05), alike_for(0.3, miss=0.001)
    (59, 20)
    """
    return math.ceil(math.log(miss) / math.log(1 - rate))
