"""Builds that are counted, remembered and written down before they count.

A probe is one build of one candidate and its runs on the samples.  Its key is its content: the
candidate's bytes, the taps, the engine with its options and the inputs.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from debugtaps import Array, Build, EngineFailure, EnvironmentFailure, Host, WorkerError
from tapsect.journal import Journal, Outcome

__all__ = ["BuildsSpent", "Prober"]

Sample = Mapping[str, Array]


class BuildsSpent(EnvironmentFailure):
    """The diagnosis has made as many builds as it may."""

    limit = "builds"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Prober:
    """Probes one engine.

    Args:
        host: The engine's worker.
        journal: Where probes are written down.
        identity: Engine, options and interpreter, for the key.
        timeout: Seconds a first build may take; later ones get five times the longest good one.
        most: Probes that may be made; without it, as many as it takes.

    Attributes:
        builds: Probes so far, those that an earlier process made included; each counts once.
        runs: Runs so far.
        epoch: Probes of different epochs are different even when their content is equal.
    """

    def __init__(
        self, host: Host, journal: Journal, identity: str, timeout: float,
        most: int | None = None,
    ) -> None:  # fmt: skip
        self.host, self.journal, self.identity = host, journal, identity
        self.most = most
        self.limit = timeout
        self.longest = 0.0
        self.builds = 0
        self.runs = 0
        self.epoch = 0
        self._counted: set[str] = set()

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
        kernels: bool = False,
        keep: bool = True,
        timed: bool = False,
        plan: Path | None = None,
    ) -> Outcome:
        """Builds ``model``, runs every sample, writes the probe down and returns it.

        Args:
            model: The candidate, taps promoted.
            samples: Feeds; those the candidate does not read are ignored.
            taps: Tensors among its outputs that are taps.
            purpose: For the journal.
            fresh: Distinguishes repeated probes of equal content.
            details: Whether to ask for fusions and precisions as well.
            kernels: Whether to ask for fusions where the engine has to build once more to tell.
            keep: Whether values are worth keeping for a resumed diagnosis.
            timed: Whether to measure the latency of the first sample as well.
            plan: A file of the engine's to load, in place of a build.

        Raises:
            BuildsSpent: As many probes were made as may be.
        """
        salt = f"{self.epoch}.{fresh}" + (f".{_digest(plan)}" if plan is not None else "")
        key = self.key(model.read_bytes(), taps, samples, salt)
        if self.most is not None and self.builds >= self.most:
            raise BuildsSpent(f"stopped after {self.builds} builds, as many as were allowed")
        again = key in self._counted
        self._counted.add(key)
        self.builds += not again
        known = self.journal.recall(key)
        if known is not None:
            self.runs += 0 if again else len(samples)
            self.longest = max(self.longest, 0.0 if known.failure else known.seconds)
            return known
        outcome = self._probe(
            model, samples, taps, details=details, kernels=kernels, timed=timed, plan=plan
        )
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
        kernels: bool = False, timed: bool = False, plan: Path | None = None,
    ) -> Outcome:  # fmt: skip
        start = time.monotonic()
        build: Build | None = None
        try:
            if plan is not None:
                build = self.host.load(plan, timeout=self.timeout)
            else:
                build = self.host.build(model, taps, timeout=self.timeout, samples=samples)
            values: list[Mapping[str, Array]] = []
            for sample in () if self.host.builds_only else samples:
                self.runs += 1
                values.append(build.run(sample, timeout=self.timeout))
            told = self._details(build, kernels=kernels) if details else Outcome()
            seconds = time.monotonic() - start
            self.longest = max(self.longest, seconds)
            latency = statistics.median(build.time(samples[0])) if timed else None
            return replace(
                told, values=tuple(values), seconds=seconds, latency=latency, said=build.said
            )
        except EngineFailure as failure:
            return Outcome((), failure, seconds=time.monotonic() - start)
        finally:
            if build is not None:
                with suppress(EngineFailure, WorkerError):
                    build.close()

    def _details(self, build: Build, *, kernels: bool) -> Outcome:
        told = Outcome()
        with suppress(EngineFailure):
            told = Outcome(
                fusions=build.fusions(), precisions=build.precisions(), tactics=build.tactics()
            )
            if kernels and not told.fusions:
                told = replace(told, fusions=build.kernels())
        return told
