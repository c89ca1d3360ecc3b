"""One job in a process of its own, held to its limits; it and all it started end together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from debugtaps import OutputError, write_json_atomic
from tapsect.folder import RESULT, locked
from tapsect.triage.job import Done, Job, Stopped
from tapsect.triage.runner import stop_file

__all__ = ["Supervisor", "finished"]

_LOOK_S = 0.25


def finished(home: Path, folder: str) -> Mapping[str, Any] | None:
    """Returns the result that a folder holds, ``None`` when it holds none that is whole."""
    try:
        body: Mapping[str, Any] = json.loads((home / folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # A journal without its last line belongs to a diagnosis that is to be continued.
    with suppress(OSError):
        journal = (home / folder / "journal.jsonl").read_text(encoding="utf-8")
        return body if '"entry": "end"' in journal[-200:] else None
    return body


class Supervisor:
    """Runs jobs, from several threads at once.

    Args:
        home: The folder of all findings.

    Attributes:
        stopping: Set by `stop`: no further job starts.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.stopping = False
        self._running: set[int] = set()

    def run(self, job: Job, *, env: Mapping[str, str] | None = None) -> Done:
        """Returns what became of a job.

        A folder that already holds its result is taken as it is; one that another run is at is
        waited for.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        with self._alone(job.folder):
            known = finished(self.home, job.folder)
            return self._run(job, env or {}) if known is None else Done(job.key, known)

    @contextmanager
    def _alone(self, folder: str) -> Iterator[None]:
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self.home / f"{folder}.lock"))
                    break
                except OutputError:
                    if self.stopping:
                        break
                    time.sleep(_LOOK_S)
            yield

    def _run(self, job: Job, env: Mapping[str, str]) -> Done:
        out = self.home / job.folder
        told = {**job.to_json(), "arguments": {**job.arguments, "out": str(out.absolute())}}
        file = self.home / f"{job.folder}.job.json"
        write_json_atomic(file, told)
        stop_file(out).unlink(missing_ok=True)
        start = time.monotonic()
        stopped = self._supervise(file, out, job, {**os.environ, **env})
        seconds = time.monotonic() - start
        file.unlink(missing_ok=True)
        result = None if stopped else finished(self.home, job.folder)
        if result is None:
            stopped = stopped or Stopped("died", "its process left no result")
            if not self.stopping:  # what the user stopped is continued, what failed is not
                shutil.rmtree(out, ignore_errors=True)
        else:
            out.with_name(f"{out.name}.log").unlink(missing_ok=True)
        return Done(job.key, result, stopped, seconds)

    def stop(self) -> None:
        """Ends every process that is running, from any thread."""
        self.stopping = True
        for pid in list(self._running):
            _kill(pid)

    def _supervise(self, file: Path, out: Path, job: Job, env: Mapping[str, str]) -> Stopped | None:
        with out.with_name(f"{out.name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tapsect.triage.runner", str(file)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, env=env,
            )  # fmt: skip
        self._running.add(process.pid)
        if self.stopping:
            _kill(process.pid)
        try:
            over = _wait(process, job.limits)
        finally:
            _kill(process.pid)
            process.wait()
            self._running.discard(process.pid)
            assert process.stdin is not None
            process.stdin.close()
        return over or _why(process.returncode, out)


def _wait(process: subprocess.Popen[bytes], limits: Mapping[str, float]) -> Stopped | None:
    """Waits for the end, or for a limit that is passed."""
    start, most = time.monotonic(), limits.get("memory")
    seconds = limits.get("time", float("inf"))
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return None
        if time.monotonic() - start > seconds:
            return Stopped("time", f"stopped after {seconds:g} s, the limit of its time")
        if most is not None and (held := _memory(process.pid)) > most:
            said = f"stopped at {held >> 20} MiB, its limit is {int(most) >> 20} MiB"
            return Stopped("memory", said)


def _family(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _memory(pid: int) -> int:
    """Returns the bytes that a process and all it started hold."""
    held = 0
    for each in _family(pid):
        with suppress(psutil.Error):
            held += each.memory_info().rss
    return held


def _kill(pid: int) -> None:
    """Ends a process and all it started; harmless when they are gone."""
    for each in _family(pid):
        with suppress(psutil.Error):
            each.kill()


def _why(code: int, out: Path) -> Stopped | None:
    """Returns why a runner that ended has no finding."""
    if code == 0:
        return None
    try:
        told = json.loads(stop_file(out).read_text(encoding="utf-8"))
        stop_file(out).unlink()
        return Stopped(told["kind"], str(told["message"]))
    except (OSError, ValueError, KeyError):
        ended = f"signal {-code}" if code < 0 else f"status {code}"
        return Stopped("died", f"its process ended by itself, with {ended}")
