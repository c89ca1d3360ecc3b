"""Several checks at a time, with the result of one at a time.

Passes stay sequential: they name what they will ask next while the answers are no, and those
checks are begun early.  A yes makes some of them idle work; it never changes what is asked, so
that the minimum and the count of calls are the same for any number of jobs.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

from tapsect.reduction import Answer

__all__ = ["Ahead"]

C = TypeVar("C", bound=Hashable)


class Ahead(Generic[C]):
    """Asks a check, from a record of what was begun early where there is one.

    Args:
        ask: Judges a candidate in a lane; lanes are numbered from 0 and never shared.
        jobs: How many lanes there are.

    Attributes:
        idle: Checks that were begun and never asked for.
    """

    def __init__(self, ask: Callable[[C, int], Answer], jobs: int) -> None:
        self.ask, self.jobs = ask, jobs
        self._lanes: queue.SimpleQueue[int] = queue.SimpleQueue()
        for lane in range(jobs):
            self._lanes.put(lane)
        self._pool = ThreadPoolExecutor(jobs)
        self._begun: dict[C, Future[Answer]] = {}
        self._started = 0
        self._wanted = 0

    def __call__(self, candidate: C) -> Answer:
        """Returns the answer for a candidate."""
        begun = self._begun.pop(candidate, None)
        self._wanted += 1
        if begun is None or begun.cancelled():
            begun = self._submit(candidate)
        return begun.result()

    def begin(self, candidates: Iterable[C]) -> None:
        """Begins the first few candidates, as many as there are lanes; drops what waits."""
        wanted = list(islice(candidates, self.jobs))
        for candidate in [c for c in self._begun if c not in wanted]:
            if self._begun[candidate].cancel():
                del self._begun[candidate]
                self._started -= 1
        for candidate in wanted:
            running = sum(not future.done() for future in self._begun.values())
            if candidate not in self._begun and running < self.jobs:
                self._begun[candidate] = self._submit(candidate)

    @property
    def idle(self) -> int:
        """Returns how many checks were begun and never asked for."""
        return self._started - self._wanted

    def close(self) -> None:
        """Ends the lanes; what waits is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, candidate: C) -> Future[Answer]:
        self._started += 1
        return self._pool.submit(self._in_lane, candidate)

    def _in_lane(self, candidate: C) -> Answer:
        lane = self._lanes.get()
        try:
            return self.ask(candidate, lane)
        finally:
            self._lanes.put(lane)
