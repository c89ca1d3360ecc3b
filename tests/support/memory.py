"""The memory of a process and of all below it, watched while it works."""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["Peak"]


class Peak:
    """Watches the memory of a process and its descendants (Linux; elsewhere 0)."""

    def __init__(self, pid: int, interval: float = 0.05) -> None:
        self.megabytes = 0.0
        self._pid = pid
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            self.megabytes = max(self.megabytes, sum(map(held, tree(self._pid))))


def tree(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{task}/children").read_text()
                waiting.extend(map(int, children.split()))
        except OSError:  # it ended meanwhile, or this is not Linux
            continue
    return found


def held(pid: int) -> float:
    """Returns the megabytes of one process, its share of pages that others hold as well.

    Pages that map a file do not count: the system takes them back when it needs them.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    own = [line.split()[1] for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))]
    return sum(map(int, own)) / 1024
