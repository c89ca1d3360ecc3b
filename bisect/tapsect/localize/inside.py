"""A look into a kernel that is wrong as a whole: how much of it can be seen?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tapsect.search.looks import Limit, Look

__all__ = ["Inside", "look_inside"]


@dataclass(frozen=True, slots=True)
class Inside:
    """What a look into a kernel showed.

    Attributes:
        accepted: Taps that left the failure as it was, those around the kernel included.
        healing: Single tensors whose tap changes the failure.
        refusing: Single tensors whose tap the builder refuses.
        together: Tensors whose taps, in whatever halves, change the failure or are refused.
    """

    accepted: tuple[str, ...]
    healing: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    together: tuple[str, ...] = ()


def look_inside(
    hidden: Sequence[str],
    around: Sequence[str],
    probe: Callable[[Collection[str]], Look[str]],
    limit: Limit[str],
) -> Inside:
    """Returns how far one can see into kernels without disturbing the failure.

    All hidden tensors are tapped at once; when that disturbs, a half that does not is kept and
    the other one divided again.  Where both halves disturb, the kernel is left closed: single
    taps would cost a build each and seldom do better, and the reduction of the part tells which
    of its operators matter.

    Args:
        hidden: Tensors inside the kernels, in model order.
        around: Taps that are trusted.
        probe: Builds with these taps and looks.
        limit: How much one build may tap.

    Notes:
        Cost: 1 build when nothing disturbs, 3 when everything does, ``2 * log2(n) + 2`` at most.
    """
    kept, left = tuple(around), tuple(hidden)
    parts = [left] if left else []
    singles: dict[bool, list[str]] = {True: [], False: []}
    while parts:
        for part in parts:
            taps = {*kept, *part}
            look = probe(taps) if limit.fits(taps) else Look(accepted=False, refused=True)
            if look.accepted:
                kept = (*kept, *part)
                relevant = look.relevant if look.relevant is not None else frozenset()
                left = tuple(t for t in left if t not in part and t in relevant)
                break
            if len(part) == 1:
                singles[look.refused] += part
        else:
            if len(left) < 2 or len(parts) == 2:
                break
        parts = [h for h in (left[len(left) // 2 :], left[: len(left) // 2]) if h]
    single = {*singles[True], *singles[False]}
    return Inside(
        kept, tuple(singles[False]), tuple(singles[True]),
        tuple(t for t in left if t not in single),
    )  # fmt: skip
