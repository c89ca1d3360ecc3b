"""A reference that is wrong at one node, for a reference is named without options.

``reference="tests/support/wrong_reference.py:WrongReference"``: ONNX Runtime without
optimisation, five percent off at every node called ``wrong``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debugtaps.engines.planted import Planted

__all__ = ["NoReference", "WrongReference"]


class WrongReference:
    """Wraps the planted engine around the default reference."""

    def __init__(self) -> None:
        self._planted = Planted(inner="ort-reference", faults=[{"kind": "value", "nodes": "wrong"}])

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model with the fault in it."""
        return self._planted.build(model, taps)


class NoReference:
    """Builds nothing: a reference that cannot run the model."""

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Raises."""
        raise RuntimeError("no kernel for this operator")
