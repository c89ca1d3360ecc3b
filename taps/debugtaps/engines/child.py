"""One child process: its two pipes, its end, and the last lines it printed.

Knows nothing of engines.  A wait has a deadline; a child that dies or is late is reported as
``ChildDied`` or ``ChildLate`` and is gone, with its whole process group, when they are raised.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debugtaps.errors import WorkerError

__all__ = ["Child", "ChildDied", "ChildLate", "Reply"]

if TYPE_CHECKING:
    from debugtaps.engines.contract import Array
    from debugtaps.engines.crossing import Crossing

# The framing is imported where it is used: it loads numpy, which need not be there to begin.
WORKER_FILE = Path(__file__).with_name("worker.py")

LARGE_GOES_BACK = {
    "MALLOC_MMAP_THRESHOLD_": str(2 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
}
"""Has glibc give large blocks back to the system: by itself it keeps most of what once was used."""

_F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ, which Python names on Linux only
_PIPE_BYTES = 1 << 20
_HEARTBEAT_S = 0.25
_GRACE_S = 2.0
_TAIL_LINES = 40
_TAIL_BYTES = 16_384
_LOG_LIMIT = 16 << 20


class ChildDied(Exception):
    """The child ended without an answer; ``code`` is its return code, negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ChildLate(Exception):
    """The child had not answered at the deadline, and was killed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the child.

    Attributes:
        header: What it says.
        arrays: What it carries, by group and name.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, Mapping[str, Array]]


class Child:
    """A worker that runs under ``python``, in its own session, with ``cwd`` as its folder."""

    def __init__(self, python: Path, cwd: Path | None = None) -> None:
        # The log is a file and not a pipe: nobody need drain it, and it outlives the child.
        try:
            self._log = tempfile.TemporaryFile(prefix="tapsect-log-", mode="a+b")  # noqa: SIM115
        except OSError as error:
            raise WorkerError(
                f"no temporary file can be made ({error.strerror or error}); set TMPDIR to a "
                "folder with room"
            ) from error
        self._mark = 0
        request_read, self._request = os.pipe()
        self._reply, reply_write = os.pipe()
        try:
            self._process = self._spawn(python, cwd, request_read, reply_write)
        except OSError as error:
            for fd in (self._request, self._reply):
                os.close(fd)
            self._log.close()
            raise WorkerError(
                f"cannot start a worker with {python}: {error.strerror or error}; "
                "give --engine-python the path of a Python interpreter"
            ) from error
        finally:
            os.close(request_read)
            os.close(reply_write)
        self._open = True
        os.set_blocking(self._request, False)
        if sys.platform == "linux":
            for fd in (self._request, self._reply):
                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)

    def _spawn(
        self, python: Path, cwd: Path | None, request: int, reply: int
    ) -> subprocess.Popen[bytes]:
        by_signal = threading.current_thread() is threading.main_thread()
        numbers = (request, reply, os.getpid(), int(by_signal))
        return subprocess.Popen(
            [os.fspath(python), os.fspath(WORKER_FILE), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=cwd,
            env=LARGE_GOES_BACK | os.environ | {"PYTHONUNBUFFERED": "1"},
            pass_fds=(request, reply),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def alive(self) -> bool:
        """Returns whether the child can still be asked."""
        return self._open and self._process.poll() is None

    def send(
        self,
        header: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Array]],
        deadline: float,
        crossing: Crossing | None = None,
    ) -> None:
        """Writes one request; a child that has died is found when the answer is read.

        Args:
            header: What is asked.
            groups: Arrays, by group and name.
            deadline: When it must be written, on the monotonic clock.
            crossing: Takes large arrays, and the child's; without it all go through the pipes.
        """
        from debugtaps.engines import worker

        self._mark = self._end_of_log()
        asked = header if crossing is None else {**header, "room": crossing.answer}
        try:
            for piece in worker.encode(asked, groups, crossing):
                view = memoryview(piece).cast("B")
                while len(view):
                    view = view[self._write_some(view, deadline) :]
        except BrokenPipeError:
            return

    def _write_some(self, view: memoryview, deadline: float) -> int:
        try:
            return os.write(self._request, view[:_PIPE_BYTES])
        except BlockingIOError:
            self._wait(self._request, select.POLLOUT, deadline)
            return 0

    def receive(self, deadline: float, crossing: Crossing | None = None) -> Reply:
        """Returns the next answer.

        Raises:
            ChildDied: The child ended first.
            ChildLate: The deadline passed first.
            worker.TornFile: Its arrays do not lie where it says.
        """
        from debugtaps.engines import worker

        def read(view: memoryview) -> None:
            while len(view):
                self._wait(self._reply, select.POLLIN, deadline)
                got = os.readv(self._reply, [view[:_PIPE_BYTES]])
                if not got:
                    raise ChildDied(self._reap())
                view = view[got:]

        header, arrays = worker.decode(read, None if crossing is None else crossing.take)
        return Reply(header, arrays)

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poller = select.poll()
        poller.register(fd, event)
        while True:
            left = deadline - time.monotonic()
            if poller.poll(1000 * max(0.0, min(left, _HEARTBEAT_S))):
                return
            if left <= 0:
                self.kill()
                raise ChildLate
            # A process forked by the engine may hold our pipe open after the child's end.
            if self._process.poll() is not None and not poller.poll(0):
                raise ChildDied(self._reap())

    def _reap(self) -> int:
        try:
            code = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            code = 0  # it closed our pipe and lives on: no answer will come
        self.kill()
        return code

    def _end_of_log(self) -> int:
        end = self._log.seek(0, os.SEEK_END)
        if end > _LOG_LIMIT:
            self._log.truncate(0)
            return 0
        return end

    def tail(self) -> str:
        """Returns the last lines that the child printed since the last request."""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._mark, end - _TAIL_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def end(self) -> None:
        """Ends the child from another thread than the one that waits for it.

        The pipes stay open: their numbers could be given to others under the one that waits,
        which sees the end of the child, closes them and raises ``ChildDied``.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the child and everything it started; harmless when it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        if self._open:
            self._open = False
            os.close(self._request)
            os.close(self._reply)

    def close(self) -> None:
        """Ends the child and forgets its log; it holds nothing that it would have to put down."""
        self.kill()
        self._log.close()


def signal_name(code: int) -> str | None:
    """Returns the name of the signal behind a return code, None when it was a plain exit.

    A shell between us and the child turns signal n into exit code 128 + n.

    >>> signal_name(-11), signal_name(134), signal_name(3)
    ('SIGSEGV', 'SIGABRT', None)
    """
    number = -code if code < 0 else code - 128
    known: Sequence[int] = [int(each) for each in signal.Signals]
    return signal.Signals(number).name if number in known else None
