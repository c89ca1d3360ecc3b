"""Four verdicts, never a bool: what one look at a candidate says.

A candidate that cannot be built is not "bad", and one that answers differently each time is
neither good nor bad.  A search that folds them into a bool walks away from the fault.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = ["Signature", "Verdict"]


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
        detail: What else must hold: the normalised message of an error (numbers, addresses and
            names replaced), or the magnitude class of a wrong value; empty when nothing more
            is known.
    """

    kind: str
    detail: str = field(default="")

    def matches(self, other: Signature) -> bool:
        """Returns whether ``other`` is the same fault."""
        return self.kind == other.kind and (
            not self.detail or not other.detail or self.detail == other.detail
        )
