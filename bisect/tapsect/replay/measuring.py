"""Regions between taps, run in the reference on the engine's own values, with noise or without."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps import EngineFailure, Plan, doubled, perturb
from tapsect.replay.alone import read
from tapsect.replay.reference import Reference
from tapsect.rounding.outputs import Measured

__all__ = ["CLOSE_SAMPLES", "Regions"]

Array = npt.NDArray[Any]

CLOSE_SAMPLES = 32
WINDOW_BYTES = 1 << 27
"""What one session of the replay may hold; more is replayed in windows."""

_DOUBLE = 11  # TensorProto.DOUBLE


class Regions:
    """The regions of one sample.

    Args:
        reference: Where operators are replayed.
        feeds: The sample, as it was given.
        values: The engine's values of outputs and taps.
        uncut: Tensors whose edges are not cut although the engine gave a value.
    """

    def __init__(
        self, reference: Reference, feeds: Mapping[str, Array], values: Mapping[str, Array], *,
        uncut: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.reference, self.feeds, self.values = reference, feeds, values
        self.graph, self.topology = reference.graph, reference.topology
        shakeable = self.topology.shakeable
        self.cut = frozenset(
            t for t in values
            if t in shakeable and t in self.graph.producer and t not in uncut
        )  # fmt: skip
        self.region = {
            t: self.topology.region(t, self.cut) for t in values if t in self.graph.producer
        }

    def bases(self, tensors: Sequence[str]) -> dict[str, Array]:
        """Returns the replayed values of tensors, without noise."""
        return dict(self._measure(list(tensors), 0.0, 0).base)

    def with_operands(self, tensors: Sequence[str], cut: tuple[bool, bool]) -> dict[str, Array]:
        """Returns the replayed values where contractions read 11 bits of their operands.

        Args:
            tensors: Whose; those that no contraction with two operands makes have none.
            cut: Whether low bits are cut off rather than rounded, by operand.
        """
        nodes = frozenset().union(*(self.region[t] for t in tensors))
        made = perturb(self.reference.wide, replace(self._plan(nodes, tensors), held=()))
        if not read(made.model, cut):
            return {}
        try:
            build = self.reference.build(made, "operands")
            try:
                return dict(
                    self.reference.sweep(build, made, {**self.feeds, **self.values}, []).base
                )
            finally:
                build.close()
        except EngineFailure:
            return {}

    def _plan(self, nodes: Iterable[int], raw: Sequence[str]) -> Plan:
        shapes = dict(self.reference.shapes(self.feeds))
        shapes |= {t: self.values[t].shape for t in self.cut}
        return Plan(
            nodes=sorted(nodes), cut=self.cut, noisy=self.reference.pool_of,
            shapes=shapes, raw=raw, held=self.reference.rounded,
        )  # fmt: skip

    def _measure(self, names: Sequence[str], level: float, samples: int) -> Measured:
        """Replays the regions of ``names`` in one session; in halves where it fails or is large."""
        if not names:
            return Measured({}, {}, {}, {})
        found = Measured({}, {}, {}, {})
        if len(names) == 1 or self._bytes(names) <= WINDOW_BYTES:
            found = self._session(names, level, samples)
        # One operator that noise breaks takes the runs of all others with it.
        if len(names) > 1 and (not found.base or (samples and not any(found.kept.values()))):
            half = len(names) // 2
            parts = [self._measure(part, level, samples) for part in (names[:half], names[half:])]
            return Measured(
                *({**getattr(parts[0], f), **getattr(parts[1], f)}
                  for f in ("base", "spread", "changed", "kept"))
            )  # fmt: skip
        return found

    def _windows(self, names: Iterable[str]) -> Iterator[list[str]]:
        """Yields the tensors in turn, as many at a time as one session may hold.

        What is judged window by window need not be held all at once.
        """
        window: list[str] = []
        held = 0
        for name in names:
            size = self._bytes([name])
            if window and held + size > WINDOW_BYTES:
                yield window
                window, held = [], 0
            window.append(name)
            held += size
        if window:
            yield window

    def _bytes(self, names: Iterable[str]) -> int:
        """Returns about how much a session holds: values, their base, sum and spread."""
        return sum(6 * self.values[t].nbytes for t in names if t in self.values)

    def _session(self, names: Sequence[str], level: float, samples: int) -> Measured:
        nodes = frozenset().union(*(self.region[t] for t in names))
        made = perturb(self.reference.wide, self._plan(nodes, names))
        try:
            build = self.reference.build(made, "replay")
            try:
                runs = self.reference.noise(made.pools, samples, level=level, coherent=samples > 8)
                return self.reference.sweep(build, made, {**self.feeds, **self.values}, runs)
            finally:
                build.close()
        except EngineFailure:
            return Measured({}, {}, {}, {})

    def _in_double(self, tensor: str, level: float) -> Measured | None:
        """Replays one operator in float64; ``None`` where the runtime has no such kernel."""
        reference, index = self.reference, self.graph.producer[tensor]
        op = self.graph.nodes[index].op
        graph = None
        if op not in reference.without_double:
            graph = doubled(reference.wide, index, keep=self.topology.structural)
        if graph is None:
            return None
        made = perturb(graph, replace(self._plan([index], [tensor]), held=()))
        given = {**self.feeds, **self.values}
        wide = {
            t: given[t].astype(np.float64) if graph.elem(t) == _DOUBLE else given[t]
            for t in made.feeds if t in given
        }  # fmt: skip
        try:
            build = reference.build(made, "double")
            try:
                runs = reference.noise(made.pools, CLOSE_SAMPLES, level=level, coherent=True)
                return reference.sweep(build, made, wide, runs)
            finally:
                build.close()
        except EngineFailure:
            reference.without_double.add(op)
            return None
