"""The planted engine, as slow as builders are, and what it was busy with."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debugtaps.engines.planted import Planted

__all__ = ["Slow"]


class Slow(Planted):
    """Sleeps before each build, and writes down when it began and ended.

    Args:
        log: A file that gets a line a build: process, beginning and end (seconds), taps.
        seconds: How long a build sleeps.
        each: How much longer for each tap.
        alone: A file that a build holds; another one that finds it runs out of memory.
        **options: Of the planted engine.
    """

    def __init__(
        self, log: str, seconds: float = 0.6, each: float = 0.0, alone: str = "", **options: Any
    ) -> None:
        super().__init__(**options)
        self.log, self.seconds, self.each = Path(log), seconds, each
        self.alone = Path(alone) if alone else None

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model after a while."""
        if self.alone is not None:
            try:
                self.alone.touch(exist_ok=False)
            except FileExistsError:
                raise MemoryError from None
        began = time.monotonic()
        time.sleep(self.seconds + self.each * len(taps))
        try:
            return super().build(model, taps)
        finally:
            if self.alone is not None:
                self.alone.unlink()
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{os.getpid()} {began} {time.monotonic()} {len(taps)}\n")
