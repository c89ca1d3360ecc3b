"""Builds that are counted, remembered and written down before they count.

A probe is one build of one candidate and its runs on the samples.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

from debugtaps import Build, EngineFailure, EnvironmentFailure, Host, WorkerError
from tapsect.ahead import Ahead
from tapsect.journal import Journal, Outcome
from tapsect.request import About, Request, Sample, content_key, digest_of

__all__ = ["CROWDED", "BuildsSpent", "Prober"]

WORTH_AHEAD_S = 0.5
"""Seconds of a build from which another one beside it may pay."""

CROWDED = frozenset({"out_of_memory", "timeout"})
"""Failures that may come of builds beside each other."""

RECENT = 4
"""Builds that tell how long the next will take."""


class BuildsSpent(EnvironmentFailure):
    """The diagnosis has made as many builds as it may."""

    limit = "builds"


class Prober:
    """Probes one engine, in as many workers as it is given.

    Args:
        host: The engine's worker.
        journal: Where probes are written down.
        identity: Engine, options and interpreter, for the key.
        timeout: Seconds a first build may take; later ones get five times the longest good one.
        most: Probes that may be made; without it, as many as it takes.
        further: Workers of the same engine for probes that are begun early; the prober ends them.

    Attributes:
        builds: Probes so far, those that an earlier process made included; each counts once.
        runs: Runs so far.
        epoch: Probes of different epochs are different even when their content is equal.
    """

    def __init__(
        self, host: Host, journal: Journal, identity: str, timeout: float,
        most: int | None = None, further: Sequence[Host] = (),
    ) -> None:  # fmt: skip
        self.host, self.journal, self.identity = host, journal, identity
        self.most = most
        self.limit = timeout
        self.longest = 0.0
        self.builds = 0
        self.runs = 0
        self.epoch = 0
        self.options = dict(host.spec.options)
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._closed = False
        self._counted: set[str] = set()
        self._hosts = (host, *further)
        self._writing = threading.Lock()
        self._ahead: Ahead[Request, Outcome] | None = None
        if further:
            self._ahead = Ahead(
                lambda asked, lane: self._made(asked, self._hosts[lane]), len(self._hosts),
                keep=self._keep, squeezed=_squeezed,
            )  # fmt: skip

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

    def request(
        self, model: Path, samples: Sequence[Sample], *, fresh: int = 0, **about: Unpack[About]
    ) -> Request:
        """Returns what to ask.

        Args:
            model: The candidate, taps promoted.
            samples: Feeds; those the candidate does not read are ignored.
            fresh: Distinguishes repeated probes of equal content.
            **about: The fields of a request of these names.
        """
        plan = about.get("plan")
        salt = f"{self.epoch}.{fresh}" + (f".{digest_of(plan)}" if plan is not None else "")
        key = content_key(self.identity, model.read_bytes(), about.get("taps", ()), samples, salt)
        return Request(key, model, samples, self.options, **about)

    def begin(self, requests: Iterable[Request | None]) -> None:
        """Begins what is likely to be asked next, where workers are there and builds are slow.

        Nothing is begun where the first is known: its answer comes at once and says more than a
        guess, and guesses would keep all workers from what is asked next.

        Args:
            requests: What is asked now, then the nearest; only as many are taken as can be begun.
                ``None`` is a question that needs no build.
        """
        if self._ahead is None or not self._worth_it():
            return
        known = self.journal.known
        unknown = (each if each is None or each.key not in known else None for each in requests)
        first = next(unknown, None)
        if first is not None:
            self._ahead.begin(each for each in chain([first], unknown) if each is not None)

    def _worth_it(self) -> bool:
        """Returns whether builds of late are slow, and two of them pay for loading a worker."""
        usual = sum(self._recent) / max(1, len(self._recent))
        return usual >= max(WORTH_AHEAD_S, self.host.load_seconds / 2)

    @property
    def foresees(self) -> bool:
        """Returns whether there are workers for what may be asked later."""
        return self._ahead is not None

    @property
    def crowded(self) -> bool:
        """Returns whether a build failed beside others that works alone."""
        return self._ahead is not None and self._ahead.crowded

    @property
    def idle(self) -> int:
        """Returns how many builds were begun early and never asked for."""
        return self._ahead.idle if self._ahead is not None else 0

    def look(
        self, model: Path, samples: Sequence[Sample], *, fresh: int = 0, **about: Unpack[About]
    ) -> Outcome:
        """Returns ``ask`` of the ``request`` with the same arguments."""
        return self.ask(self.request(model, samples, fresh=fresh, **about))

    def ask(self, request: Request) -> Outcome:
        """Builds the model, runs every sample, writes the probe down and returns it.

        Raises:
            BuildsSpent: As many probes were made as may be.
        """
        if self.most is not None and self.builds >= self.most:
            raise BuildsSpent(f"stopped after {self.builds} builds, as many as were allowed")
        again = request.key in self._counted
        self._counted.add(request.key)
        self.builds += not again
        begun = self._ahead is not None and request in self._ahead
        known = None if begun else self.journal.recall(request.key)
        outcome = known or self._asked(request)
        if known is None or not again:
            failed_run = outcome.failure is not None and outcome.failure.phase == "run"
            self.runs += len(outcome.values) + failed_run
        self.longest = max(self.longest, 0.0 if outcome.failure else outcome.seconds)
        return outcome

    def _asked(self, request: Request) -> Outcome:
        if self._ahead is not None:
            return self._ahead(request)
        outcome = self._made(request, self.host)
        self._keep(request, outcome)
        return outcome

    def close(self) -> None:
        """Ends the further workers, and what was begun early; the engine's own dies with it."""
        self._closed = True
        if self._ahead is not None:
            for host in self._hosts:
                host.abort()  # nobody waits for what was begun and not asked for
            self._ahead.close()
            for host in self._hosts[1:]:
                host.close()

    @contextmanager
    def turned(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Probes the engine with other options for as long as it lasts.

        Raises:
            WorkerError, MissingPackage, SpecError: It cannot be set up with these.
        """
        usual = self.options
        with self.meaning(options):
            try:
                self.host.turn(options)
                yield
            finally:
                self.host.turn(usual)

    @contextmanager
    def meaning(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Has requests mean the engine with other options for as long as it lasts."""
        usual, identity = self.options, self.identity
        self.identity = f"{identity} {json.dumps(dict(options), sort_keys=True, default=str)}"
        self.options = dict(options)
        try:
            yield
        finally:
            self.identity, self.options = identity, usual

    def _keep(self, request: Request, outcome: Outcome) -> None:
        if request.keep and not self._closed:  # what was ended shows nothing
            with self._writing:
                self.journal.record(request.key, outcome, request.purpose)

    def _made(self, request: Request, host: Host) -> Outcome:
        with host.lock:  # options and build belong together
            host.turn(request.options)
            outcome = self._probe(request, host)
        self._recent.append(outcome.seconds)
        if request.own:
            request.model.unlink(missing_ok=True)
        return outcome

    def _probe(self, request: Request, host: Host) -> Outcome:
        start = time.monotonic()
        build: Build | None = None
        samples = request.samples
        try:
            limit = min(self.limit, max(self.timeout, request.patience * self.longest))
            if request.plan is not None:
                build = host.load(request.plan, timeout=limit)
            else:
                build = host.build(request.model, request.taps, timeout=limit, samples=samples)
            ran = () if host.builds_only else samples
            values = tuple(build.run(sample, timeout=limit) for sample in ran)
            told = self._details(build, kernels=request.kernels) if request.details else Outcome()
            seconds = time.monotonic() - start
            latency = statistics.median(build.time(samples[0])) if request.timed else None
            return replace(told, values=values, seconds=seconds, latency=latency, said=build.said)
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


def _squeezed(outcome: Outcome) -> bool:
    """Returns whether a failure may come of builds beside this one."""
    return outcome.failure is not None and outcome.failure.kind in CROWDED
