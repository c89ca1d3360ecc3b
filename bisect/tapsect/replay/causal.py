"""From suspect to culprit: does this one error, alone, move the model's outputs?

The uncut reference runs once a suspect with only that suspect's introduced error added at its
tensor (or its elements replaced, where they are non-finite or discrete).  An error that moves
nothing is harmless, however large its ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from debugtaps import Array, EngineFailure, Perturbed, Plan, error_name, mask_name, perturb
from tapsect.replay.reference import Reference
from tapsect.rounding.boxes import Boxed, boxes, lazily, parts, wide
from tapsect.rounding.deviation import CHANCE, end_floor, unlike
from tapsect.rounding.floors import limit_for, rms
from tapsect.rounding.outputs import End, Measured
from tapsect.rounding.ratios import ratios

__all__ = ["Effect", "causal_test"]

MOST_SUSPECTS = 20


@dataclass(frozen=True, slots=True)
class Effect:
    """What one suspect's error does to the outputs.

    Attributes:
        floors: The largest move of an output, in end-to-end floors.
        share: Its size over the failing output's whole error, the largest over outputs.
        culprit: Whether that is enough for blame.
    """

    floors: float
    share: float
    culprit: bool


def causal_test(
    reference: Reference,
    feeds: Mapping[str, Array],
    errors: Mapping[str, tuple[Array, Array]],
    ends: Sequence[End],
    measured: Measured,
    engine: Mapping[str, Array],
    end_limit: float,
) -> dict[str, Effect]:
    """Returns the effect of each suspect.

    Args:
        reference: The uncut reference.
        feeds: The sample.
        errors: Suspect -> (engine value, replayed value), of equal shape.
        ends: The judged outputs.
        measured: The reference's outputs and their end-to-end spread.
        engine: The engine's outputs.
        end_limit: F at the stated precision.
    """
    suspects = list(errors)
    added = [t for t in suspects if _is_addition(*errors[t])]
    replaced = [t for t in suspects if t not in added]
    wide = reference.wide
    plan = Plan(
        nodes=range(len(wide.nodes)), added=added, replaced=replaced, values=list(wide.outputs)
    )
    made = perturb(wide, plan)
    rest = _idle(made, errors, added, replaced)
    try:
        build = reference.build(made, "causal")
    except EngineFailure:  # it lacks an operator of the model: the ratios alone must do
        return {t: Effect(0.0, 0.0, culprit=True) for t in suspects}
    effects = {}
    reference.host.put("causal", {**reference.named(made, feeds), **rest})
    try:
        for tensor in suspects:
            given = _active(tensor, *errors[tensor], added=tensor in added)
            try:
                moved = build.run(given, resident="causal")
            except EngineFailure:  # the error alone breaks the run: it matters
                effects[tensor] = Effect(float("inf"), 1.0, culprit=True)
                continue
            effects[tensor] = _effect(reference, moved, ends, measured, engine, end_limit)
    finally:
        reference.host.drop("causal")
        build.close()
    return effects


def _is_addition(engine: Array, replayed: Array) -> bool:
    if replayed.dtype.kind != "f" or replayed.dtype == np.bool_:
        return False
    return all(bool(np.isfinite(part).all()) for (part,) in parts(wide(engine))) and all(
        bool(np.isfinite(part).all()) for (part,) in parts(replayed)
    )


def _idle(
    made: Perturbed, errors: Mapping[str, tuple[Array, Array]],
    added: Sequence[str], replaced: Sequence[str],
) -> dict[str, Array]:  # fmt: skip
    idle: dict[str, Array] = {}
    for tensor in added:
        idle[error_name(tensor)] = np.zeros_like(errors[tensor][1])
    for tensor in replaced:
        replayed = errors[tensor][1]
        idle[mask_name(tensor)] = np.zeros(replayed.shape, dtype=bool)
        idle[f"value::{tensor}"] = np.zeros_like(replayed)
    return idle


def _active(tensor: str, engine: Array, replayed: Array, *, added: bool) -> dict[str, Array]:
    if added:
        error = np.empty(replayed.shape, replayed.dtype)
        e, y = wide(engine), wide(replayed)
        for box in boxes(error.shape):
            error[box] = e[box] - y[box]
        return {error_name(tensor): error}
    value = engine.astype(replayed.dtype)
    same = (value == replayed) | ((value != value) & (replayed != replayed))
    return {mask_name(tensor): ~same, f"value::{tensor}": value}


def _effect(
    reference: Reference, moved: Mapping[str, Array], ends: Sequence[End],
    measured: Measured, engine: Mapping[str, Array], end_limit: float,
) -> Effect:  # fmt: skip
    floors, share = 0.0, 0.0
    failing = {e.name for e in ends if e.failing}
    for name, after in moved.items():
        base = measured.base.get(name)
        if base is None:
            continue
        if after.shape != base.shape:
            return Effect(float("inf"), 1.0, culprit=True)
        size = _move(after, base, measured.spread.get(name), reference.roundoff(name))
        floors = max(floors, size)
        if name in failing and name in engine and engine[name].shape == base.shape:
            share = max(share, _share(after, base, engine[name]))
    return Effect(floors, share, culprit=floors > end_limit or share >= 0.5)


def _move(after: Array, base: Array, spread: Array | None, u: float) -> float:
    if base.dtype.kind != "f":
        return float("inf") if np.any(after != base) else 0.0
    a, b = wide(after), wide(base)
    if any(np.any(unlike(x, y)) for x, y in parts(a, b)):
        return float("inf")
    drift = wide(np.broadcast_to(0.0, b.shape) if spread is None else spread)
    error = lazily(b.shape, lambda box: np.abs(_less(a[box], b[box])))
    moved = lazily(b.shape, lambda box: np.where(_finite(a[box], b[box]), drift[box], 0.0))
    found = ratios(error, end_floor(b, moved, u), chance=CHANCE)
    limit = limit_for(u)
    isolated = found.element >= limit.element and found.contrast >= 8.0
    return max(found.norm, found.slice, found.element if isolated else 0.0)


def _share(after: Array, base: Array, engine: Array) -> float:
    """Returns how much of the failing output's error this move makes."""
    if base.dtype.kind in "OUS":
        return float(bool(np.any(after != base)))
    a, b, e = wide(after), wide(base), wide(engine)
    lost = also = 0
    for x, y, z in parts(a, b, e):
        gone = np.isfinite(z) != np.isfinite(y)
        lost += int(np.count_nonzero(gone))
        also += int(np.count_nonzero(gone & (np.isfinite(x) != np.isfinite(y))))
    if lost:
        return also / lost

    def off(values: Boxed) -> float:
        return rms(lazily(b.shape, lambda box: _less(values[box], b[box], a[box], e[box])))

    whole = off(e)
    return off(a) / whole if whole else 0.0


def _less(x: Array, y: Array, *others: Array) -> Array:
    """Returns x - y, with nothing where any of all is not finite."""
    with np.errstate(invalid="ignore"):
        return np.where(_finite(x, y, *others), x - y, 0.0)


def _finite(*arrays: Array) -> Array:
    found = np.isfinite(arrays[0])
    for each in arrays[1:]:
        found &= np.isfinite(each)
    return np.asarray(found)
