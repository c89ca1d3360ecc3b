"""How much of a tensor's error came to its operator from before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from debugtaps import Array, EngineFailure
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Replay
from tapsect.rounding.floors import rms

__all__ = ["propagated"]


def propagated(
    reference: Reference, feeds: Mapping[str, Array], values: Mapping[str, Array], tensor: str
) -> float | None:
    """Returns rms(replayed - reference) over rms(replayed), or ``None`` where there is none."""
    if tensor not in values:  # a part of a region: no build showed it
        return None
    try:
        replayed = Replay(reference, feeds, values).bases([tensor]).get(tensor)
        plain = reference.capture(feeds, [tensor]).get(tensor)
    except EngineFailure:
        return None
    if replayed is None or plain is None or replayed.shape != plain.shape:
        return None
    if replayed.dtype.kind != "f":
        return None
    y, r = replayed.astype(np.float64), plain.astype(np.float64)
    finite = np.isfinite(y) & np.isfinite(r)
    y, r = np.where(finite, y, 0.0), np.where(finite, r, 0.0)
    scale = rms(y)
    return rms(y - r) / scale if scale else None
