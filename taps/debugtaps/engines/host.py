"""The parent's side of an engine: a warm child process that survives what the engine does.

A ``Host`` loads one engine in a child and builds models in it; a ``Build`` is one session
there.  Whatever goes wrong in the engine comes back as ``EngineFailure`` with a kind; the next
call finds a fresh child.  Sessions die with their child: a ``Build`` from before a restart says
so.  Resident feeds are sent again by themselves.

A host serves one caller at a time and may be handed from thread to thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from debugtaps.engines.blame import died, load_died, load_refused, raised, timed_out, torn
from debugtaps.engines.builds import Build, Noise, Sweep, checked, ranges
from debugtaps.engines.child import Child, ChildDied, ChildLate, Reply
from debugtaps.engines.contract import Array, Feeds
from debugtaps.engines.crossing import exchange
from debugtaps.engines.facts import Facts
from debugtaps.engines.registry import EngineSpec
from debugtaps.engines.spare import taken
from debugtaps.engines.worker import TornFile
from debugtaps.errors import Phase, WorkerError

__all__ = ["Build", "EngineSpec", "Host", "Noise", "Sweep"]

NO_ARRAYS: Mapping[str, Feeds] = MappingProxyType({})


class Host(Facts):
    """An engine in a child process.

    Args:
        spec: The engine, from ``registry.resolve``.
        python: The interpreter to run it under; this one when not given.
        timeout: Seconds that loading, a build or a run may take when the call names no other.
        cwd: The folder of the child; modules named by a spec are found there.

    Attributes:
        builds: How many builds were tried.
        runs: How many runs were tried; a sweep of n runs counts n + 1.
        restarts: How many children had to be replaced.
        load_seconds: How long the first child took until it had loaded the engine; 0 before.
        room: A folder where large arrays lie on their way; without one they go through pipes.
    """

    def __init__(
        self, spec: EngineSpec, *, python: Path | None = None, timeout: float = 600.0,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.spec = spec
        self.python = python
        self.timeout = timeout
        self.room: Path | None = None
        self.builds = self.runs = self.restarts = self.generation = 0
        self.load_seconds = self._began = 0.0
        self._cwd = cwd
        self._child: Child | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._resident: dict[str, dict[str, Array]] = {}
        self._sent: set[str] = set()
        self.lock = threading.RLock()

    def another(self) -> Host:
        """Returns a further worker of the same engine, not started."""
        made = Host(self.spec, python=self.python, timeout=self.timeout, cwd=self._cwd)
        made.room = self.room
        return made

    def start(self) -> None:
        """Starts the child and tells it what to load; does not wait for either.

        Raises:
            WorkerError: There is no such interpreter.
        """
        with self.lock:
            if self._child is not None and self._child.alive():
                return
            if self._child is not None:
                self._forget()
                self.restarts += 1
            spare = taken() if self.python is None and self._cwd is None else None
            self._child = spare or Child(self.python or Path(sys.executable), self._cwd)
            self.generation += 1
            self._began = time.monotonic()
            self._child.send(self._load_request(), NO_ARRAYS, time.monotonic() + self.timeout)

    def turn(self, options: Mapping[str, Any]) -> None:
        """Constructs the engine anew with other options, in the same child when one runs.

        Sessions that are open stay what they are.

        Raises:
            WorkerError, MissingPackage, SpecError: It cannot be set up with these.
        """
        with self.lock:
            if dict(options) == dict(self.spec.options):
                return
            self.spec = replace(self.spec, options=dict(options))
            self._facts.clear()
            if self._child is None or not self._child.alive():
                return
            if self._loaded is None:
                self._forget()
                return
            self._loaded = None
            self._child.send(self._load_request(), NO_ARRAYS, time.monotonic() + self.timeout)
            self._ready()

    def _load_request(self) -> dict[str, Any]:
        target, options = list(self.spec.target), dict(self.spec.options)
        return {"op": "load", "target": target, "options": options}

    def _forget(self) -> None:
        self._loaded = None
        self._sent.clear()
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ready(self) -> Child:
        """Returns a child that has loaded the engine."""
        self.start()
        assert self._child is not None
        if self._loaded is None:
            try:
                reply = self._child.receive(time.monotonic() + self.timeout)
            except ChildDied as end:
                tail = self._child.tail()
                raise load_died(self.spec, self.python, end.code, tail) from None
            except ChildLate:
                raise WorkerError(
                    f"engine {self.spec.spec!r} did not load within {self.timeout:g} s"
                ) from None
            except BaseException:
                self._child.kill()
                raise
            header = reply.header
            if "error" in header or "refused" in header:
                tail = self._child.tail()
                self._forget()
                raise load_refused(self.spec, self.python, header, tail)
            self._loaded = header
            self.load_seconds = self.load_seconds or time.monotonic() - self._began
        return self._child

    def ask(
        self,
        request: Mapping[str, Any],
        groups: Mapping[str, Feeds] = NO_ARRAYS,
        *,
        phase: Phase = "run",
        timeout: float | None = None,
    ) -> Reply:
        """Sends one request and returns its answer; every failure is an ``EngineFailure``."""
        with self.lock:
            child = self._ready()
            limit = self.timeout if timeout is None else timeout
            deadline = time.monotonic() + limit
            try:
                reply = exchange(child, request, groups, deadline, self.room)
            except ChildDied as end:
                raise died(end.code, phase, child.tail()) from None
            except ChildLate:
                raise timed_out(limit, phase, child.tail()) from None
            except TornFile as error:
                raise torn(str(error), phase, child.tail()) from None
            if "error" in reply.header:
                if reply.header["error"]["fatal"]:
                    child.kill()  # its device answers every later call with this error
                raise raised(self.spec, reply.header["error"], phase, child.tail())
            return reply

    def build(
        self,
        model: Path,
        taps: Sequence[str] = (),
        *,
        timeout: float | None = None,
        samples: Sequence[Feeds] = (),
    ) -> Build:
        """Builds ``model`` with ``taps`` exposed.

        Args:
            model: The file; its taps are promoted unless the engine does that itself.
            taps: Tensors to expose.
            timeout: Seconds it may take.
            samples: What it will be run on, for an engine that must know shapes beforehand.

        Raises:
            EngineFailure: The engine refused, died or was late.
            WorkerError, MissingPackage, SpecError: It could not be loaded at all.
        """
        with self.lock:
            self._ready()
            self.builds += 1
            assert self._loaded is not None
            request = {
                "op": "build",
                "model": str(Path(model).absolute()),
                "taps": list(taps),
                "ranges": ranges(samples) if self._loaded["expects"] else None,
            }
            return self._built(self.ask(request, phase="build", timeout=timeout), taps)

    def load(self, folder: Path, *, timeout: float | None = None) -> Build:
        """Returns the session that ``Build.save`` wrote to ``folder``, or that of one file."""
        request = {"op": "restore", "folder": str(Path(folder).absolute())}
        with self.lock:
            return self._built(self.ask(request, phase="build", timeout=timeout), ())

    def _built(self, reply: Reply, taps: Sequence[str]) -> Build:
        header = reply.header
        return Build(self, int(header["session"]), taps, header["has"], header["said"])

    def put(self, key: str, feeds: Feeds) -> None:
        """Keeps feeds under ``key``; they travel with the first run that uses them."""
        with self.lock:
            self._resident[key] = checked(feeds)
            self._sent.discard(key)

    def drop(self, key: str) -> None:
        """Forgets the feeds of ``key``, here and in the child."""
        with self.lock:
            self._resident.pop(key, None)
            if key in self._sent and self._child is not None and self._child.alive():
                self.ask({"op": "drop", "key": key})
            self._sent.discard(key)

    def deliver(self, key: str | None) -> None:
        """Sends resident feeds that the child does not hold yet."""
        with self.lock:
            if key is None or key in self._sent:
                return
            self.ask({"op": "put", "key": key}, {"feed": self._resident[key]})
            self._sent.add(key)

    def told(self) -> Mapping[str, Any]:
        """Returns what the worker told when it had loaded the engine; waits for that."""
        with self.lock:
            self._ready()
            assert self._loaded is not None
            return self._loaded

    def ready(self) -> None:
        """Waits until the engine is loaded.

        Raises:
            WorkerError, MissingPackage, SpecError: It cannot be.
        """
        with self.lock:
            self._ready()

    @property
    def pid(self) -> int:
        """The process id of the child."""
        with self.lock:
            return self._ready().pid

    def alive(self, generation: int) -> bool:
        """Returns whether the child of that generation still lives."""
        return generation == self.generation and self._child is not None and self._child.alive()

    def tail(self) -> str:
        """Returns the last lines that the child printed since the last request."""
        with self.lock:
            return self._child.tail() if self._child is not None else ""

    def abort(self) -> None:
        """Kills the child without waiting for a call under way, which then fails."""
        child = self._child
        if child is not None:
            child.end()

    def close(self) -> None:
        """Ends the child."""
        with self.lock:
            self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
