"""A job far from its files: they are brought, it is run, its results are packed.

The files stand below a folder of the task as they stood on the driver, so that a model finds its
weights; in what is packed their names are those of the driver again.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from debugtaps import InputError, MissingPackage
from tapsect.folder import write_folder
from tapsect.triage.job import Job
from tapsect.triage.supervise import Supervisor

__all__ = ["Carrier", "InFolder", "perform", "unpack"]

_TEXTS = frozenset({".json", ".jsonl", ".md", ".html", ".txt"})


class Carrier(Protocol):
    """Brings files from the driver to tasks, and results back."""

    def give(self, digest: str, path: Path) -> Any:
        """Returns a reference to a file's content; called by the driver."""

    def fetch(self, reference: Any, path: Path) -> None:
        """Writes the content of a reference; called by a task."""

    def send(self, name: str, content: bytes) -> Any:
        """Returns a reference to results; called by a task."""

    def take(self, reference: Any) -> bytes:
        """Returns results; called by the driver."""


class InFolder:
    """Carries files through a folder that driver and nodes reach.

    Args:
        url: As fsspec names it: ``/mnt/zoo``, ``s3://bucket/zoo`` …

    Raises:
        MissingPackage: What this kind of folder needs is not installed.
        InputError: It names no kind of folder.
    """

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self.system, self.root = url_to_fs(url)
        except ImportError as error:
            raise MissingPackage(
                f"--shared {url} needs more than is installed ({error}); pip install 'tapsect[ray]'"
            ) from None
        except ValueError as error:
            raise InputError(f"--shared {url} is no folder that fsspec knows: {error}") from None
        self.url = url

    def __reduce__(self) -> tuple[Any, ...]:
        return (InFolder, (self.url,))

    def give(self, digest: str, path: Path) -> str:
        """Returns where a file's content lies, copied there if it was missing."""
        place = f"{self.root}/files/{digest}"
        if not self.system.exists(place):
            self._whole(place, path.read_bytes())
        return place

    def fetch(self, reference: str, path: Path) -> None:
        """Writes the content of a file to ``path``."""
        self.system.get_file(reference, str(path))

    def send(self, name: str, content: bytes) -> str:
        """Returns where results lie."""
        place = f"{self.root}/results/{name}.zip"
        self._whole(place, content)
        return place

    def take(self, reference: str) -> bytes:
        """Returns results; they are not needed there any more."""
        content: bytes = self.system.cat_file(reference)
        self.system.rm_file(reference)
        return content

    def _whole(self, place: str, content: bytes) -> None:
        """Writes a file that appears whole or not at all."""
        draft = f"{place}.{uuid.uuid4().hex}"
        self.system.makedirs(draft.rpartition("/")[0], exist_ok=True)
        self.system.pipe_file(draft, content)
        self.system.mv(draft, place)


def perform(told: Mapping[str, Any], files: Mapping[str, Any], carrier: Carrier) -> dict[str, Any]:
    """Returns what became of a job, as plain data.

    Args:
        told: The job, as JSON data.
        files: What brings each of its files, by digest.
        carrier: Who brings them.
    """
    job = Job(**told)
    room = Path(tempfile.mkdtemp(prefix="tapsect-task-"))
    try:
        tree = room / "files"
        for path, digest in job.files.items():
            if digest not in files:  # it is not on the driver either, which is then said
                continue
            local = Path(f"{tree}{path}")
            local.parent.mkdir(parents=True, exist_ok=True)
            carrier.fetch(files[digest], local)
        here = Job(**{**told, "arguments": _moved(job.arguments, job.files, tree)})
        done = Supervisor(room).run(here)
        packed = None
        if done.result is not None:
            packed = carrier.send(job.folder, _packed(room / job.folder, str(tree)))
        stopped = None if done.stopped is None else asdict(done.stopped)
        return {"results": packed, "stopped": stopped, "seconds": done.seconds}
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _moved(value: Any, files: Mapping[str, str], tree: Path) -> Any:
    """Returns arguments in which files are named as they stand below ``tree``."""
    if isinstance(value, Mapping):
        return {key: _moved(item, files, tree) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_moved(item, files, tree) for item in value]
    if isinstance(value, str):
        path, colon, name = value.rpartition(":")
        if value in files:
            return f"{tree}{value}"
        return f"{tree}{path}{colon}{name}" if path in files else value
    return value


def _packed(folder: Path, tree: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            data = path.read_bytes()
            if path.suffix in _TEXTS:
                data = data.replace(os.fsencode(tree), b"")
            archive.writestr(str(path.relative_to(folder)), data)
    return content.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Writes packed results to a folder, whole or not at all."""

    def fill(draft: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(draft)  # which leaves out what would lead outside

    write_folder(folder, fill)
