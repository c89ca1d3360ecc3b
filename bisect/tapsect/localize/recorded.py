"""Values of inner tensors, to be fed to parts of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from debugtaps import Array
from tapsect.replay.reference import Reference, numpy_dtype

__all__ = ["Recorded", "Source"]

Source = Literal["reference", "engine"]


class Recorded:
    """Values of inner tensors of one sample, the reference's and the engine's.

    Args:
        reference: Captures what is not known yet.
        feeds: The sample.
        engine: Values that a faithful tapped build showed.
    """

    def __init__(
        self, reference: Reference, feeds: Mapping[str, Array], engine: Mapping[str, Array]
    ) -> None:
        self.reference, self.feeds, self.engine = reference, feeds, engine
        self._known: dict[str, Array] = {}

    def blank(self, names: Sequence[str]) -> dict[str, Array] | None:
        """Returns zeros of the declared types, None where a type is not declared.

        For what is built and not run: a model may fail to build that no reference can run.
        """
        found = {n: self.feeds[n] for n in names if n in self.feeds}
        for name in names:
            known = self.reference.graph.types.get(name)
            dtype = numpy_dtype(known.elem) if known is not None else None
            if known is None or known.shape is None or dtype is None:
                return None
            shape = [size if isinstance(size, int) else 1 for size in known.shape]
            found.setdefault(name, np.zeros(shape, dtype))
        return found

    def values(self, names: Sequence[str], source: Source) -> dict[str, Array]:
        """Returns values in the model's own types; the reference's where the engine has none."""
        found = {n: self.feeds[n] for n in names if n in self.feeds}
        if source == "engine":
            found |= {n: self.engine[n] for n in names if n in self.engine}
        missing = [n for n in names if n not in found]
        unknown = [n for n in missing if n not in self._known]
        if unknown:
            self._known |= self.reference.capture(self.feeds, unknown)
        graph = self.reference.graph
        for name in missing:
            value, dtype = self._known[name], numpy_dtype(graph.elem(name))
            found[name] = value if dtype is None or value.dtype == dtype else value.astype(dtype)
        return found
