"""What becomes of an exception nobody foresaw: one sentence, and a file that holds the rest."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from tapsect.folder import ERROR_LOG

__all__ = ["Crash"]


class Crash(Exception):
    """An unforeseen exception, and the folder where its traceback belongs."""

    def __init__(self, error: BaseException, folder: Path | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.folder = folder

    def log(self) -> Path | None:
        """Returns the file the traceback was written to, or ``None`` where nothing can be."""
        text = "".join(traceback.format_exception(self.error))
        places = [self.folder] if self.folder is not None and self.folder.is_dir() else []
        for place in places:
            try:
                (place / ERROR_LOG).write_text(text, encoding="utf-8", errors="replace")
            except OSError:
                continue
            return place / ERROR_LOG
        try:
            handle, name = tempfile.mkstemp(prefix="tapsect-error-", suffix=".log")
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError:
            return None
        return Path(name)
