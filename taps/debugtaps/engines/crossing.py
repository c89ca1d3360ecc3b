"""Large arrays on their way to a worker and back: files that both ends map.

What an answer brings is not read but mapped: the system reads a page when it is looked at, and
takes it back when memory runs short.  A file goes with the last array that lies in it.  An array
that lies in a file already goes to the next worker as it is: the file is lent, nothing is copied.
"""

from __future__ import annotations

import itertools
import mmap
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from debugtaps.engines import worker

if TYPE_CHECKING:
    from debugtaps.engines.child import Child, Reply
    from debugtaps.engines.contract import Array, Feeds

__all__ = ["Crossing", "exchange", "file_behind", "map_file"]

_NUMBERS = itertools.count()
_FILES: weakref.WeakKeyDictionary[mmap.mmap, tuple[str, int]] = weakref.WeakKeyDictionary()


class Crossing:
    """The files of one request and of its answer.

    Args:
        folder: Where they are written.
    """

    def __init__(self, folder: Path) -> None:
        name = f"cross-{os.getpid()}-{next(_NUMBERS)}"
        self.answer = str(folder / f"{name}.in")
        self.sizes: dict[str, int] = {}
        self._own = worker.Shelf(str(folder / f"{name}.out"))

    def put(self, buffer: Array) -> list[Any] | None:
        """Returns where bytes lie: in a file that is there, or in one that is written now."""
        if buffer.size < worker.BIG:
            return None
        behind = file_behind(buffer)
        if behind is not None and os.path.exists(behind[0]):
            path, size, start = behind
            self.sizes[path] = size
            return [path, start]
        place = self._own.put(buffer)
        self.sizes |= self._own.sizes
        return place

    def take(self, path: str, size: int) -> Array:
        """Returns the bytes of the answer's file, which goes with the last of its arrays.

        Raises:
            worker.TornFile: It is another file, or not as large as the worker says.
        """
        if path != self.answer:
            raise worker.TornFile(f"an answer lies in {path!r}; expected {self.answer!r}")
        return map_file(Path(path), size, lent=True)

    def close(self, *, failed: bool) -> None:
        """Removes the request's file, which the worker has mapped; the answer's after a failure."""
        self._own.close()
        for path in (self._own.path, *([self.answer] if failed else [])):
            Path(path).unlink(missing_ok=True)


def exchange(
    child: Child, request: Mapping[str, Any], groups: Mapping[str, Feeds], deadline: float,
    room: Path | None,
) -> Reply:  # fmt: skip
    """Sends one request and returns its answer; large arrays cross in files.

    Without an answer the child is gone: one that nobody read would be taken for the next.

    Args:
        child: Who is asked.
        request: What is asked.
        groups: Arrays, by group and name.
        deadline: When it must have answered, on the monotonic clock.
        room: The folder of those files; without one the pipes take all.

    Raises:
        ChildDied, ChildLate: It did not answer.
        worker.TornFile: Its arrays do not lie where its answer says.
    """
    crossing = None if room is None else Crossing(room)
    answered = False
    try:
        child.send(request, groups, deadline, crossing)
        reply = child.receive(deadline, crossing)
        answered = True
        return reply
    finally:
        if not answered:
            child.kill()
        if crossing is not None:
            crossing.close(failed=not answered)


def map_file(path: Path, size: int, *, lent: bool = False) -> Array:
    """Returns the bytes of a file, read-only.

    Args:
        path: The file.
        size: How many bytes it must hold.
        lent: Whether it goes with the last array that lies in it.

    Raises:
        worker.TornFile: It holds more or less.
    """
    raw: Array = worker.mapped(str(path), size, mmap.ACCESS_READ)
    root = _root(raw)
    assert isinstance(root, mmap.mmap)
    _FILES[root] = (str(path), size)
    if lent:
        weakref.finalize(root, path.unlink, missing_ok=True)
    return raw


def file_behind(array: Array) -> tuple[str, int, int] | None:
    """Returns the file in which an array lies: its path, its size and the array's offset.

    ``None`` for an array in memory, and for one that does not lie there in one piece.
    """
    root = _root(array)
    if not isinstance(root, mmap.mmap) or root not in _FILES or not array.flags.c_contiguous:
        return None
    path, size = _FILES[root]
    start = np.frombuffer(root, np.uint8).__array_interface__["data"][0]
    return path, size, array.__array_interface__["data"][0] - start


def _root(array: Array) -> object:
    """Returns what holds the memory of an array."""
    held: Any = array
    while isinstance(held, np.ndarray):
        held = held.base
    return held.obj if isinstance(held, memoryview) else held
