"""The noun in the middle of a reduction: what is known to fail, and what was asked.

Passes see a problem only through ``Reducible``: they propose candidates and learn verdicts.
Validity, the cache, the signature, the budget and the counters are kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tapsect.candidate import Candidate, Structure, fed, why_invalid
from tapsect.verdict import Signature, Verdict

__all__ = ["Check", "OtherFailure", "Problem", "Reducible", "SortKey", "WithinBudget"]

Check = Callable[[Candidate], tuple[Verdict, Signature | None]]
"""Builds and runs a candidate; the signature is given with ``DIVERGES`` and may be missing."""

SortKey = tuple[int, int, int, int, tuple[int, ...], tuple[str, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class OtherFailure:
    """A candidate that fails, but not in the way that is being reduced.

    It is kept because it may be a fault of its own, worth a run of its own.
    """

    candidate: Candidate
    signature: Signature | None


class Reducible(Protocol):
    """What a pass may see of a problem."""

    @property
    def structure(self) -> Structure:
        """Returns the graph."""

    @property
    def current(self) -> Candidate:
        """Returns the smallest candidate seen to fail so far."""

    def look(self, candidate: Candidate) -> Verdict:
        """Returns what a candidate does: ``DIVERGES`` only when it fails in the right way.

        A failing candidate that is smaller becomes ``current``.  One that cannot be built, or
        that fails otherwise, is ``INVALID``: it says nothing about this fault.
        """

    def consider(self, candidate: Candidate) -> bool:
        """Returns whether a candidate fails in the right way; see ``look``."""


@dataclass(slots=True)
class Problem:
    """One failing candidate and the question that each smaller one must answer.

    Attributes:
        structure: The graph.
        current: The smallest candidate seen to fail; the start, until there is a smaller one.
        check: Builds and runs a candidate.
        signature: The fault that is being reduced; ``None`` takes over what the start shows.
        recheck: As ``check``, for answers that must be fresh: it must not be answered from a
            record of earlier builds.  ``None`` means that ``check`` never is.
        spent: Whether the time for passes that only beautify is over.
        calls: How often ``check`` or ``recheck`` was asked.
        other_failures: One candidate, the smallest, of each other signature that was seen.
    """

    structure: Structure
    current: Candidate
    check: Check
    signature: Signature | None = None
    recheck: Check | None = None
    spent: Callable[[], bool] = lambda: False
    calls: int = field(default=0, init=False)
    other_failures: list[OtherFailure] = field(default_factory=list, init=False)
    _answers: dict[Candidate, tuple[Verdict, Signature | None]] = field(
        default_factory=dict, init=False, repr=False
    )

    def sort_key(self, candidate: Candidate) -> SortKey:
        """Returns a total order on candidates; the smaller, the better to read.

        Nodes count first: they are what a person must look at, and each one that is left is
        code under suspicion.  Then inputs, since each is a tensor to ship, then outputs, then
        bypasses, since each is a step away from the given model.  What is left to tell apart is
        told by topology-free names (indices, outputs, pairs), so that equal questions end in
        the same minimum.
        """
        return (
            len(candidate.nodes),
            len(fed(self.structure, candidate)),
            len(candidate.outputs),
            len(candidate.bypass),
            tuple(sorted(candidate.nodes)),
            candidate.outputs,
            candidate.bypass,
        )

    def look(self, candidate: Candidate) -> Verdict:
        """Returns what a candidate does; see ``Reducible.look``."""
        verdict, signature = self.answer(candidate)
        if verdict is not Verdict.DIVERGES:
            return verdict
        if not self.is_same(signature):
            self._note(OtherFailure(candidate, signature))
            return Verdict.INVALID
        if candidate != self.current and self.sort_key(candidate) < self.sort_key(self.current):
            self.current = candidate
        return Verdict.DIVERGES

    def consider(self, candidate: Candidate) -> bool:
        """Returns whether a candidate fails in the right way; see ``Reducible.look``."""
        return self.look(candidate) is Verdict.DIVERGES

    def answer(self, candidate: Candidate) -> tuple[Verdict, Signature | None]:
        """Returns what a candidate does by itself, asked at most once."""
        if candidate not in self._answers:
            self._answers[candidate] = self._ask(candidate)
        return self._answers[candidate]

    def ask_afresh(self, candidate: Candidate) -> tuple[Verdict, Signature | None]:
        """Returns a new answer for a candidate; the recorded one, if any, stays as it is."""
        self.calls += 1
        return (self.recheck or self.check)(candidate)

    def is_same(self, signature: Signature | None) -> bool:
        """Returns whether a failure with ``signature`` is the fault being reduced."""
        if self.signature is None or signature is None:
            return True
        return self.signature.matches(signature)

    def within_budget(self) -> Reducible:
        """Returns this problem as a pass sees it that stops when the budget is spent."""
        return WithinBudget(self)

    def _ask(self, candidate: Candidate) -> tuple[Verdict, Signature | None]:
        if why_invalid(self.structure, candidate):
            return Verdict.INVALID, None
        self.calls += 1
        return self.check(candidate)

    def _note(self, other: OtherFailure) -> None:
        for place, known in enumerate(self.other_failures):
            if known.signature == other.signature:
                smaller = self.sort_key(other.candidate) < self.sort_key(known.candidate)
                self.other_failures[place] = other if smaller else known
                return
        self.other_failures.append(other)


@dataclass(frozen=True, slots=True)
class WithinBudget:
    """A problem that, once its budget is spent, finds nothing any more and asks nobody."""

    problem: Problem

    @property
    def structure(self) -> Structure:
        """Returns the graph."""
        return self.problem.structure

    @property
    def current(self) -> Candidate:
        """Returns the smallest candidate seen to fail so far."""
        return self.problem.current

    def look(self, candidate: Candidate) -> Verdict:
        """Returns ``INVALID`` once the budget is spent; see ``Reducible.look``."""
        return Verdict.INVALID if self.problem.spent() else self.problem.look(candidate)

    def consider(self, candidate: Candidate) -> bool:
        """Returns whether a candidate fails in the right way; see ``Reducible.look``."""
        return self.look(candidate) is Verdict.DIVERGES
