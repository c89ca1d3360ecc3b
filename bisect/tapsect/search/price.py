"""How many items to look at in one build, when each of them makes the build dearer."""

from __future__ import annotations

import math

__all__ = ["cheapest", "rounds"]


def rounds(n: int, m: int) -> int:
    """Returns how many builds find one place among ``n``, when each divides by ``m`` items.

    Examples:
        >>> rounds(600, 1), rounds(600, 24), rounds(600, 600)
        (10, 2, 1)
    """
    places, found = n + 1, 0
    while places > 1:
        places, found = -(-places // (m + 1)), found + 1
    return found


def cheapest(n: int, base: float, each: float) -> int:
    """Returns how many of ``n`` items to look at in one build, so that all builds cost least.

    Args:
        n: How many items there are, at least 1.
        base: What a build costs with none of them.
        each: What each item adds.

    Notes:
        Only the smallest count for each number of rounds can be the cheapest.

    Examples:
        Where items cost nothing, all at once; where they cost most, one at a time:

        >>> cheapest(600, base=60.0, each=0.0), cheapest(600, base=0.0, each=1.0)
        (600, 1)
        >>> cheapest(600, base=60.0, each=5.0)
        8
    """
    counts = {math.ceil(math.pow(n + 1, 1 / r)) - 1 for r in range(1, rounds(n, 1) + 1)}
    usable = [min(n, max(1, m + d)) for m in counts for d in (0, 1)]  # roots are not exact
    return min(usable, key=lambda m: (rounds(n, m) * (base + each * m), m))
