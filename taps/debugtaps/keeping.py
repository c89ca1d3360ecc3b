"""Values kept for later, the large ones in the file in which they came.

::

    name.npz     small arrays, and where in the file the large ones lie
    name.bin     another name of the file that a worker's answer came in: nothing is copied
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from debugtaps.engines.contract import Array
from debugtaps.engines.crossing import file_behind, map_file
from debugtaps.engines.worker import TornFile
from debugtaps.errors import InputError
from debugtaps.store import dtype_from_name, dtype_name, read_meta, read_npz, write_npz

__all__ = ["keep_values", "kept_values"]

_PIECE = 1 << 22


def keep_values(stem: Path, values: Mapping[str, Array], *, sync: bool) -> None:
    """Writes values down as ``stem.npz``, and ``stem.bin`` where large ones came in a file.

    Args:
        stem: Of the files' names.
        values: Arrays by name.
        sync: Whether they must outlive a power cut.
    """
    behind = {n: place for n, v in values.items() if (place := file_behind(v)) is not None}
    path, size, _ = next(iter(behind.values()), ("", 0, 0))
    inside = {n: start for n, (p, _, start) in behind.items() if p == path}
    file = stem.with_suffix(".bin")
    if not inside or not _linked(path, file, sync=sync):
        inside = {}
    rest = {n: v for n, v in values.items() if n not in inside}
    mapped = {n: [dtype_name(values[n].dtype), values[n].shape, at] for n, at in inside.items()}
    told = {"mapped": mapped, "size": size, "crc": _crc(map_file(file, size)) if inside else 0}
    write_npz(stem.with_suffix(".npz"), rest, meta=told, sync=sync)


def kept_values(stem: Path) -> dict[str, Array]:
    """Returns values that ``keep_values`` wrote.

    Raises:
        InputError: They are missing or torn.
    """
    npz, file = stem.with_suffix(".npz"), stem.with_suffix(".bin")
    values, told = read_npz(npz), read_meta(npz)
    if not told.get("mapped"):
        return values
    try:
        raw = map_file(file, told["size"])
    except TornFile as error:
        raise InputError(str(error)) from None
    if _crc(raw) != told["crc"]:
        raise InputError(f"{file} does not hold what was written")
    for name, (kind, shape, start) in told["mapped"].items():
        dtype = dtype_from_name(kind)
        size = dtype.itemsize
        for length in shape:
            size *= length
        values[name] = raw[start : start + size].view(dtype).reshape(shape)
    return values


def _linked(path: str, file: Path, *, sync: bool) -> bool:
    """Gives a file a second name; ``False`` where the disk does not do that."""
    file.unlink(missing_ok=True)
    with suppress(OSError):
        os.link(path, file)
        if sync:
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        return True
    return False


def _crc(raw: Array) -> int:
    found = 0
    for at in range(0, raw.size, _PIECE):
        found = zlib.crc32(raw[at : at + _PIECE].data, found)
    return found
