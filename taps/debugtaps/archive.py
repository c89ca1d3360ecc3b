"""Build archives: written with equal bytes for equal content, read as if from a stranger.

A ``.tgz`` may hold links, devices, names that lead out of the folder, or a few kilobytes that
unpack to a disk full of zeros.  Here only plain files are read, under plain relative names, in
one pass, up to a limit; any other archive is refused as a whole, and nothing of it is written.
"""

from __future__ import annotations

import filecmp
import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from debugtaps.errors import InputError, OutputError
from debugtaps.store import write_atomic

__all__ = ["MOST_BYTES", "BuildFile", "list_build", "member_file", "unpack_build", "write_archive"]

MOST_BYTES = 16 << 30
_MOST_FILES = 10_000
_PIECE = 1 << 20
_TAR_BLOCK = 512


@dataclass(frozen=True, slots=True)
class BuildFile:
    """One file of a build archive."""

    name: str
    size: int


def write_archive(path: Path, files: Mapping[str, Path]) -> None:
    """Writes files into a ``.tgz`` that appears whole or not at all.

    Entries are sorted and carry neither time nor owner: equal content gives equal bytes.
    """

    def write(raw: IO[bytes]) -> None:
        # Level 1: engines and weights hardly shrink, and waiting for the last percent is long.
        with (
            gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in sorted(files):
                info = tarfile.TarInfo(name)
                info.size, info.mode = files[name].stat().st_size, 0o644
                with files[name].open("rb") as content:
                    tar.addfile(info, content)

    write_atomic(path, write)


def list_build(path: Path, *, most_bytes: int = MOST_BYTES) -> tuple[BuildFile, ...]:
    """Returns the files of a build, in the order of the archive.

    Raises:
        InputError: The file is missing, damaged, or not an archive that is safe to read.
    """
    with _opened(path, most_bytes) as tar:
        return tuple(BuildFile(name, info.size) for name, info in _members(path, tar, most_bytes))


def unpack_build(
    path: Path, patterns: Sequence[str], folder: Path, *, most_bytes: int = MOST_BYTES
) -> tuple[Path, ...]:
    """Takes the files that match a pattern out of a build: all of them or none.

    Args:
        path: The archive.
        patterns: Shell patterns for whole names, or for the last part of one.
        folder: Where to; made when missing.  A file there that is not the same is kept, and the
            call refused.
        most_bytes: The most that the whole archive may unpack to.

    Raises:
        InputError: The archive is damaged or unsafe, or a pattern matches nothing.
        OutputError: A file cannot be written, or another one stands in its place.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as work:
            chosen = _take_out(path, patterns, Path(work), most_bytes)
            for name in chosen:
                _check_place(folder, name, Path(work) / name)
            for name in chosen:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(work) / name, target)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from None
    return tuple(folder / name for name in chosen)


@contextmanager
def member_file(path: Path, name: str, *, most_bytes: int = MOST_BYTES) -> Iterator[Path]:
    """Gives one file of a build, in a folder that goes away.

    Raises:
        InputError: The archive is damaged or unsafe, or has no such file.
    """
    with tempfile.TemporaryDirectory(prefix="tapsect-") as work:
        try:
            _take_out(path, [name], Path(work), most_bytes)
        except OSError as error:
            raise InputError(f"{path} cannot be unpacked: {error.strerror or error}.") from None
        yield Path(work) / name


def _take_out(
    path: Path, patterns: Sequence[str], folder: Path, most_bytes: int
) -> tuple[str, ...]:
    chosen, seen, matched = [], [], set()
    with _opened(path, most_bytes) as tar:
        for name, info in _members(path, tar, most_bytes):
            seen.append(name)
            hits = {p for p in patterns if _matches(name, p)}
            if hits:
                matched |= hits
                _copy_out(path, tar, info, folder / name)
                chosen.append(name)
    lacking = [pattern for pattern in patterns if pattern not in matched]
    if lacking:
        held = ", ".join(seen[:12]) + (" …" if len(seen) > 12 else "")
        raise InputError(f"{path} holds no file '{lacking[0]}'; it holds {held or 'nothing'}.")
    return tuple(chosen)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(PurePosixPath(name).name, pattern)


def _copy_out(path: Path, tar: tarfile.TarFile, info: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(info)
    assert content is not None
    with content, target.open("xb") as file:
        shutil.copyfileobj(content, file, _PIECE)
        if file.tell() != info.size:
            raise InputError(_damaged(path, f"'{info.name}' ends early"))


def _check_place(folder: Path, name: str, fresh: Path) -> None:
    """Refuses to write through a link out of the folder, or over a file that is another one."""
    target = folder / name
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise OutputError(f"{target.parent} is a link out of {folder}; choose another folder.")
    if os.path.lexists(target) and not (
        target.is_file() and not target.is_symlink() and filecmp.cmp(target, fresh, shallow=False)
    ):
        raise OutputError(f"{target} exists and is another file; choose another folder.")


@contextmanager
def _opened(path: Path, most_bytes: int) -> Iterator[tarfile.TarFile]:
    """Opens an archive for one pass, and turns every fault of it into one sentence."""
    try:
        raw = path.open("rb")
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; name a build in it.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        with raw, gzip.GzipFile(fileobj=raw) as packed:
            forward = _Forward(path, packed, most_bytes)
            with tarfile.open(fileobj=forward, mode="r:") as tar:  # type: ignore[call-overload]
                yield tar
            forward.check_rest()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(_damaged(path, reason)) from None


def _damaged(path: Path, reason: str) -> str:
    return f"{path} is no build archive, or is truncated ({reason}); compile or copy it again."


def _members(
    path: Path, tar: tarfile.TarFile, most_bytes: int
) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Gives the plain files one by one; refuses the archive at the first unsafe entry."""
    seen: set[str] = set()
    total = 0
    for info in tar:
        if info.isdir():
            continue
        name = _safe_name(path, info)
        total += info.size
        if name in seen:
            raise InputError(f"{path} holds '{name}' twice; it was not written by this tool.")
        if len(seen) >= _MOST_FILES or total > most_bytes:
            raise InputError(
                f"{path} would unpack to more than {most_bytes:,} bytes or {_MOST_FILES:,} files;"
                " it is refused."
            )
        seen.add(name)
        yield name, info


def _safe_name(path: Path, info: tarfile.TarInfo) -> str:
    name = info.name
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse() or info.size < 0:
        raise InputError(f"{path}: '{name}' is a link, a device or no plain file; it is refused.")
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or any(p in ("", ".", "..") for p in parts):
        raise InputError(f"{path}: the name '{name}' could lead out of the folder; it is refused.")
    return name


class _Forward:
    """What ``tarfile`` reads from: forward only, in small pieces, up to a limit.

    A header that claims gigabytes, or a size below zero that would make the reader go round in
    circles, ends here.
    """

    def __init__(self, path: Path, stream: gzip.GzipFile, most_bytes: int) -> None:
        self._path = path
        self._stream = stream
        self._most = most_bytes + (_MOST_FILES + 2) * 4 * _TAR_BLOCK

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes."""
        if not 0 <= size <= _PIECE:
            raise InputError(_damaged(self._path, "a header claims too much"))
        self._check(self._stream.tell() + size)
        return self._stream.read(size)

    def seek(self, place: int) -> int:
        """Skips forward."""
        if place < self._stream.tell():
            raise InputError(_damaged(self._path, "an entry points back"))
        self._check(place)
        return self._stream.seek(place)

    def tell(self) -> int:
        """Returns how much was read."""
        return self._stream.tell()

    def check_rest(self) -> None:
        """Reads to the end, where the checksum stands; nothing but zeros may follow."""
        while piece := self.read(_PIECE):
            if piece.strip(b"\0"):
                raise InputError(_damaged(self._path, "a header is not valid"))

    def _check(self, place: int) -> None:
        if place > self._most:
            raise InputError(f"{self._path} would unpack to more than allowed; it is refused.")
