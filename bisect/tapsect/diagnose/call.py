"""``tapsect.fix``: the search for a cure from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tapsect.diagnose.flow import diagnose
from tapsect.diagnose.given import Fixing
from tapsect.finding import Finding

__all__ = ["fix"]


def fix(
    model: str | Path,
    *,
    knobs: Sequence[str] = (),
    precision_set: bool = False,
    fold_size: int = 10_000_000,
    shapes: Mapping[str, Sequence[int]] | None = None,
    **options: Any,
) -> Finding:
    """Finds the smallest set of settings that cures the failure, and measures what it costs.

    Args:
        model: As for ``tapsect.bisect``.
        knobs: Options of the engine that may be turned; all when empty.
        precision_set: Whether to look for the nodes that must stay in fp32.
        fold_size: Bytes up to which a constant may grow when constants are folded.
        shapes: Shapes that inputs are frozen at for that; those of the samples if None.
        **options: The other arguments of ``tapsect.bisect``; ``budget`` is the time to look.

    Returns:
        The finding, what cures it in ``fixes``; changed models lie in ``fixed/`` of its folder.

    Raises:
        TapsError: As ``tapsect.bisect``, or the engine has no such knob.
    """
    fixing = Fixing(
        thorough=True, knobs=tuple(knobs), fold_size=fold_size, shapes=shapes,
        precision_set=precision_set,
    )  # fmt: skip
    return diagnose(model, **{"command": ("tapsect.fix",), **options}, fixing=fixing)
