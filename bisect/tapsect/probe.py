"""Builds that are counted, remembered and written down before they count.

A probe is one build of one candidate and its runs on the samples.  Its key is its content: the
candidate's bytes, the taps, the engine with its options and the inputs.  The journal holds every
probe that ended, values beside it, so that an interrupted diagnosis continues where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from debugtaps import (
    Array,
    Build,
    EngineFailure,
    Host,
    InputError,
    WorkerError,
    read_npz,
    write_npz,
)

__all__ = ["Journal", "Outcome", "Prober"]

Sample = Mapping[str, Array]


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
    """

    values: tuple[Mapping[str, Array], ...] = ()
    failure: EngineFailure | None = None
    fusions: tuple[frozenset[str], ...] = ()
    precisions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    latency: float | None = None
    said: tuple[str, ...] = ()


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
            self.append({"entry": "begin", "identity": identity})

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

    def append(self, entry: Mapping[str, Any]) -> None:
        """Writes one line and makes sure that it is on the disk."""
        line = json.dumps(entry, ensure_ascii=True, default=str).encode() + b"\n"
        with self.file.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def record(self, key: str, outcome: Outcome, purpose: str) -> None:
        """Writes a probe down, its values first."""
        for number, values in enumerate(outcome.values):
            write_npz(self.values / f"{key[:40]}-{number}.npz", values)
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
            "said": list(outcome.said),
        }  # fmt: skip
        self.append(entry)
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
                read_npz(self.values / f"{key[:40]}-{n}.npz") for n in range(entry["samples"])
            )
        except (OSError, InputError):
            return None
        fusions = tuple(frozenset(f) for f in entry["fusions"])
        seconds, latency = entry["seconds"], entry.get("latency")
        said = tuple(entry.get("said", ()))
        return Outcome(values, failure, fusions, entry["precisions"], seconds, latency, said)

    def close(self, *, finished: bool) -> None:
        """Ends the journal of a finished diagnosis; the values go, the record stays.

        Of an unfinished one both stay, unless there is nothing to continue.
        """
        if finished:
            self.append({"entry": "end"})
        if finished or not self.known:
            shutil.rmtree(self.values, ignore_errors=True)
        if not finished and not self.known:
            self.file.unlink(missing_ok=True)


class Prober:
    """Probes one engine.

    Args:
        host: The engine's worker.
        journal: Where probes are written down.
        identity: Engine, options and interpreter, for the key.
        timeout: Seconds a first build may take; later ones get five times the longest good one.

    Attributes:
        builds: Probes so far, remembered ones included.
        runs: Runs so far.
        epoch: Probes of different epochs are different even when their content is equal.
    """

    def __init__(self, host: Host, journal: Journal, identity: str, timeout: float) -> None:
        self.host, self.journal, self.identity = host, journal, identity
        self.limit = timeout
        self.longest = 0.0
        self.builds = 0
        self.runs = 0
        self.epoch = 0

    @property
    def exposes(self) -> bool:
        """Returns whether the engine exposes taps itself, from a model without them."""
        return self.host.promotes_taps

    @property
    def builds_only(self) -> bool:
        """Returns whether the engine never runs what it builds: no values will come."""
        return self.host.builds_only

    @property
    def timeout(self) -> float:
        """Returns the seconds the next build or run may take."""
        return min(self.limit, max(10.0, 5 * self.longest)) if self.longest else self.limit

    def key(self, model: bytes, taps: Sequence[str], samples: Sequence[Sample], salt: str) -> str:
        """Returns the content key of a probe."""
        digest = hashlib.sha256(self.identity.encode())
        for part in (model, "\0".join(taps).encode(), salt.encode()):
            digest.update(hashlib.sha256(part).digest())
        for sample in samples:
            for name in sorted(sample):
                value = np.ascontiguousarray(sample[name])
                digest.update(f"{name}{value.dtype}{value.shape}".encode())
                if value.dtype.kind in "OU":
                    digest.update(repr(value.tolist()).encode())
                else:
                    digest.update(
                        value.view(np.uint8).data if value.size and value.ndim else value.tobytes()
                    )
        return digest.hexdigest()

    def look(
        self,
        model: Path,
        samples: Sequence[Sample],
        *,
        taps: Sequence[str] = (),
        purpose: str = "",
        fresh: int = 0,
        details: bool = False,
        keep: bool = True,
        timed: bool = False,
    ) -> Outcome:
        """Builds ``model``, runs every sample, writes the probe down and returns it.

        Args:
            model: The candidate, taps promoted.
            samples: Feeds; those the candidate does not read are ignored.
            taps: Tensors among its outputs that are taps.
            purpose: For the journal.
            fresh: Distinguishes repeated probes of equal content.
            details: Whether to ask for fusions and precisions as well.
            keep: Whether values are worth keeping for a resumed diagnosis.
            timed: Whether to measure the latency of the first sample as well.
        """
        key = self.key(model.read_bytes(), taps, samples, f"{self.epoch}.{fresh}")
        self.builds += 1
        known = self.journal.recall(key)
        if known is not None:
            self.runs += len(samples)
            self.longest = max(self.longest, 0.0 if known.failure else known.seconds)
            return known
        outcome = self._probe(model, samples, taps, details=details, timed=timed)
        if keep:
            self.journal.record(key, outcome, purpose)
        return outcome

    @contextmanager
    def turned(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Probes the engine with other options for as long as it lasts.

        Raises:
            WorkerError, MissingPackage, SpecError: It cannot be set up with these.
        """
        usual, identity = dict(self.host.spec.options), self.identity
        self.identity = f"{identity} {json.dumps(dict(options), sort_keys=True, default=str)}"
        try:
            self.host.turn(options)
            yield
        finally:
            self.identity = identity
            self.host.turn(usual)

    def _probe(
        self, model: Path, samples: Sequence[Sample], taps: Sequence[str], *, details: bool,
        timed: bool = False,
    ) -> Outcome:  # fmt: skip
        start = time.monotonic()
        build: Build | None = None
        try:
            build = self.host.build(model, taps, timeout=self.timeout, samples=samples)
            values: list[Mapping[str, Array]] = []
            for sample in () if self.host.builds_only else samples:
                self.runs += 1
                values.append(build.run(sample, timeout=self.timeout))
            fusions, precisions = self._details(build) if details else ((), {})
            seconds = time.monotonic() - start
            self.longest = max(self.longest, seconds)
            latency = statistics.median(build.time(samples[0])) if timed else None
            said = build.said
            return Outcome(tuple(values), None, fusions, precisions, seconds, latency, said)
        except EngineFailure as failure:
            return Outcome((), failure, seconds=time.monotonic() - start)
        finally:
            if build is not None:
                with suppress(EngineFailure, WorkerError):
                    build.close()

    def _details(self, build: Build) -> tuple[tuple[frozenset[str], ...], Mapping[str, str]]:
        with suppress(EngineFailure):
            return build.fusions(), build.precisions()
        return (), {}
