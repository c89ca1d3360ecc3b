"""One command measured as a whole: seconds, and the memory of its process and all below it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.memory import Peak

__all__ = ["Measured", "measure"]


@dataclass(frozen=True)
class Measured:
    """What a command took.

    Attributes:
        code: Its exit status.
        seconds: Wall time.
        peak_mb: Most memory of the process tree that no file backs; what processes share
            counts once.
        said: What it printed.
    """

    code: int
    seconds: float
    peak_mb: float
    said: str

    @property
    def last(self) -> str:
        """Returns the last line that it printed."""
        return (self.said.strip().splitlines() or [""])[-1]


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Measured:
    """Runs a command to its end in ``folder``."""
    start = time.perf_counter()
    with (folder / "said.txt").open("w+") as said:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=said,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        peak = Peak(process.pid)
        code = process.wait()
        seconds = time.perf_counter() - start
        peak.stop()
        said.seek(0)
        return Measured(code, seconds, peak.megabytes, said.read())
