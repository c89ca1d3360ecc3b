"""Several questions at a time, with the result of one at a time.

Who asks stays sequential: it names what it will ask next while the answers are no, and those
questions are begun early.  A yes makes some of them idle work; it never changes what is asked,
so that results and the count of questions are the same for any number of jobs.  What may have
failed because of its neighbours is asked again alone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Generic, TypeVar

__all__ = ["Ahead"]

C = TypeVar("C", bound=Hashable)
A = TypeVar("A")
B = TypeVar("B")


class Ahead(Generic[C, A]):
    """Asks, from a record of what was begun early where there is one.

    Args:
        ask: Answers a question in a lane; lanes are numbered from 0 and never shared.
        jobs: How many lanes there are.
        keep: Takes each answer in as soon as it is there; not one that is asked again.
        squeezed: Whether an answer may come of what went on beside it.

    Attributes:
        idle: Questions that were begun and never asked for.
        crowded: Whether an answer was another one alone; nothing is begun early from then on.
    """

    def __init__(
        self, ask: Callable[[C, int], A], jobs: int, *,
        keep: Callable[[C, A], None] = lambda _, __: None,
        squeezed: Callable[[A], bool] = lambda _: False,
    ) -> None:  # fmt: skip
        self.ask, self.jobs, self.keep, self.squeezed = ask, jobs, keep, squeezed
        self.crowded = False
        # The lowest first: what is asked now goes where somebody works already.
        self._lanes: queue.PriorityQueue[int] = queue.PriorityQueue()
        for lane in range(jobs):
            self._lanes.put(lane)
        self._pool = ThreadPoolExecutor(jobs)
        self._begun: dict[C, Future[tuple[A, bool]]] = {}
        self._started = 0
        self._wanted = 0
        self._busy: set[int] = set()
        self._met: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, question: C) -> A:
        """Returns the answer to a question."""
        begun = self._begun.pop(question, None)
        self._wanted += 1
        if begun is None or begun.cancelled():
            begun = self._submit(question)
        answer, kept = begun.result()
        if kept:
            return answer
        self._rest()
        alone = self.run(lambda lane: self.ask(question, lane))
        self.keep(question, alone)
        self.crowded |= not self.squeezed(alone)
        return alone

    def __contains__(self, question: C) -> bool:
        """Returns whether a question was begun and not asked for yet."""
        begun = self._begun.get(question)
        return begun is not None and not begun.cancelled()

    def begin(self, questions: Iterable[C]) -> None:
        """Begins the first few questions, as many as there are lanes; drops what waits."""
        wanted = [] if self.crowded else list(islice(questions, self.jobs))
        for question in [q for q in self._begun if q not in wanted]:
            if self._begun[question].cancel():
                del self._begun[question]
                self._started -= 1
        for question in wanted:
            running = sum(not future.done() for future in self._begun.values())
            if question not in self._begun and running < self.jobs:
                self._begun[question] = self._submit(question)

    def run(self, job: Callable[[int], B]) -> B:
        """Returns what a job of another kind answers in a lane that is free."""
        return self._pool.submit(self._with_lane, job).result()

    @property
    def idle(self) -> int:
        """Returns how many questions were begun and never asked for."""
        return self._started - self._wanted

    def close(self) -> None:
        """Ends the lanes; what waits is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _rest(self) -> None:
        """Drops what waits, and returns when nothing runs."""
        self.begin(())
        wait(self._begun.values())

    def _submit(self, question: C) -> Future[tuple[A, bool]]:
        self._started += 1
        return self._pool.submit(self._in_lane, question)

    def _in_lane(self, question: C) -> tuple[A, bool]:
        """Returns the answer, and whether it was kept."""

        def job(lane: int) -> tuple[A, bool]:
            answer = self.ask(question, lane)
            kept = lane not in self._met or not self.squeezed(answer)
            if kept:
                self.keep(question, answer)
            return answer, kept

        return self._with_lane(job)

    def _with_lane(self, job: Callable[[int], B]) -> B:
        lane = self._lanes.get()
        with self._lock:
            self._busy.add(lane)
            self._met = self._met | self._busy if len(self._busy) > 1 else self._met - {lane}
        try:
            return job(lane)
        finally:
            with self._lock:
                self._busy.discard(lane)
            self._lanes.put(lane)
