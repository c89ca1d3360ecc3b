"""The engines of the benchmark, with a line in a file for each build: how many operators it had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from debugtaps.engines.ort import OrtEngine
from debugtaps.engines.planted import Planted

__all__ = ["CountedOrt", "CountedPlanted"]


def _note(log: str, model: Path) -> None:
    nodes = onnx.load(model, load_external_data=False).graph.node
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{sum(n.op_type != 'Constant' for n in nodes)}\n")


class CountedPlanted(Planted):
    """Plants faults and counts.

    Args:
        log: The file that gets the lines.
        **options: Of the planted engine.
    """

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self.log = log

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model after counting it."""
        _note(self.log, model)
        return super().build(model, taps)


class CountedOrt(OrtEngine):
    """ONNX Runtime that counts; see ``CountedPlanted``."""

    def __init__(self, log: str, **options: Any) -> None:
        super().__init__(**options)
        self.log = log

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model after counting it."""
        _note(self.log, model)
        return super().build(model, taps)
