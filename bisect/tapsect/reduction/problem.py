"""A part of a graph that fails: what may be left out of it, and which of two parts is plainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tapsect.candidate import Candidate, Structure, fed, neighbours, restrict, why_invalid
from tapsect.reduction.question import Answer, Asked, Question, WithinBudget

__all__ = ["Check", "Problem", "Reducible", "SortKey"]

Check = Callable[[Candidate], Answer]
"""Builds and runs a candidate."""

SortKey = tuple[int, int, int, int, tuple[int, ...], tuple[str, ...], tuple[tuple[str, str], ...]]

# How far around the hinted nodes to look before the passes take over.
_RINGS = 2


class Reducible(Asked[Candidate], Protocol):
    """What a pass over parts of a graph may see of a problem."""

    @property
    def structure(self) -> Structure:
        """Returns the graph."""


class Problem(Question[Candidate]):
    """A part of a graph that fails, and the question that each smaller part must answer.

    Args:
        structure: The graph.
        current: The start.
        check: Builds and runs a candidate.
        **more: As ``Question``.
    """

    def __init__(self, structure: Structure, current: Candidate, check: Check, **more: Any) -> None:
        super().__init__(current, check, **more)
        self.structure = structure

    def size(self, candidate: Candidate) -> int:
        """Returns how many nodes a candidate has."""
        return len(candidate.nodes)

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

    def why_invalid(self, candidate: Candidate) -> str:
        """Returns why a candidate is no model; empty when nothing speaks against it."""
        return why_invalid(self.structure, candidate)

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yields what is left when one node goes: removed, then bypassed in every way."""
        return neighbours(self.structure, candidate)

    def guesses(self, hint: frozenset[int]) -> Iterator[Candidate]:
        """Yields the hinted nodes alone, then with what surrounds them."""
        start = self.current
        guess = hint & start.nodes
        for _ in range(_RINGS + 1 if guess else 0):
            yield restrict(self.structure, start, guess)
            guess |= self._around(guess) & start.nodes

    def within_budget(self) -> Reducible:
        """Returns this problem as a pass sees it that stops when the budget is spent."""
        return PartWithinBudget(self)

    def _around(self, nodes: frozenset[int]) -> frozenset[int]:
        """Returns the nodes that write what ``nodes`` read, or read what they write."""
        structure = self.structure
        writers = {structure.producer(t) for node in nodes for t in structure.reads(node)}
        readers = {
            reader
            for node in nodes
            for tensor in structure.writes(node)
            for reader in structure.consumers(tensor)
        }
        return frozenset(node for node in writers | readers if node is not None)


@dataclass(frozen=True)
class PartWithinBudget(WithinBudget[Candidate]):
    """A problem over parts of a graph, with a budget."""

    problem: Problem

    @property
    def structure(self) -> Structure:
        """Returns the graph."""
        return self.problem.structure
