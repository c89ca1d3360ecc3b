"""Values of the command line that are neither numbers nor paths."""

from __future__ import annotations

import re

from debugtaps import UsageError

__all__ = ["parse_memory"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_memory(text: str, flag: str = "--tap-memory") -> int:
    """Returns a size in bytes: ``512MiB`` is 512·2²⁰, ``2GB`` is 2·10⁹, a bare number is bytes.

    >>> parse_memory("512MiB"), parse_memory("2GB"), parse_memory("100")
    (536870912, 2000000000, 100)

    Raises:
        UsageError: The text is no size, or is zero.
    """
    match = _SIZE.fullmatch(text)
    size = 0
    if match is not None:
        base = 1024 if match[3] else 1000
        size = int(float(match[1]) * base ** _POWERS[match[2].lower()])
    if size <= 0:
        raise UsageError(f"{flag} '{text}' is no size; write 512MiB or 2GB.")
    return size
