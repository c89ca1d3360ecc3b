"""One tensor judged: the engine's values against what its operators give for its own inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tapsect.rounding.floors import (
    SMALLEST_NORMAL,
    ZERO,
    Ratios,
    floor_of,
    inner,
    limit_for,
    ratios,
    rms,
    step_of,
)
from tapsect.rounding.storage import fits_half, stored_roundoff

__all__ = ["Judgement", "Told", "judge_floats"]

Array = npt.NDArray[Any]

_LARGEST = {"float16": 65504.0, "bfloat16": 3.38e38, "float32": 3.4028e38}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the replay says of one tensor.

    Attributes:
        tensor: Its name.
        kind: ``ok``, ``accuracy``, ``nonfinite``, ``wrong_shape``, ``wrong_dtype``,
            ``discrete``, or ``not_judged``.
        ratio: The rounding ratio that decided.
        introduced: rms of the introduced error over rms of the replayed tensor.
        floor: rms of what rounding explains, over the same.
        u: Unit roundoff it was judged at.
        region: Operators that replayed it.
        ratios: All three ratios, where numbers exist.
        overflow: Whether the storage type cannot hold what the reference computes.
        corr: Correlation of the introduced error with the value: 1 for a wrong scale.
        why: In words, where ``kind`` alone does not say it.
        alone: Whether its operator was judged at a coarser u than the others of its class.
    """

    tensor: str
    kind: str
    ratio: float = 0.0
    introduced: float | None = None
    u: float = 0.0
    region: frozenset[int] = frozenset()
    ratios: Ratios = ZERO
    overflow: bool = False
    corr: float = 0.0
    why: str = ""
    floor: float | None = None
    alone: bool = False

    @property
    def suspect(self) -> bool:
        """Returns whether rounding does not explain the tensor."""
        return self.kind not in ("ok", "not_judged")


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a tensor before its values are looked at.

    Attributes:
        tensor: Its name.
        u: Unit roundoff it is judged at.
        region: Operators that replayed it.
        largest: Largest number of the stated precision, where its range is narrower than fp32's.
    """

    tensor: str
    u: float
    region: frozenset[int] = field(default=frozenset())
    largest: float | None = None

    def judged(self, kind: str, why: str = "", **facts: Any) -> Judgement:
        """Returns a judgement of this tensor; ratio inf for a suspect without numbers."""
        if kind not in ("ok", "not_judged", "accuracy"):
            facts.setdefault("ratio", float("inf"))
        return Judgement(self.tensor, kind, u=self.u, region=self.region, why=why, **facts)


def judge_floats(
    told: Told, engine: Array, base: Array, spread: Array | None, extra: Array | None = None
) -> Judgement:
    """Returns the judgement of a float tensor.

    Args:
        told: What is known of the tensor.
        engine: The engine's values.
        base: The replayed values, of equal shape.
        spread: Their rms deviation over the noisy samples.
        extra: What accumulation adds to the floor.
    """
    e, y = engine.astype(np.float64), base.astype(np.float64)
    drift = np.zeros(y.shape) if spread is None else spread.astype(np.float64)
    odd = ~(np.isfinite(e) & np.isfinite(y))
    if np.any(odd):
        alike = (e == y) | (np.isnan(e) & np.isnan(y))
        lost = odd & ~alike & np.isfinite(drift)
        if np.any(lost):
            return _one_sided(told, e, y, lost, engine.dtype.name)
        e, y, drift = (np.where(odd, 0.0, v) for v in (e, y, drift))
    found = _measured(told, e, y, drift, engine.dtype.name, 0.0, extra)
    if found.kind == "ok":
        return found
    least = _underflow(engine, e, y, told.u)
    step = step_of(y, drift, told.u, smooth=SMOOTH)
    if not least and not step:
        return found
    return _measured(told, e, y, drift, engine.dtype.name, least, extra, step)


SMOOTH = 16.0
"""An operator that moves by more u of its largest value than this moves in steps."""


def _measured(
    told: Told, e: Array, y: Array, drift: Array, dtype: str, least: float,
    extra: Array | None, step: float = 0.0,
) -> Judgement:  # fmt: skip
    error = e - y
    corr, error = _correlation(error, y), np.abs(error)
    limit, scale = limit_for(told.u), rms(y)
    floor = floor_of(y, drift, told.u, dtype, extra, least=least)
    found = ratios(error, floor, step=step, jump=step)
    return told.judged(
        "accuracy" if found.exceed(limit) else "ok",
        ratio=found.score(limit), ratios=found, corr=corr,
        introduced=rms(error) / (scale or 1.0), floor=rms(floor) / (scale or 1.0),
    )  # fmt: skip


def _underflow(engine: Array, e: Array, y: Array, u: float) -> float:
    """Returns what is lost where the engine's numbers end: half a step, or a flushed subnormal.

    An engine whose tensor fits fp16 or bf16 though it is declared wider has stored it there.
    """
    least = 0.0
    if u >= 2.0**-11 and fits_half(engine):
        least = 2.0**-25
    elif u >= 2.0**-8 and stored_roundoff(engine) in (2.0**-8, None):
        least = 2.0**-134
    small = (np.abs(y) < SMALLEST_NORMAL.get(engine.dtype.name, 0.0)) & (y != 0)
    if np.any(small) and not np.any(e[small]):
        least = max(least, SMALLEST_NORMAL[engine.dtype.name])
    return least


def _one_sided(told: Told, e: Array, y: Array, lost: Array, dtype: str) -> Judgement:
    """Judges elements that are non-finite on one side only: overflow of the type, or a fault."""
    largest = min(_LARGEST.get(dtype, 1.7e308), told.largest or np.inf)
    gone = lost & ~np.isfinite(e)
    with np.errstate(invalid="ignore"):
        if dtype == "float32" and fits_half(e[np.isfinite(e)]):
            largest = 65504.0
        over = bool(np.any(gone) and np.all(np.abs(y[gone]) >= largest * (1 - 2.0**-9)))
    seen = f"{int(np.count_nonzero(lost))} elements are non-finite on one side only"
    return told.judged("nonfinite", seen, overflow=over)


def _correlation(error: Array, y: Array) -> float:
    error, y = error.ravel(), y.ravel()
    a, b = inner(error, error) ** 0.5, inner(y, y) ** 0.5
    return inner(error, y) / (a * b) if a and b else 0.0
