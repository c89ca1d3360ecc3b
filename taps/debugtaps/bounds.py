"""The limits a user sets on the scores of a build: they alone make a comparison fail."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from debugtaps.errors import InputError
from debugtaps.scores import SCORES, Score

__all__ = ["Bound", "Exceeded", "check_bounds", "limit_for"]


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A row beyond a limit of the user's."""

    build: str
    row: str
    score: Score
    value: float
    limit: float

    def __str__(self) -> str:
        """Returns one sentence that names the row."""
        way = "above" if self.score.worst > 0 else "below"
        return (
            f"[{self.build}]: {self.score.label} of '{self.row}' is {self.value:.4g},"
            f" {way} {self.score.flag} {self.limit:g}"
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of the user's on one score, for all rows or, with a name, for one.

    >>> Bound.parse("mape", "y:5")
    Bound(key='mape', name='y', limit=5.0)
    """

    key: str
    name: str
    limit: float

    @classmethod
    def parse(cls, key: str, text: str) -> Bound:
        """Returns the limit of ``V`` or ``NAME:V``.

        Raises:
            InputError: The value is no number.
        """
        name, _, value = text.rpartition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if math.isnan(limit):
            flag = next(s.flag for s in SCORES if s.key == key)
            raise InputError(f"{flag} '{text}' is no number; write V or NAME:V.")
        return cls(key, name, limit)


def check_bounds(bounds: Iterable[Bound], names: Sequence[str]) -> None:
    """Checks that limits name tensors that are compared.

    Raises:
        InputError: One does not; the message gives the nearest name.
    """
    for bound in bounds:
        if bound.name and bound.name not in names:
            near = difflib.get_close_matches(bound.name, names, 1) or list(names[:3])
            raise InputError(
                f"A limit names '{bound.name}', which is not compared;"
                f" did you mean {', '.join(map(repr, near))}?"
            )


def limit_for(bounds: Iterable[Bound], key: str, name: str) -> float | None:
    """Returns the limit of a row's score: its own before that of all, the last one given."""
    found: dict[str, float] = {b.name: b.limit for b in bounds if b.key == key}
    return found.get(name, found.get(""))
