"""Workers that start before anybody knows what they will load.

A child takes a tenth of a second before it can be asked anything.  A command that is sure to need
some lets them begin first, while its own words are still read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from debugtaps.engines.child import Child
from debugtaps.errors import WorkerError

__all__ = ["spare_workers", "taken"]

_SPARE: list[Child] = []


@contextlib.contextmanager
def spare_workers(count: int) -> Iterator[None]:
    """Starts workers under this interpreter; those that nobody took end with the context.

    They run in the folder that is current now, which must stay the current one.
    """
    with contextlib.suppress(WorkerError):  # who needs one says why there is none
        _SPARE.extend(Child(Path(sys.executable)) for _ in range(count))
    try:
        yield
    finally:
        while _SPARE:
            _SPARE.pop().close()


def taken() -> Child | None:
    """Returns a worker that lives and that nobody else has; ``None`` when there is none."""
    while _SPARE:
        child = _SPARE.pop()
        if child.alive():
            return child
        child.close()
    return None
