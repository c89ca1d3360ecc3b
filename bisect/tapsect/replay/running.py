"""Plain runs of a model in the reference's worker: values, shapes, types."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from debugtaps import (
    Build,
    EngineFailure,
    Graph,
    Host,
    Perturbed,
    TensorType,
    extract,
    feed_name,
    infer_types,
    load_array,
    promote,
    save,
    widen,
)
from tapsect.replay.noise import NoiseModel
from tapsect.topology import Topology

__all__ = ["Runner", "numpy_dtype", "widen_array"]

Array = npt.NDArray[Any]


def numpy_dtype(elem: int | None) -> np.dtype[Any] | None:
    """Returns the numpy type of a storage type, ``None`` where it is unknown or text."""
    if not elem or elem == TensorProto.STRING:
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem))


class Runner(NoiseModel):
    """Runs a graph, or parts of it, in the worker of the reference.

    Args:
        graph: The model under suspicion.
        host: The worker that runs the reference.
        folder: Where models of measurements are written, and large arrays on their way.
        stated: Unit roundoff of the stated precision; None takes each tensor's own type.
        seed: Of the noise.
        mark: Begins the names of files, where several references write to one folder.
    """

    def __init__(
        self, graph: Graph, host: Host, folder: Path, *, stated: float | None, seed: int = 0,
        mark: str = "",
    ) -> None:  # fmt: skip
        super().__init__(graph, stated=stated, seed=seed)
        self.host, self.folder, self.mark = host, folder, mark
        host.room = folder
        self._numbers = itertools.count()
        self._shapes: dict[tuple[tuple[str, tuple[int, ...]], ...], dict[str, tuple[int, ...]]] = {}

    @cached_property
    def wide(self) -> Graph:
        """Returns the graph in which narrow floats are widened."""
        return widen(self.graph)

    def complete(self, feeds: Mapping[str, Array]) -> Graph:
        """Returns the graph with every tensor's type, asking a run where inference cannot tell."""
        graph = self.graph
        blank = [
            t for n in graph.nodes for t in n.writes
            if graph.elem(t) is None and t not in graph.untensors and t not in graph.outputs
        ]  # fmt: skip
        blank += [t for t in graph.outputs if graph.elem(t) is None]
        if not blank:
            return graph
        values = self._run_plain(graph, blank, feeds)
        told = {
            t: TensorType(helper.np_dtype_to_tensor_dtype(v.dtype), None)
            for t, v in values.items() if v.dtype.kind not in "OUS"
        }  # fmt: skip
        missing = frozenset(t for t in blank if t not in values)
        self.graph = graph.with_types(told, untensors=missing)
        self.topology = Topology(self.graph)
        self.__dict__.pop("wide", None)
        return self.graph

    def _run_plain(
        self, graph: Graph, names: Sequence[str], feeds: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Runs the whole model as it is and returns the inner tensors that it can show."""
        try:
            return self._once(promote(graph, names), feeds, names)
        except EngineFailure:
            found: dict[str, Array] = {}
            for name in names if len(names) <= 64 else ():
                with suppress(EngineFailure):
                    found |= self._once(promote(graph, [name]), feeds, [name])
            return found

    def shapes(self, feeds: Mapping[str, Array]) -> Mapping[str, tuple[int, ...]]:
        """Returns the shape of every noisy edge for these feeds."""
        key = tuple(sorted((n, v.shape) for n, v in feeds.items()))
        if key not in self._shapes:
            graph = self.graph
            sizes = {n: v.shape for n, v in feeds.items() if n in graph.inputs}
            told, _ = infer_types(promote(graph, ()), sizes)
            known = {t: k.static for t, k in told.items()}
            found = {t: s for t in self.topology.shakeable if (s := known.get(t)) is not None}
            unknown = [t for t in self.topology.shakeable if t not in found]
            if unknown:
                with suppress(EngineFailure):  # an operator it lacks: those shapes stay unknown
                    found |= self._ask_shapes(unknown, feeds)
            self._shapes[key] = found
        return self._shapes[key]

    def _ask_shapes(
        self, tensors: Sequence[str], feeds: Mapping[str, Array]
    ) -> dict[str, tuple[int, ...]]:
        wide = self.wide
        model = extract(wide, range(len(wide.nodes)), ())
        for tensor in tensors:
            model.graph.node.append(helper.make_node("Shape", [tensor], [f"shape::{tensor}"]))
            model.graph.output.append(
                helper.make_tensor_value_info(f"shape::{tensor}", TensorProto.INT64, [None])
            )
        values = self._once(model, feeds, None)
        return {
            t: tuple(int(d) for d in values[f"shape::{t}"])
            for t in tensors if f"shape::{t}" in values
        }  # fmt: skip

    def path(self, kind: str) -> Path:
        """Returns a fresh file name for a model of a measurement."""
        return self.folder / f"{self.mark}{kind}-{next(self._numbers)}.onnx"

    def build(self, perturbed: Perturbed, kind: str) -> Build:
        """Builds a perturbed model on the reference."""
        return self.host.build(save(perturbed.model, self.path(kind)))

    def _once(
        self, model: Any, feeds: Mapping[str, Array], names: Sequence[str] | None
    ) -> dict[str, Array]:
        wanted = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
        given = {
            n: widen_array(v) if wanted[n] == TensorProto.FLOAT else v
            for n, v in feeds.items() if n in wanted
        }  # fmt: skip
        build = self.host.build(save(model, self.path("plain")))
        try:
            return build.run(given, names=names)
        finally:
            build.close()

    def capture(self, feeds: Mapping[str, Array], tensors: Collection[str]) -> dict[str, Array]:
        """Returns the reference's own values of inner tensors, floats widened."""
        wide = self.wide
        given = {t: widen_array(feeds[t]) for t in tensors if t in feeds}
        names = [t for t in tensors if t in wide.producer and t not in wide.untensors]
        if not names:
            return given
        nodes = sorted(self.topology.ancestors(names))
        return {**given, **self._once(extract(wide, nodes, names), feeds, names)}

    def constants(self, names: Iterable[str]) -> dict[str, Array]:
        """Returns the values of initializers among ``names``."""
        found = {n: self.graph.constants.get(n) for n in names}
        return {
            n: load_array(c, self.graph.folder)
            for n, c in found.items() if isinstance(c, TensorProto)
        }  # fmt: skip

    def named(self, made: Perturbed, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns widened feeds under the names that the perturbed model reads."""
        inputs = {i.name for i in made.model.graph.input}
        given = {}
        for tensor in made.feeds:
            if tensor in feeds:
                name = feed_name(tensor) if feed_name(tensor) in inputs else tensor
                given[name] = widen_array(feeds[tensor])
        return given

    def widened(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns feeds in the types of the widened graph; other types stay."""
        return {n: widen_array(v) for n, v in feeds.items()}


def widen_array(values: Array) -> Array:
    """Returns fp16 and bf16 values as float32, others as they are."""
    if values.dtype.name in ("float16", "bfloat16"):
        return values.astype(np.float32)
    return values
