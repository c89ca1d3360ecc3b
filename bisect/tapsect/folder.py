"""The folder a diagnosis writes to: its own, an empty or a new one, never somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

from debugtaps import OutputError

__all__ = ["CASE", "ERROR_LOG", "JOURNAL", "MARKDOWN", "RESULT", "check_folder", "make_folder"]

JOURNAL = "journal.jsonl"
RESULT = "result.json"
MARKDOWN = "report.md"
CASE = "case"
ERROR_LOG = "error.log"

_OURS = frozenset({JOURNAL, RESULT, MARKDOWN, CASE, ERROR_LOG})


def check_folder(folder: Path) -> None:
    """Checks, before any work, that a diagnosis may write to ``folder``; creates nothing.

    A folder that holds a journal is continued, an empty or missing one is taken.

    Raises:
        OutputError: It holds something else, is a file, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder with --out.")
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise OutputError(f"{nearest} is a file, so {folder} cannot be made; choose another --out.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(f"{nearest} cannot be written; choose another --out.")
    if folder.exists():
        held = sorted(entry.name for entry in folder.iterdir())
        if held and JOURNAL not in held and not _OURS.issuperset(held):
            other = next(name for name in held if name not in _OURS)
            raise OutputError(
                f"{folder} holds '{other}' and no journal of tapsect;"
                " choose an empty or a new folder with --out."
            )


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
