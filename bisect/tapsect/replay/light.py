"""A reference that reads heavy weights where they lie, in place of a copy for each session."""

from __future__ import annotations

from pathlib import Path

from debugtaps import Host

__all__ = ["HEAVY", "lighten"]

HEAVY = 1 << 30
"""Bytes of weights from which on copies count for more than the quicker runs they give."""


def lighten(truth: Host, folder: Path) -> None:
    """Lets ONNX Runtime map weights of a gibibyte and more.

    It packs them otherwise: each session of the reference would hold the model once more, and
    there are two at a time.  Runs take about three times as long, and sessions no time at all.

    Args:
        truth: The reference's worker; another reference than ONNX Runtime stays as it is.
        folder: Where the weight files of the model are.

    Raises:
        EnvironmentFailure: It cannot be loaded.
    """
    held = sum(file.stat().st_size for file in folder.glob("weights-*"))
    if held >= HEAVY and truth.spec.spec == "ort-reference":
        mapped = {"session_config": {"session.disable_prepacking": "1"}}
        truth.turn({**truth.spec.options, **mapped})
