"""Did looking change what was looked at?  The failure with taps against the one without."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from debugtaps import Array
from tapsect.localize.evidence import Ends
from tapsect.replay.coarse import coarse_ends
from tapsect.replay.reference import Reference
from tapsect.replay.regions import Classes
from tapsect.rounding.floors import rms
from tapsect.rounding.outputs import Measured, same_answer, same_failure

__all__ = ["ObserverProof"]


class ObserverProof:
    """Holds the outputs of tapped builds against those of the untapped one.

    Args:
        reference: The run we believe.
        feeds: The sample.
        before: The judged outputs of the untapped build.
        measured: The reference's outputs and end-to-end spread.
        end_limit: F at the stated precision.
        stated: Tells the precision that the engine says it computes in, if it does.

    Attributes:
        strict: Whether a failure that became smaller counts as changed.
        altered: Whether there was one.
    """

    def __init__(
        self, reference: Reference, feeds: Mapping[str, Array], *, before: Ends,
        measured: Measured, end_limit: float, stated: Callable[[], float | None],
    ) -> None:  # fmt: skip
        self.reference, self.feeds = reference, feeds
        self.before, self.measured, self.end_limit = before, measured, end_limit
        self.stated = stated
        self.strict, self.altered = True, False
        self.coarse: Measured | None = None

    def seen(self, ends: Ends) -> str:
        """Returns what the proof says: faithful, partly healed, healed or changed.

        Where two faults fail together, taps that cure one leave a failure that looks much like
        both.  Only when nothing fails just as before is such a build used.
        """
        seen = same_failure(self.before, ends, self.measured.base)
        if seen == "changed" and self._within_precision(ends):
            return "faithful"
        if seen == "faithful" and not same_answer(self.before, ends, self.end_limit):
            self.altered = True
            return "partly healed" if self.strict else seen
        return seen

    def _within_precision(self, ends: Ends) -> bool:
        """Returns whether both builds lie within 3 floors of the precision the engine states.

        Rounding that coarse points elsewhere with every change of the build; only its size is
        the same failure.
        """
        stated = self.stated() or 0.0
        if stated <= (self.reference.stated or 2.0**-24):
            return False
        if self.coarse is None:
            self.coarse = coarse_ends(
                self.reference, self.feeds, Classes(stated, stated), samples=8,
                rounded=self.reference.narrowed(self.feeds, stated),
            )  # fmt: skip
        for name, (end, _) in self.before.items():
            spread = self.coarse.spread.get(name)
            after = ends[name][0]
            if not end.failing and not after.failing:
                continue
            if spread is None or end.error is None or after.error is None:
                return False
            if max(end.error, after.error) > 3.0 * rms(np.nan_to_num(spread, posinf=0.0)):
                return False
        return True
