"""The files a check leaves, sorted by what it said."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapsect.verdict import Verdict

__all__ = ["Artifacts"]

_FOLDERS = {Verdict.DIVERGES: "bad", Verdict.AGREES: "good"}


@dataclass
class Artifacts:
    """Files that a check leaves, sorted by what it said.

    Attributes:
        files: The files, as the check names them; a folder counts as one.
        folder: Where ``good/``, ``bad/`` and, for what is neither, ``other/`` stand.
    """

    files: Sequence[Path]
    folder: Path
    count: int = 0

    def sort(self, verdict: Verdict, keep: Collection[Path] = ()) -> None:
        """Moves the files of one run; those to ``keep``, the candidate's, are copied."""
        self.count += 1
        kept = {path.absolute() for path in keep}
        for file in self.files:
            if not file.exists():
                continue
            name = f"{file.stem}_{self.count:04d}{file.suffix}"
            target = self.folder / _FOLDERS.get(verdict, "other") / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.absolute() not in kept:
                shutil.move(file, target)
            elif file.is_dir():
                shutil.copytree(file, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(file, target)
