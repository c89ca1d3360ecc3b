"""What a search will ask next, before it is known what the answers are.

A search is a function that asks.  Run again on the answers so far it stops at its next question;
run again on a guess at that answer it stops at the one after.  Whoever can have several questions
answered at a time begins the nearest of them, and the search itself stays as it is: bisection
with three lanes asks at a half and both quarters, which is a search in four parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["begun_early", "foreseen"]

_RUNS = 64
"""Most guesses that are followed: many may lead to the same few questions."""

Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R")


class _Open(Exception):
    """Raised at the first question without an answer; carries it."""


def foreseen(
    search: Callable[[Callable[[Q], A]], object],
    answers: Sequence[A],
    guesses: Callable[[Q], Sequence[A]],
) -> Iterator[Q]:
    """Yields what a search asks next, the nearest questions first, each once.

    Args:
        search: Asks questions through the function that it is given.  It must do nothing else,
            ask the same after the same answers, and let exceptions pass.
        answers: The answers so far, in the order of the questions.
        guesses: What the answer to a question may be, the likelier first.

    Notes:
        Cost: one run of the search for each guess that is followed, whatever it asked before.

    References:
        F. W. Burton, "Speculative computation, parallelism, and functional programming", IEEE
        Transactions on Computers 34 (1985), doi:10.1109/TC.1985.6312218.

    Examples:
        The three questions that cut a line in four:

        >>> from itertools import islice
        >>> from tapsect.search.line import first_bad
        >>> from tapsect.verdict import Verdict
        >>> both = (Verdict.DIVERGES, Verdict.AGREES)
        >>> seen = foreseen(lambda ask: first_bad(600, ask), [], lambda _: both)
        >>> list(islice(seen, 3))
        [300, 150, 450]
    """
    waiting, seen = deque([tuple(answers)]), list[Q]()
    for _ in range(_RUNS):
        if not waiting:
            return
        path = waiting.popleft()
        question = _next(search, path)
        if question is None:
            continue
        if question[0] not in seen:
            seen.append(question[0])
            yield question[0]
        waiting.extend((*path, guess) for guess in guesses(question[0]))


def begun_early(
    search: Callable[[Callable[[Q], A]], R],
    ask: Callable[[Q], A],
    begin: Callable[[Iterator[Q]], None],
    guesses: Callable[[Q], Sequence[A]],
) -> R:
    """Returns what a search finds; before each question, those that are near are begun.

    Args:
        search: As for ``foreseen``.
        ask: Answers a question, from what was begun where that is the same.
        begin: Begins as many of the questions as it likes, the one that is asked now first.
        guesses: As for ``foreseen``.
    """
    answers: list[A] = []

    def asked(question: Q) -> A:
        begin(foreseen(search, answers, guesses))
        answers.append(ask(question))
        return answers[-1]

    return search(asked)


def _next(search: Callable[[Callable[[Q], A]], object], answers: Sequence[A]) -> tuple[Q] | None:
    """Returns the first question that the answers leave open; ``None`` when the search ends."""
    given = iter(answers)

    def ask(question: Q) -> A:
        for answer in given:
            return answer
        raise _Open(question)

    try:
        search(ask)
    except _Open as stop:
        return stop.args
    return None
