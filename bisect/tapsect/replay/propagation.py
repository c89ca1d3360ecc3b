"""How much of a tensor's error came to its operator from before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from debugtaps import Array, EngineFailure
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Replay
from tapsect.rounding.boxes import Box, lazily, wide
from tapsect.rounding.deviation import gap, kept
from tapsect.rounding.floors import rms

__all__ = ["Inherited", "inherited"]


@dataclass(frozen=True, slots=True)
class Inherited:
    """What tensors had from before: rms(replayed - reference) over rms(replayed), by tensor.

    ``replayed`` holds the replayed values themselves.
    """

    error: Mapping[str, float] = field(default_factory=dict)
    replayed: Mapping[str, Array] = field(default_factory=dict)


def inherited(
    reference: Reference, feeds: Mapping[str, Array], values: Mapping[str, Array],
    tensors: Sequence[str],
) -> Inherited:  # fmt: skip
    """Returns the inherited error of tensors, in two runs of the reference.

    Args:
        reference: The run we believe.
        feeds: The sample.
        values: What the engine showed; a tensor without a value (a part of a region) has none.
        tensors: Which ones are asked for.
    """
    names = [t for t in tensors if t in values]
    try:
        replayed = Replay(reference, feeds, values).bases(names)
        plain = reference.capture(feeds, list(replayed)) if replayed else {}
    except EngineFailure:
        return Inherited()
    found = {t: _error(replayed[t], plain[t]) for t in replayed if t in plain}
    return Inherited({t: e for t, e in found.items() if e is not None}, replayed)


def _error(replayed: Array, plain: Array) -> float | None:
    if replayed.shape != plain.shape or replayed.dtype.kind != "f":
        return None
    y, r = wide(replayed), wide(plain)

    def even(box: Box) -> Array:
        return np.where(np.isfinite(r[box]), y[box], 0.0)

    scale = rms(kept(lazily(y.shape, even)))
    return rms(gap(replayed, plain)) / scale if scale else None
