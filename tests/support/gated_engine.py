"""Engines for triage: one that waits for a file, and some that misbehave."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debugtaps.engines.planted import Planted

__all__ = ["Gated", "Hungry", "Killer"]


class Gated:
    """Writes down which model it is asked to build, and waits until it may.

    Args:
        folder: Holds ``log`` with a line a build: the model's folder, and the GPUs it sees if
            it was told; and, once they may go on, the files ``open`` (all models) or
            ``open-NAME``.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.inner = Planted()

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model when its gate is open."""
        name = Path(model).parent.name
        with (self.folder / "log").open("a", encoding="utf-8") as file:
            gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
            file.write(f"{name}\n" if gpus is None else f"{name}@{gpus}\n")
        while not any((self.folder / gate).exists() for gate in ("open", f"open-{name}")):
            time.sleep(0.02)
        return self.inner.build(model, taps)


class Hungry(Planted):
    """Takes memory until it is stopped."""

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Takes 1 GiB, and then waits."""
        held = bytearray(os.urandom(1 << 20) * 1024)
        time.sleep(600)
        return held


class Killer(Planted):
    """Ends the process that diagnoses it."""

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Kills its parent."""
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
