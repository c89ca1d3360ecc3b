"""The noun in the middle of a reduction: what is known to fail, and what was asked.

Passes see a problem only through ``Asked``: they propose candidates and learn verdicts.  The
cache, the signature, the budget and the counters are kept here, for candidates of any kind; what
a candidate is (a part of a graph, a whole small model) is told by four methods of a subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tapsect.verdict import Signature, Verdict

__all__ = ["Answer", "Asked", "OtherFailure", "Question", "WithinBudget"]

C = TypeVar("C", bound=Hashable)

Answer = tuple[Verdict, Signature | None]
"""What a candidate does; the signature is given with ``DIVERGES`` and may be missing."""


@dataclass(frozen=True, slots=True)
class OtherFailure(Generic[C]):
    """A candidate that fails, but not in the way that is being reduced.

    It is kept because it may be a fault of its own, worth a run of its own.
    """

    candidate: C
    signature: Signature | None


class Asked(Protocol[C]):
    """What a pass may see of a problem."""

    @property
    def current(self) -> C:
        """Returns the smallest candidate seen to fail so far."""

    def look(self, candidate: C) -> Verdict:
        """Returns what a candidate does: ``DIVERGES`` only when it fails in the right way.

        A failing candidate that is smaller becomes ``current``.  One that cannot be built, or
        that fails otherwise, is ``INVALID``: it says nothing about this fault.
        """

    def consider(self, candidate: C) -> bool:
        """Returns whether a candidate fails in the right way; see ``look``."""

    def foresee(self, candidates: Iterable[C]) -> None:
        """Tells what will be asked next while the answers are no.

        Where several can be asked at a time the first few are begun; nothing else changes.  Only
        as many are taken from ``candidates`` as can be begun, none when one is asked at a time.
        """


class Question(ABC, Generic[C]):
    """One failing candidate and the question that each smaller one must answer.

    Args:
        current: The start.
        check: Builds and runs a candidate.
        signature: The fault that is being reduced; ``None`` takes over what the start shows.
        recheck: As ``check``, for answers that must be fresh: it must not be answered from a
            record of earlier builds.  ``None`` means that ``check`` never is.
        spent: Whether the time for passes that only beautify is over.
        ahead: Begins checks whose answers may be wanted soon; ``None`` when one is made at a
            time.

    Attributes:
        current: The smallest candidate seen to fail; the start, until there is a smaller one.
        calls: How often ``check`` or ``recheck`` was asked.
        other_failures: One candidate, the smallest, of each other signature that was seen.
    """

    def __init__(
        self,
        current: C,
        check: Callable[[C], Answer],
        *,
        signature: Signature | None = None,
        recheck: Callable[[C], Answer] | None = None,
        spent: Callable[[], bool] = lambda: False,
        ahead: Callable[[Iterable[C]], None] | None = None,
    ) -> None:
        self.current, self.check, self.recheck = current, check, recheck
        self.signature, self.spent, self.ahead = signature, spent, ahead
        self.calls = 0
        self.other_failures: list[OtherFailure[C]] = []
        self._answers: dict[C, Answer] = {}

    # -- what a candidate is -------------------------------------------------------------------

    @abstractmethod
    def size(self, candidate: C) -> int:
        """Returns how many nodes a candidate has."""

    @abstractmethod
    def sort_key(self, candidate: C) -> Any:
        """Returns a total order on candidates; the smaller, the better to read."""

    @abstractmethod
    def why_invalid(self, candidate: C) -> str:
        """Returns why a candidate need not be asked; empty when nothing speaks against it."""

    @abstractmethod
    def neighbours(self, candidate: C) -> Iterator[C]:
        """Yields what is one step smaller; one none of whose neighbours fails is 1-minimal."""

    def guesses(self, hint: frozenset[int]) -> Iterator[C]:
        """Yields what to try first when ``hint`` is believed to be at fault."""
        yield from ()

    # -- asking --------------------------------------------------------------------------------

    def look(self, candidate: C) -> Verdict:
        """Returns what a candidate does; see ``Asked.look``."""
        verdict, signature = self.answer(candidate)
        if verdict is not Verdict.DIVERGES:
            return verdict
        if not self.is_same(signature):
            self._note(OtherFailure(candidate, signature))
            return Verdict.INVALID
        if candidate != self.current and self.sort_key(candidate) < self.sort_key(self.current):
            self.current = candidate
        return Verdict.DIVERGES

    def consider(self, candidate: C) -> bool:
        """Returns whether a candidate fails in the right way; see ``Asked.look``."""
        return self.look(candidate) is Verdict.DIVERGES

    def foresee(self, candidates: Iterable[C]) -> None:
        """Begins the checks of candidates that are not answered; see ``Asked.foresee``."""
        if self.ahead is not None:
            self.ahead(
                each for each in candidates
                if each not in self._answers and not self.why_invalid(each)
            )  # fmt: skip

    def answer(self, candidate: C) -> Answer:
        """Returns what a candidate does by itself, asked at most once."""
        if candidate not in self._answers:
            self._answers[candidate] = self._ask(candidate)
        return self._answers[candidate]

    def ask_afresh(self, candidate: C) -> Answer:
        """Returns a new answer for a candidate; the recorded one, if any, stays as it is."""
        self.calls += 1
        return (self.recheck or self.check)(candidate)

    def is_same(self, signature: Signature | None) -> bool:
        """Returns whether a failure with ``signature`` is the fault being reduced."""
        if self.signature is None or signature is None:
            return True
        return self.signature.matches(signature)

    def asked(self) -> list[C]:
        """Returns the candidates that were asked about, in that order."""
        return list(self._answers)

    def good(self) -> list[C]:
        """Returns the candidates that were seen to agree, in the order in which they were asked."""
        return [each for each, (verdict, _) in self._answers.items() if verdict is Verdict.AGREES]

    def within_budget(self) -> Asked[C]:
        """Returns this problem as a pass sees it that stops when the budget is spent."""
        return WithinBudget(self)

    def _ask(self, candidate: C) -> Answer:
        if self.why_invalid(candidate):
            return Verdict.INVALID, None
        self.calls += 1
        return self.check(candidate)

    def _note(self, other: OtherFailure[C]) -> None:
        for place, known in enumerate(self.other_failures):
            if known.signature == other.signature:
                smaller = self.sort_key(other.candidate) < self.sort_key(known.candidate)
                self.other_failures[place] = other if smaller else known
                return
        self.other_failures.append(other)


@dataclass(frozen=True)
class WithinBudget(Generic[C]):
    """A problem that, once its budget is spent, finds nothing any more and asks nobody."""

    problem: Question[C]

    @property
    def current(self) -> C:
        """Returns the smallest candidate seen to fail so far."""
        return self.problem.current

    def look(self, candidate: C) -> Verdict:
        """Returns ``INVALID`` once the budget is spent; see ``Asked.look``."""
        return Verdict.INVALID if self.problem.spent() else self.problem.look(candidate)

    def consider(self, candidate: C) -> bool:
        """Returns whether a candidate fails in the right way; see ``Asked.look``."""
        return self.look(candidate) is Verdict.DIVERGES

    def foresee(self, candidates: Iterable[C]) -> None:
        """Begins nothing once the budget is spent; see ``Asked.foresee``."""
        if not self.problem.spent():
            self.problem.foresee(candidates)
