"""Four verdicts, never a bool: what one look at a candidate says.

A candidate that cannot be built is not "bad", and one that answers differently each time is
neither good nor bad.  A search that folds them into a bool walks away from the fault.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["NOTHING", "Signature", "Verdict", "operator_named"]

_BETWEEN = re.compile(r"[\s'\"()\[\]{},;=<>]+")

SLACK = 2
"""Decades of error within which two wrong answers may be one fault.

A part is wrong by more than the whole, since less dilutes its error, or by less, since nothing
amplifies it; between rounding and a plainly wrong answer lie three decades and more.
"""


NOTHING = -99
"""The magnitude of an error that does not show at all."""


class Verdict(enum.Enum):
    """What one look at a candidate says."""

    AGREES = "agrees"
    DIVERGES = "diverges"
    INVALID = "invalid"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Signature:
    """What makes two failures the same fault.

    Attributes:
        kind: Failure kind in the words of ``result.json`` (``accuracy``, ``crash`` …).
        detail: The normalised message of an error (numbers, addresses and names replaced); empty
            when nothing more is known.
        op: The type of operator that the message names; empty when it names none, or several.
        magnitude: Size of a wrong value as a power of ten, relative to the right ones: 0 when it
            is wrong altogether, -3 for an error of a thousandth.  None when it has no size.
    """

    kind: str
    detail: str = field(default="")
    op: str = field(default="")
    magnitude: int | None = field(default=None)

    def matches(self, other: Signature) -> bool:
        """Returns whether ``other`` is the same fault; what one of both does not know is equal."""
        if self.magnitude is not None and other.magnitude is not None:
            near = abs(self.magnitude - other.magnitude) <= SLACK
        else:
            near = True
        return (
            self.kind == other.kind
            and near
            and _compatible(self.detail, other.detail)
            and _compatible(self.op, other.op)
        )

    @property
    def words(self) -> str:
        """Returns it for people."""
        said = f"{self.kind} {self.detail}".strip()
        if self.op and self.op not in self.detail:
            said += f" at {self.op}"
        if self.magnitude == NOTHING:
            said += ", an error that the whole does not show"
        elif self.magnitude is not None:
            said += f", relative error about 1e{self.magnitude}"
        return said


def operator_named(message: str, ops: Mapping[str, str]) -> str:
    """Returns the type of operator that a message names, by itself or by a node's name.

    Args:
        message: What an engine or a check said.
        ops: The types of the model's nodes, by name.

    Returns:
        Empty when it names none, or several: a fused kernel names all it holds, which is another
        set in each smaller model.
    """
    types, found = frozenset(ops.values()), set()
    for word in _BETWEEN.split(message):
        for part in (word.strip(".:"), *word.split(":")):
            if part and (part in ops or part in types):
                found.add(ops.get(part, part))
                break
    return found.pop() if len(found) == 1 else ""


def _compatible(a: str, b: str) -> bool:
    return not a or not b or a == b
