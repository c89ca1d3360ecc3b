"""Parts of a finding that further looks showed: how often it fails, and for which inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["InputsSeen", "Repeats", "Separated"]


@dataclass(frozen=True, slots=True)
class Separated:
    """A property of an input that tells failing samples from the others.

    Attributes:
        input: The input.
        what: The property.
        failing: Its least and largest value among failing samples.
        others: The same among the others.
        chance: How likely any property would separate samples that fail at random, at most.
        words: The same for people.
    """

    input: str
    what: str
    failing: tuple[float, float]
    others: tuple[float, float]
    chance: float
    words: str


@dataclass(frozen=True, slots=True)
class InputsSeen:
    """Which samples fail, and what they have that the others have not.

    Attributes:
        failing: The samples that fail, by number.
        of: How many samples there are.
        control: Whether random data of the same sizes ``fails`` or ``agrees``; None: not run.
        separated_by: Properties that separate failing samples from the others, clearest first.
    """

    failing: tuple[int, ...]
    of: int
    control: str | None = None
    separated_by: tuple[Separated, ...] = ()


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often a failure showed itself, when the same model was built again and again.

    Attributes:
        unit: What varies: ``build``, or ``run`` where runs of one build disagree.
        bad: How often it failed …
        of: … of how many builds or runs.
        low, high: The 95 % interval of that rate.
        builds: How many builds there were.
        bad_builds: How many of them failed in any run.
        mixed: Of how many the runs disagree.
        confidence: How probable the named place is, where a search under noise found it.
        chosen: What only bad builds chose, in words, where the engine tells its tactics.
    """

    unit: Literal["build", "run"]
    bad: int
    of: int
    low: float
    high: float
    builds: int
    bad_builds: int
    mixed: int = 0
    confidence: float | None = None
    chosen: tuple[str, ...] = ()
