"""What probes showed, on disk: an interrupted diagnosis continues where it was.

The journal holds every probe that ended, values beside it.  Large ones came in a file: the
journal gives that very file a second name, and nothing is written again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import Array, EngineFailure, InputError, keep_values, kept_values

__all__ = ["Journal", "Outcome"]

DEAR_S = 0.2
"""Seconds of a probe that are worth a wait for the disk."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe showed.

    Attributes:
        values: For each sample the outputs and taps by name; empty after a failure.
        failure: The failure that ended it; it carries kind, phase, message and tail.
        fusions: Sets of nodes that run as one kernel, where the engine says.
        precisions: Types by tensor or node, where the engine says.
        seconds: How long it took.
        latency: Seconds of one run inside the worker, the median of several, where asked for.
        said: What the engine tells of its build.
        tactics: What its builder chose, by layer or by the nodes of a kernel, where it says.
    """

    values: tuple[Mapping[str, Array], ...] = ()
    failure: EngineFailure | None = None
    fusions: tuple[frozenset[str], ...] = ()
    precisions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    latency: float | None = None
    said: tuple[str, ...] = ()
    tactics: Mapping[str, str] = field(default_factory=dict)


class Journal:
    """The record of all probes of one diagnosis: ``journal.jsonl`` and values beside it.

    Args:
        folder: The folder of the diagnosis.
        identity: What the diagnosis is about; a journal of another one is begun anew.

    Attributes:
        known: The probes that are written down, by key.
        resumed: Whether an unfinished diagnosis of the same identity is continued.
        replaced: Whether the journal of another diagnosis stood there.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.file = folder / "journal.jsonl"
        self.values = folder / ".probes"
        self.values.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, dict[str, Any]] = {}
        self.replaced = False
        self.resumed = self._read(identity)
        if not self.resumed:
            self.known.clear()  # those of a finished one prove nothing about this one
            shutil.rmtree(self.values, ignore_errors=True)
            self.values.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(b"")
            # Nothing is lost with it alone; the first probe that was dear takes it along.
            self.append({"entry": "begin", "identity": identity}, sync=False)

    def _read(self, identity: str) -> bool:
        whole = 0
        with suppress(OSError):
            for line in self.file.read_bytes().splitlines(keepends=True):
                try:
                    entry = json.loads(line)
                except ValueError:
                    break  # the line being written when the process died
                whole += len(line)
                if entry.get("entry") == "end":
                    return False
                if entry.get("entry") == "begin" and entry.get("identity") != identity:
                    self.replaced = True
                    return False
                if entry.get("entry") == "probe":
                    self.known[entry["key"]] = entry
            os.truncate(self.file, whole)  # what is appended must not join a torn line
            return bool(self.known)
        return False

    def append(self, entry: Mapping[str, Any], *, sync: bool = True) -> None:
        """Writes one line and, unless told otherwise, makes sure that it is on the disk."""
        line = json.dumps(entry, ensure_ascii=True, default=str).encode() + b"\n"
        with self.file.open("ab") as file:
            file.write(line)
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def record(self, key: str, outcome: Outcome, purpose: str) -> None:
        """Writes a probe down, its values first.

        What took no longer than the disk takes to be sure is left to the system: it outlives
        this process, and is made again after a power cut, whose torn files are not believed.
        """
        dear = outcome.seconds >= DEAR_S
        for number, values in enumerate(outcome.values):
            keep_values(self.values / f"{key[:40]}-{number}", values, sync=dear)
        failure = outcome.failure
        entry = {
            "entry": "probe", "key": key, "purpose": purpose, "samples": len(outcome.values),
            "seconds": round(outcome.seconds, 4),
            "failure": None if failure is None else {
                "kind": failure.kind, "phase": failure.phase,
                "message": failure.message, "tail": failure.tail,
            },
            "fusions": [sorted(f) for f in outcome.fusions],
            "precisions": dict(outcome.precisions), "latency": outcome.latency,
            "said": list(outcome.said), "tactics": dict(outcome.tactics),
        }  # fmt: skip
        self.append(entry, sync=dear)
        self.known[key] = entry

    def recall(self, key: str) -> Outcome | None:
        """Returns a probe that is written down whole, or ``None``."""
        entry = self.known.get(key)
        if entry is None:
            return None
        told = entry["failure"]
        failure = None if told is None else EngineFailure(**told)
        try:
            values = tuple(
                kept_values(self.values / f"{key[:40]}-{n}") for n in range(entry["samples"])
            )
        except (OSError, InputError):
            return None
        fusions = tuple(frozenset(f) for f in entry["fusions"])
        seconds, latency = entry["seconds"], entry.get("latency")
        said, tactics = tuple(entry.get("said", ())), entry.get("tactics", {})
        precisions = entry["precisions"]
        return Outcome(values, failure, fusions, precisions, seconds, latency, said, tactics)

    def close(self, *, finished: bool) -> None:
        """Ends the journal of a finished diagnosis; the values go, the record stays.

        Of an unfinished one both stay, unless there is nothing to continue.
        """
        if finished:
            self.append({"entry": "end"}, sync=False)  # without it, values that went are missed
        if finished or not self.known:
            shutil.rmtree(self.values, ignore_errors=True)
        if not finished and not self.known:
            self.file.unlink(missing_ok=True)
