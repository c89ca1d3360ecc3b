"""The folder a diagnosis writes to: its own, an empty or a new one, never somebody else's.

One diagnosis at a time holds it, by a lock on a file that goes with the process, so that nothing
stale keeps the next one out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from debugtaps import EnvironmentFailure, OutputError

__all__ = [
    "CASE",
    "ERROR_LOG",
    "JOURNAL",
    "MARKDOWN",
    "PAGE",
    "PROBES",
    "PROFILE",
    "RESULT",
    "WORK",
    "check_file",
    "check_folder",
    "claimed",
    "clear_results",
    "locked",
    "make_folder",
    "room",
    "write_folder",
]

JOURNAL = "journal.jsonl"
RESULT = "result.json"
MARKDOWN = "report.md"
PAGE = "report.html"
PROFILE = "profile.json"
CASE = "case"
ERROR_LOG = "error.log"
WORK = ".work"
PROBES = ".probes"
LOCK = ".lock"

_OURS = frozenset({JOURNAL, RESULT, PROFILE, MARKDOWN, PAGE, CASE, ERROR_LOG, WORK, PROBES, LOCK})
_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})


def check_folder(folder: Path) -> None:
    """Checks, before any work, that a diagnosis may write to ``folder``; creates nothing.

    A folder that holds a journal is continued, an empty or missing one is taken.

    Raises:
        OutputError: It holds something else, is a file, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder with --out.")
    nearest = _nearest(folder)
    if not nearest.is_dir():
        raise OutputError(f"{nearest} is a file, so {folder} cannot be made; choose another --out.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(f"{nearest} cannot be written; choose another --out.")
    if folder.exists():
        held = sorted(entry.name for entry in folder.iterdir())
        other = next((name for name in held if name not in _OURS), None)
        if other is not None and not _is_journal(folder / JOURNAL):
            raise OutputError(
                f"{folder} holds '{other}' and no journal of tapsect;"
                " choose an empty or a new folder with --out."
            )


def check_file(file: Path) -> None:
    """Checks, before any work, that a file may be written; creates nothing.

    Raises:
        OutputError: It is a folder, or its folder takes no files.
    """
    if file.is_dir():
        raise OutputError(f"{file} is a folder; name a file to write.")
    nearest = _nearest(file.parent)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(f"{file} cannot be written: {nearest} is no folder that takes files.")


def _nearest(path: Path) -> Path:
    """Returns the path, or the nearest above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _is_journal(path: Path) -> bool:
    """Returns whether a file is a journal, or one whose first line was never finished."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return not head or b'"entry": "begin"' in head


def make_folder(folder: Path) -> Path:
    """Returns ``folder``, made if it was missing.

    Raises:
        OutputError: As `check_folder`, or the system refuses.
    """
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be made ({error.strerror or error}); choose another --out."
        ) from None
    return folder


@contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Gives the folder, made if it was missing, for one diagnosis alone.

    Folders that were made for it and stay empty are removed again.

    Raises:
        OutputError: As `make_folder`, or another diagnosis is writing there.
        EnvironmentFailure: The disk is full.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        make_folder(folder)
        with room(folder), locked(folder / LOCK):
            yield folder
    finally:
        for each in made:
            with suppress(OSError):
                each.rmdir()


def clear_results(folder: Path) -> None:
    """Removes what an earlier diagnosis answered, so that nothing of it stands beside a new one."""
    for name in (RESULT, PROFILE, MARKDOWN, PAGE, ERROR_LOG):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / CASE, ignore_errors=True)


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Turns a full disk under ``folder`` into one sentence.

    Raises:
        EnvironmentFailure: A write failed because there was no room for it.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise EnvironmentFailure(
            f"{folder} has no room for the results ({error.strerror}); free some, or choose"
            " another --out."
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a folder; its file goes away with it."""
    handle = _hold(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _hold(path: Path) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            if error.errno in _FULL:
                raise
            raise OutputError(
                f"{path.parent} cannot be written ({error.strerror}); choose another --out."
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise OutputError(
                f"{path.parent} is being written by another tapsect; wait for it, or choose"
                " another --out."
            ) from None
        except OSError:  # a file system without locks: one user must see to it himself
            return handle
        if _same(handle, path):
            return handle
        os.close(handle)  # its holder removed it between our two calls


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def write_folder(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Returns ``folder`` after writing it whole or not at all; one that stood there is replaced.

    Args:
        folder: Where it shall stand.
        fill: Writes its files into the draft that becomes it.

    Raises:
        OutputError: The folder cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror or error}).") from None
    try:
        fill(draft)
        draft.chmod(0o755)
        _swap(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return folder


def _swap(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.replace(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.replace(old / folder.name)
    draft.replace(folder)
    shutil.rmtree(old, ignore_errors=True)
