"""Standard output that may be closed early, as by ``tapsect report DIR | head``."""

from __future__ import annotations

import os
import sys

__all__ = ["say"]


def say(text: str) -> None:
    """Writes ``text`` and a line end; when nobody reads any more, that is no error."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Later writes, and the flush at exit, go nowhere; the exit status stays what it was.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
