"""How large a wrong answer is, and whether a part's error can be what the whole shows.

    the part alone is wrong by 5 %  ──▶  the same error, in the reference of the whole  ──▶  0.1 %

The error of a part and that of the whole it was cut from differ by what lies behind the part: a
residual stream dilutes it, a narrow peak amplifies it.  So a part of another size is not refused
at once: its error is put into the reference of the whole, and what that does to the outputs is
compared with what the start showed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from debugtaps import Array, EngineFailure, Plan, error_name, follow, perturb
from tapsect.candidate import Candidate
from tapsect.localize.examine import Examined
from tapsect.replay.reference import Reference
from tapsect.verdict import NOTHING

__all__ = ["effect", "magnitude"]


def magnitude(examined: Examined) -> int | None:
    """Returns the size of a wrong answer as a power of ten, ``None`` where it has no size."""
    failing = (end.name for end in examined.ends if end.failing)
    return _largest(failing, examined.answers, examined.expected)


def effect(
    reference: Reference, feeds: Mapping[str, Array], candidate: Candidate, examined: Examined
) -> int | None:
    """Returns the size of what a part's error does to the outputs of the whole.

    Args:
        reference: The reference of the whole.
        feeds: The sample.
        candidate: The part.
        examined: What it showed.

    Returns:
        ``None`` where that cannot be told: the error is not a number, or the reference cannot
        run the whole.
    """
    errors = _errors(candidate, examined)
    if not errors:
        return None
    wide = reference.wide
    plan = Plan(nodes=range(len(wide.nodes)), added=list(errors), values=list(wide.outputs))
    made = perturb(wide, plan)
    given = reference.named(made, feeds)
    try:
        build = reference.build(made, "effect")
        try:
            none = {error_name(t): np.zeros_like(e) for t, e in errors.items()}
            right = build.run({**given, **none})
            wrong = build.run({**given, **{error_name(t): e for t, e in errors.items()}})
        finally:
            build.close()
    except EngineFailure:
        return None
    return _largest(right, wrong, right)


def _errors(candidate: Candidate, examined: Examined) -> dict[str, Array]:
    aliases, found = dict(candidate.bypass), {}
    for name in candidate.outputs:
        shown = follow(name, aliases)
        ours, truth = examined.answers.get(shown), examined.expected.get(shown)
        if ours is None or truth is None or truth.dtype.kind != "f" or ours.shape != truth.shape:
            return {}
        error = ours.astype(np.float64) - truth.astype(np.float64)
        if not np.all(np.isfinite(error)):
            return {}
        found[name] = error.astype(truth.dtype)
    return found


def _largest(
    names: Iterable[str], ours: Mapping[str, Array], theirs: Mapping[str, Array]
) -> int | None:
    """Returns the largest power of ten over some tensors.

    The largest element counts, not the mean: one wrong element keeps its size however few stand
    beside it.
    """
    sizes: list[int] = []
    for name in names:
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or a.shape != b.shape or b.dtype.kind != "f" or not b.size:
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if np.all(np.isfinite(x)) and np.all(np.isfinite(y)):
            sizes.append(_power(float(np.abs(x - y).max()), float(np.sqrt(np.mean(y**2)))))
    return max(sizes, default=None)


def _power(error: float, scale: float) -> int:
    if error == 0:
        return NOTHING
    return 0 if error >= scale else max(NOTHING + 1, round(math.log10(error / scale)))
