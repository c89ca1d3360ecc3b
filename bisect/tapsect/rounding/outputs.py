"""Which outputs fail: the engine's answer against the end-to-end floor of the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps import Tolerance
from tapsect.rounding.boxes import Boxed, lazily, parts, wide
from tapsect.rounding.deviation import end_floor, end_ratios, gap, kept, nonfinite
from tapsect.rounding.discrete import differing
from tapsect.rounding.floors import Limit, cosine, rms

__all__ = [
    "End",
    "Measured",
    "judge_output",
    "same_answer",
    "same_failure",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """Values without noise, by tensor, and what noise did to them."""

    base: Mapping[str, Array]
    spread: Mapping[str, Array]
    changed: Mapping[str, Array]
    kept: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class End:
    """One output of one sample, judged.

    Attributes:
        name: The output.
        kind: Why it is in question, in the words of ``result.json``; None when it agrees.
        floors: The ratio that decided, in end-to-end floors.
        error: rms error over finite elements.
        scale: rms of the reference.
        floor: rms of the end-to-end floor.
        max_abs: Largest absolute error over finite elements.
        cosine: Between the two answers.
        nonfinite_engine, nonfinite_reference: Counts.
        reason: The decision in words.
        norm: The ratio over the whole tensor.
    """

    name: str
    kind: str | None
    floors: float = 0.0
    error: float | None = None
    scale: float | None = None
    floor: float | None = None
    max_abs: float | None = None
    cosine: float | None = None
    nonfinite_engine: int = 0
    nonfinite_reference: int = 0
    reason: str = ""
    norm: float = 0.0

    def doubtful(self, bar: float) -> bool:
        """Returns whether a slice or an element alone decided: few samples may miss its floor."""
        return self.kind == "accuracy" and self.norm <= bar and math.isfinite(self.floors)

    @property
    def failing(self) -> bool:
        """Returns whether the output is in question."""
        return self.kind is not None


def judge_output(
    name: str,
    engine: Array | None,
    measured: Measured,
    u: float,
    limit: Limit,
    *,
    dtype: str | None = None,
    tolerance: Tolerance | None = None,
    explained: Array | None = None,
) -> End:
    """Returns the judgement of one output.

    Args:
        name: The output.
        engine: What the engine answered; None when it left the output out.
        measured: The reference's values and what noise does to them.
        u: Stated unit roundoff of this output.
        limit: Thresholds at the stated precision.
        dtype: The type the model declares; another one is a fault.
        tolerance: The user's own rule, in place of floors.
        explained: For discrete outputs, the elements that rounding explains; where the shape
            differs, whether it explains that.
    """
    base = measured.base.get(name)
    if engine is None:
        return End(name, "missing_output", float("inf"), reason="the engine left this output out")
    if base is None:
        return End(name, None, reason="the reference gives no value; not judged")
    if engine.shape != base.shape:
        seen = f"shape {list(engine.shape)}, reference {list(base.shape)}"
        if explained is not None and np.all(explained):
            return End(name, None, reason=f"{seen}: noise changes it, too")
        return End(name, "wrong_shape", float("inf"), reason=seen)
    if dtype is not None and engine.dtype.name != dtype:
        seen = f"type {engine.dtype.name}, the model declares {dtype}"
        return End(name, "wrong_dtype", float("inf"), reason=seen)
    if base.dtype.kind != "f":
        return _discrete(name, engine, base, tolerance, explained)
    return _floats(name, engine, base, measured.spread.get(name), u, limit, tolerance)


def _discrete(
    name: str, engine: Array, base: Array, tolerance: Tolerance | None, explained: Array | None
) -> End:
    wrong = differing(engine, base)
    if explained is not None:
        wrong = wrong & ~explained
    count = int(np.count_nonzero(wrong))
    if tolerance is not None and engine.dtype.kind in "iu":
        why = tolerance.exceeded(name, engine, base)
        kind = None if why is None else "accuracy"
        return End(name, kind, float(count), reason=why or "within the tolerance given")
    if not count:
        return End(name, None, 0.0, error=0.0, reason="equal, or explained by rounding")
    return End(
        name, "accuracy", float("inf"),
        error=_distance(engine, base), max_abs=None,
        reason=f"{count} of {engine.size} elements differ and rounding explains none of them",
    )  # fmt: skip


def _distance(a: Array, b: Array) -> float | None:
    if a.dtype.kind in "OUSb" or b.dtype.kind in "OUSb":
        return None
    x, y = wide(a), wide(b)
    return rms(lazily(a.shape, lambda box: x[box] - y[box]))


def _floats(
    name: str, engine: Array, base: Array, spread: Array | None, u: float, limit: Limit,
    tolerance: Tolerance | None,
) -> End:  # fmt: skip
    e, r, shape = wide(engine), wide(base), base.shape
    drift = wide(np.broadcast_to(0.0, shape) if spread is None else spread)
    counts, lost = nonfinite(e, r, drift)

    def finite(values: Boxed, other: Boxed) -> Boxed:
        """Returns values with nothing where either side is not finite."""
        if not any(counts.values()):
            return values
        return lazily(shape, lambda box: np.where(np.isfinite(other[box]), kept(values)[box], 0.0))

    ours, theirs = finite(e, r), finite(r, e)
    error = lazily(shape, lambda box: np.abs(ours[box] - theirs[box]))
    floor = end_floor(r, drift, u)
    size = rms(kept(floor))
    found = end_ratios(error, floor, size, r, drift, u, limit)
    facts: dict[str, Any] = {
        "error": rms(error), "scale": rms(kept(r)), "floor": size,
        "max_abs": max((float(p.max(initial=0.0)) for (p,) in parts(error)), default=0.0),
        "cosine": cosine(theirs, ours), **counts, "norm": found.norm,
    }  # fmt: skip
    if lost:
        seen = f"{lost} elements are non-finite on one side only"
        return End(name, "nonfinite", float("inf"), reason=seen, **facts)
    if tolerance is not None:
        why = tolerance.exceeded(name, engine, base)
        kind = None if why is None else "accuracy"
        return End(
            name, kind, found.score(limit), reason=why or "within the tolerance given", **facts
        )
    score = found.score(limit)
    failing = found.exceed(limit, norm=limit.end)
    seen = f"error is {score:.3g} end-to-end floors (limit {limit.end:g})"
    return End(name, "accuracy" if failing else None, score, reason=seen, **facts)


def same_failure(
    first: Mapping[str, tuple[End, Array | None]],
    second: Mapping[str, tuple[End, Array | None]],
    base: Mapping[str, Array],
) -> str:
    """Returns ``faithful``, ``healed`` or ``changed``: does a tapped build fail as before?

    The same outputs must fail in the same way, with an error norm within a factor of 4 and
    errors that point the same way (cosine at least 0.5).  Below 3 end-to-end floors only the
    size counts.
    """
    before = {n: p for n, p in first.items() if p[0].failing}
    after = {n for n, p in second.items() if p[0].failing}
    if not after & before.keys():
        return "healed"
    # Outputs right at the line may cross it either way.
    firm = {n for n, p in before.items() if p[0].floors > 3.0}
    if firm - after or {n for n in after if second[n][0].floors > 3.0} - before.keys():
        return "changed"
    for name in firm & after:
        if not _alike(first[name], second[name], base.get(name)):
            return "changed"
    return "faithful"


def _alike(
    first: tuple[End, Array | None], second: tuple[End, Array | None], base: Array | None
) -> bool:
    (a, x), (b, y) = first, second
    if a.kind != b.kind:
        return False
    if a.kind != "accuracy" or x is None or y is None or base is None or a.error is None:
        return True
    if not a.error or not b.error or base.dtype.kind != "f":
        return bool(a.error) == bool(b.error)
    if not 0.25 <= b.error / a.error <= 4.0:
        return False
    if min(a.floors, b.floors) < 3.0:
        return True
    return cosine(gap(x, base), gap(y, base)) >= 0.5


def same_answer(
    first: Mapping[str, tuple[End, Array | None]],
    second: Mapping[str, tuple[End, Array | None]],
    limit: float,
) -> bool:
    """Returns whether failing outputs of two builds lie within rounding of each other.

    Stronger than :func:`same_failure`: two wrong operators make one error, and when one of them
    is cured what is left may well look like the whole.  Only wrong values are held together.

    Args:
        first: The judged outputs of one build.
        second: Those of another one.
        limit: End-to-end floors by which one correct build may leave another.
    """
    for name, (end, x) in first.items():
        y = second[name][1] if name in second else None
        if end.kind != "accuracy" or x is None or y is None or not end.floor:
            continue
        if x.shape != y.shape or x.dtype.kind not in "fV":
            continue
        if rms(gap(x, y)) > 2.0 * limit * end.floor:
            return False
    return True
