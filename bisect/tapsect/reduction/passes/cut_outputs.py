"""Look at fewer tensors.

    A ─▶ B ─▶ [o1]          A ─▶ B ─▶ [o1]
     └─▶ C ─▶ [o2]

Whatever only the others needed goes with them.
"""

from __future__ import annotations

from tapsect.candidate import looking_at
from tapsect.reduction.problem import Reducible
from tapsect.search.subsets import minimal_subset

__all__ = ["cut_outputs"]


def cut_outputs(problem: Reducible) -> None:
    """Proposes candidates that look at a subset of the outputs, by halves.

    Guarantees to have tried: looking at all outputs but one, for each of them.
    Cost: about ``2 * log2(outputs)`` when one output suffices.
    """
    origin = problem.current

    def fails(outputs: tuple[str, ...]) -> bool:
        return problem.consider(looking_at(problem.structure, origin, outputs))

    minimal_subset(origin.outputs, fails)
