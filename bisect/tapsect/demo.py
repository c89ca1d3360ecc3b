"""The demo: a published model with a planted defect, and two honest differences."""

from __future__ import annotations

from collections.abc import Sequence

from debugtaps import EnvironmentFailure
from tapsect.finding import Finding
from tapsect.progress import Progress

__all__ = ["run"]


def run(progress: Progress) -> Sequence[tuple[str, Finding]]:
    """Returns the title and the finding of each scene.

    Args:
        progress: Hears of each step.
    """
    raise EnvironmentFailure("This version does not hold the demo yet.")
