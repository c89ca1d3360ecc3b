"""Fold what derives from constants alone into one constant, where that is not too large.

Shape ─▶ Gather ─▶ Concat ─▶ Reshape        [2, 1, 8] ─▶ Reshape
"""

from __future__ import annotations

from collections.abc import Callable

from debugtaps import fold
from tapsect.reduction import Asked
from tapsect.simplify.specimen import Specimen, changed

__all__ = ["DEFAULT_THRESHOLD", "fold_constants"]

DEFAULT_THRESHOLD = 1 << 24


def fold_constants(threshold: int) -> Callable[[Asked[Specimen]], None]:
    """Returns the pass that folds results of at most ``threshold`` bytes."""

    def run(problem: Asked[Specimen]) -> None:
        """Proposes the model with its constants folded.

        Guarantees to have tried: folding all at once.
        Cost: one question.
        """
        folded = _folded(problem.current, threshold)
        if folded is not None:
            problem.consider(folded)

    return run


def _folded(origin: Specimen, threshold: int) -> Specimen | None:
    made = fold(origin.proto, most=threshold)
    return None if made is None else changed(origin, made, "constants folded")
