"""One tensor judged: the engine's values against what its operators give for its own inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tapsect.rounding.boxes import Boxed, lazily, parts, wide
from tapsect.rounding.deviation import unlike
from tapsect.rounding.floors import SMALLEST_NORMAL, cosine, floor_of, limit_for, rms
from tapsect.rounding.ratios import ZERO, Ratios, ratios, step_of
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
    e, y = wide(engine), wide(base)
    drift = wide(np.broadcast_to(0.0, y.shape) if spread is None else spread)
    if any(np.any(_odd(*pair)) for pair in parts(e, y)):
        if any(np.any(_lost(*three)) for three in parts(e, y, drift)):
            return _one_sided(told, engine, y, drift)
        e, y, drift = _even(e, y, drift)
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
    told: Told, e: Boxed, y: Boxed, drift: Boxed, dtype: str, least: float,
    extra: Array | None, step: float = 0.0,
) -> Judgement:  # fmt: skip
    gap = lazily(y.shape, lambda box: e[box] - y[box])
    corr, error = _correlation(gap, y), lazily(y.shape, lambda box: np.abs(gap[box]))
    limit, scale = limit_for(told.u), rms(y)
    floor = floor_of(y, drift, told.u, dtype, extra, least=least)
    found = ratios(error, floor, step=step, jump=step)
    return told.judged(
        "accuracy" if found.exceed(limit) else "ok",
        ratio=found.score(limit), ratios=found, corr=corr,
        introduced=rms(error) / (scale or 1.0), floor=rms(floor) / (scale or 1.0),
    )  # fmt: skip


def _odd(e: Array, y: Array) -> Array:
    """Returns which elements are non-finite on a side."""
    return np.asarray(~(np.isfinite(e) & np.isfinite(y)))


def _lost(e: Array, y: Array, drift: Array) -> Array:
    """Returns which are non-finite on one side only, or of other kinds, unlike what noise does."""
    return np.asarray(unlike(e, y) & np.isfinite(drift))


def _even(e: Boxed, y: Boxed, drift: Boxed) -> tuple[Boxed, Boxed, Boxed]:
    """Returns all three with nothing where either side is not finite."""

    def even(values: Boxed) -> Boxed:
        return lazily(y.shape, lambda box: np.where(_odd(e[box], y[box]), 0.0, values[box]))

    return even(e), even(y), even(drift)


def _underflow(engine: Array, e: Boxed, y: Boxed, u: float) -> float:
    """Returns what is lost where the engine's numbers end: half a step, or a flushed subnormal.

    An engine whose tensor fits fp16 or bf16 though it is declared wider has stored it there.
    """
    least = 0.0
    if u >= 2.0**-11 and fits_half(engine):
        least = 2.0**-25
    elif u >= 2.0**-8 and stored_roundoff(engine) in (2.0**-8, None):
        least = 2.0**-134
    edge = SMALLEST_NORMAL.get(engine.dtype.name, 0.0)
    flushed = [p[small] for p, b in parts(e, y) if np.any(small := (np.abs(b) < edge) & (b != 0))]
    if flushed and not any(np.any(part) for part in flushed):
        least = max(least, SMALLEST_NORMAL[engine.dtype.name])
    return least


def _one_sided(told: Told, engine: Array, y: Boxed, drift: Boxed) -> Judgement:
    """Judges elements that are non-finite on one side only: overflow of the type, or a fault."""
    dtype, e = engine.dtype.name, wide(engine)
    largest = min(_LARGEST.get(dtype, 1.7e308), told.largest or np.inf)
    if dtype == "float32" and fits_half(engine[np.isfinite(engine)]):
        largest = 65504.0
    count, gone = 0, list[Array]()
    for ours, theirs, moved in parts(e, y, drift):
        lost = _lost(ours, theirs, moved)
        count += int(np.count_nonzero(lost))
        gone.append(theirs[lost & ~np.isfinite(ours)])
    held = np.concatenate(gone)
    with np.errstate(invalid="ignore"):
        over = bool(held.size and np.all(np.abs(held) >= largest * (1 - 2.0**-9)))
    seen = f"{count} elements are non-finite on one side only"
    return told.judged("nonfinite", seen, overflow=over)


def _correlation(error: Boxed, y: Boxed) -> float:
    """Returns the cosine; 0 where either vanishes."""
    return cosine(error, y) if rms(error) and rms(y) else 0.0
