"""Many jobs on this machine: as many at once as were asked for, one to a GPU."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Protocol

from tapsect.triage.job import Done, Job
from tapsect.triage.supervise import Supervisor

__all__ = ["Executor", "Local"]


class Executor(Protocol):
    """Makes diagnoses somewhere; their folders end up among those of all findings."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Yields what became of each job, in the order they end; each exactly once."""

    def close(self) -> None:
        """Ends what is running."""


class Local:
    """Runs jobs in processes of this machine.

    Args:
        home: The folder of all findings.
        jobs: How many at once.
        gpus: The machine's GPUs, as ``CUDA_VISIBLE_DEVICES`` names them.  A job that takes GPUs
            waits for them and sees no others; where there are none, jobs see what there is.
    """

    def __init__(self, home: Path, *, jobs: int = 1, gpus: Sequence[str] = ()) -> None:
        self.supervisor = Supervisor(home)
        self.jobs = jobs
        self.total = len(gpus)
        self.free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for gpu in gpus:
            self.free.put(gpu)
        self._takes = queue.SimpleQueue[None]()  # one job at a time gathers its GPUs
        self._takes.put(None)

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Yields what became of each job, in the order they end."""
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            try:
                for future in as_completed([pool.submit(self._run, job) for job in jobs]):
                    yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.supervisor.stop()
                raise

    def close(self) -> None:
        """Ends what is running."""
        self.supervisor.stop()

    def _run(self, job: Job) -> Done:
        count = min(self.total, math.ceil(job.gpus))
        if not count:
            return self.supervisor.run(job)
        self._takes.get()
        taken = [self.free.get() for _ in range(count)]
        self._takes.put(None)
        try:
            return self.supervisor.run(job, env={"CUDA_VISIBLE_DEVICES": ",".join(taken)})
        finally:
            for gpu in taken:
                self.free.put(gpu)
