"""What a coarse precision does to the outputs: noise on every edge, and values really rounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from debugtaps import Array
from tapsect.replay.precision import Classes
from tapsect.replay.reference import Reference
from tapsect.rounding.outputs import Measured

__all__ = ["coarse_ends"]


def coarse_ends(
    reference: Reference, feeds: Mapping[str, Array], classes: Classes, *, samples: int,
    rounded: Mapping[str, Array], coherent: bool = False,
) -> Measured:  # fmt: skip
    """Returns the outputs and their spread at the precision of each class of operators.

    Args:
        reference: The run we believe.
        feeds: The sample.
        classes: Unit roundoff of contractions and of the rest.
        samples: Noisy runs.
        rounded: Outputs of a run whose edges are rounded (:meth:`Reference.narrowed`): the
            spread is widened where they leave the base further.
        coherent: Whether roundings may all point one way: weights round alike wherever they are
            used, and some kernels cut low bits off.
    """
    measured = reference.ends(
        feeds, samples=samples, level=classes.rest, contraction=classes.contraction
    )
    widest = dict(measured.spread)
    if coherent:
        one_way = reference.ends(
            feeds, samples=2, level=classes.rest, contraction=classes.contraction, coherent=True
        )
        widest = {n: np.maximum(s, one_way.spread.get(n, s)) for n, s in widest.items()}
    for name, drift in widest.items():
        if name in rounded and rounded[name].shape == drift.shape:
            base = measured.base[name].astype(np.float64)
            moved = np.abs(rounded[name].astype(np.float64) - base)
            widest[name] = np.maximum(drift, np.where(np.isfinite(moved), moved, 0.0))
    return replace(measured, spread=widest)
