"""Progress on standard error: one live line on a terminal, one plain line a step elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from tapsect.escape import clean
from tapsect.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["watching"]


class Live:
    """Keeps one line of a terminal up to date."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._start = time.monotonic()

    def step(self, name: str, detail: str) -> None:
        """Shows the step, its detail and the time so far."""
        from rich.text import Text

        seconds = time.monotonic() - self._start
        line = Text.assemble(
            (clean(name), "bold"), f"  {clean(detail)}", (f"  {seconds:.0f} s", "dim")
        )
        line.no_wrap, line.overflow = True, "ellipsis"
        self._status.update(line)


class Lines:
    """Writes one line when a step begins; its later details are left out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""

    def step(self, name: str, detail: str) -> None:
        """Writes the step if it is a new one."""
        if name != self._last:
            self._last = name
            words = clean(name) + (f": {clean(detail)}" if detail else "")
            self._stream.write(words + "\n")
            self._stream.flush()


@contextmanager
def watching(*, quiet: bool) -> Iterator[Progress]:
    """Gives a listener that fits standard error, and clears its line at the end."""
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield Live(status)
    else:
        yield Lines(sys.stderr)
