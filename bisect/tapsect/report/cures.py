"""How a change that helps is told: as it is written in a shell, and what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapsect.finding import Fix
from tapsect.report.words import number

if TYPE_CHECKING:
    from tapsect.report.content import Style

__all__ = ["advice", "effect", "gain", "milliseconds", "written"]


def written(fix: Fix) -> str:
    """Returns the change as a user writes it: options of the engine, or the changed model.

    >>> written(Fix("knobs", "level=basic")), written(Fix("fold", "fixed/folded.onnx"))
    ('--engine-option level=basic', 'fixed/folded.onnx')
    """
    is_option = "=" in fix.setting.partition(" ")[0]
    return f"--engine-option {fix.setting}" if is_option else fix.setting


def milliseconds(seconds: float | None) -> str:
    """Returns a latency as reports show it."""
    return number(None) if seconds is None else f"{seconds * 1000:.3g} ms"


def effect(fix: Fix) -> str:
    """Returns what the change does: not all of them cure."""
    return "cures" if fix.cures else "halves the error or better"


def gain(fix: Fix) -> str:
    """Returns error and latency before and after; what has no number before has one after only.

    >>> gain(Fix("knobs", "a=1", 0.05, 1e-7, 2e-3, 3e-3))
    'error 0.05 -> 1e-07, latency 2 ms -> 3 ms'
    """
    rows = (
        ("error", fix.error_before, fix.error_after, number),
        ("latency", fix.latency_before, fix.latency_after, milliseconds),
    )
    return ", ".join(
        f"{name} {'then' if before is None else f'{show(before)} ->'} {show(after)}"
        for name, before, after, show in rows
        if after is not None
    )


def advice(fix: Fix, style: Style) -> str:
    """Returns the sentence that says what to do; where only half the error goes, just that."""
    told = f" ({gain(fix)})" if gain(fix) else ""
    what = style.name(written(fix))
    if fix.cures:
        return f"Avoid it with {what}{told}."
    return f"Nothing cures it; {what} halves the error or better{told}."
