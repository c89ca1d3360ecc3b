"""Feed the value that a node read in the given model.

    [a]─▶ (B bypassed) ─▶ C        [b]─▶ C

What is taken back is a bypass that joins nothing any more.
"""

from __future__ import annotations

from dataclasses import replace

from tapsect.reduction.problem import Reducible

__all__ = ["feed_directly"]


def feed_directly(problem: Reducible) -> None:
    """Proposes to take back each bypass that ends in a fed tensor.

    A bypass matters while it joins two kept nodes.  Where the writer is gone, the reader is
    better shown with the values that it had.

    Guarantees to have tried: taking back each such bypass by itself.
    Cost: at most one question for each bypass.
    """
    for pair in problem.current.bypass:
        current = problem.current
        if problem.structure.producer(pair[1]) not in current.nodes:
            kept = tuple(other for other in current.bypass if other != pair)
            problem.consider(replace(current, bypass=kept))
