"""The engines of the benchmark, with a line in a file for each build: how many operators it had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from debugtaps.engines.ort import OrtEngine
from debugtaps.engines.planted import Planted

__all__ = ["CountedOrt", "CountedPlanted"]


class _Counted:
    """Counts what it builds; stands before an engine.

    Args:
        log: The file that gets the lines.
        **options: Of the engine.
    """

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self.log = Path(log)

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model after counting it."""
        nodes = onnx.load(model, load_external_data=False).graph.node
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{sum(n.op_type != 'Constant' for n in nodes)}\n")
        return super().build(model, taps)  # type: ignore[misc]  # the engine behind has it


class CountedPlanted(_Counted, Planted):
    """Plants faults and counts."""


class CountedOrt(_Counted, OrtEngine):
    """ONNX Runtime that counts."""
