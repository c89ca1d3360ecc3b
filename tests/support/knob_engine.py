"""An engine with many settings, some of which cure a fault: alone, together, or never.

Runs in a worker: numpy and onnxruntime only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

COUNT = 32
BUILT = "KNOBBY_BUILT"


class Knobby:
    """ONNX Runtime without optimisation, every output 5 % too large unless it is cured.

    Args:
        cures: Sets of settings, each of which cures when all of it is on.
        spoils: Settings that make it wrong again, whatever else is on.
        fails: The fault is an exception of the build in place of a wrong value.
        warm: It is cured only in a process that has built before.
        static: It is cured where all sizes of the inputs are fixed.
        passes: Names that are off.
        log: A file that gets a line for each build.
        **knobs: ``k0`` to ``k31``, on when 1.
    """

    def __init__(
        self,
        cures: Sequence[Sequence[str]] = (),
        spoils: Sequence[str] = (),
        fails: bool = False,
        warm: bool = False,
        static: bool = False,
        passes: Sequence[str] = (),
        log: str = "",
        **knobs: int,
    ) -> None:
        odd = [name for name in knobs if name not in {f"k{n}" for n in range(COUNT)}]
        if odd:
            raise TypeError(f"unknown option {odd[0]!r}")
        on = {name for name, value in knobs.items() if value} | set(passes)
        self.cured = any(set(each) <= on for each in cures) and not on & set(spoils)
        self.cured = self.cured and (not warm or BUILT in os.environ)
        self.fails, self.log, self.static = fails, log, static

    def knobs(self) -> dict[str, Any]:
        return {
            "passes": {"any": [f"P{n}" for n in range(COUNT)]},
            **{f"k{n}": [1] for n in range(COUNT)},
        }

    def build(self, model: Path, taps: Sequence[str] = ()) -> KnobbySession:
        os.environ[BUILT] = "yes"
        if self.log:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write("build\n")
        if self.fails and not self.cured:
            raise RuntimeError("planted: this setting does not build")
        session = KnobbySession(model, 1.0 if self.cured else 1.05)
        sizes = [size for each in session.session.get_inputs() for size in each.shape]
        if self.static and all(isinstance(size, int) for size in sizes):
            session.factor = 1.0
        return session


class KnobbySession:
    def __init__(self, model: Path, factor: float) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(str(model), options)
        self.factor = factor

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        names = [each.name for each in self.session.get_outputs()]
        known = {each.name: feeds[each.name] for each in self.session.get_inputs()}
        found = self.session.run(names, known)
        return {
            name: (value * self.factor).astype(value.dtype) if value.dtype == np.float32 else value
            for name, value in zip(names, found, strict=True)
        }

    def close(self) -> None:
        pass
