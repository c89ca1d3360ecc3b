"""Builds that choose: of several variants one for each key, as a builder does that times them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from debugtaps.engines.planting.faults import Counters

__all__ = ["Chooser"]


class Chooser:
    """Chooses anew for every build, unless a choice is forced.

    Args:
        variants: The names to choose from, by key.
        forced: Choices that are given, by key.
        seed: The seed of the draw.
        counters: Counts builds.

    Raises:
        ValueError: A forced choice is none of its key's variants.
    """

    def __init__(
        self, variants: Mapping[str, Sequence[str]], forced: Mapping[str, str], seed: int,
        counters: Counters,
    ) -> None:  # fmt: skip
        for key, choice in forced.items():
            if choice not in variants.get(key, ()):
                known = ", ".join(variants.get(key, ())) or "nothing"
                raise ValueError(f"tactics: {key!r} cannot be {choice!r}; it takes {known}")
        self._variants, self._forced = dict(variants), dict(forced)
        self._seed, self._counters = seed, counters

    def choose(self, present: Iterable[str]) -> dict[str, str]:
        """Returns the choices of one build, for the keys that the model has."""
        if not self._variants:
            return {}
        count = self._counters.next("tactics")
        held = frozenset(present)
        return {
            key: self._forced.get(key) or random.Random(f"{self._seed}/{count}/{key}").choice(names)
            for key, names in self._variants.items()
            if key in held
        }
