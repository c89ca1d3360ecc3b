"""The planted engine, with a line in a file for every build that really happens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debugtaps.engines.planted import Planted

__all__ = ["CountingEngine"]


class CountingEngine:
    """Plants faults and counts.

    Args:
        count: The file that gets a line per build: what was built, by content.
        faults: What is planted.
        pause: Seconds that a build takes longer, so that there is time to stop it.
    """

    def __init__(self, count: str, faults: Sequence[dict[str, Any]], pause: float = 0.0) -> None:
        self._count, self._pause = Path(count), pause
        self._planted = Planted(faults=faults)

    def build(self, model: Path, taps: Sequence[str] = ()) -> Any:
        """Builds the model with the faults in it."""
        time.sleep(self._pause)
        session = self._planted.build(model, taps)
        with self._count.open("a", encoding="utf-8") as file:
            file.write(f"{len(taps)} taps\n")
        return session
