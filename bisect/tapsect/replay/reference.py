"""The run we believe, and everything that is measured with it.

One session serves each measurement: the perturbed model (``debugtaps.perturb``) computes the
plain values when its noise pools hold ones, and what rounding might have done when they do not.
"""

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
    Noise,
    Perturbed,
    Plan,
    ReferenceFailed,
    Sweep,
    TensorType,
    extract,
    feed_name,
    infer_types,
    load_array,
    mask_name,
    narrow_constants,
    perturb,
    promote,
    save,
    widen,
)
from tapsect.replay.noise import NoiseModel, own_roundoff
from tapsect.rounding.discrete import tied
from tapsect.rounding.outputs import Measured
from tapsect.topology import Topology

__all__ = ["Measured", "Reference", "numpy_dtype", "own_roundoff", "widen_array"]

Array = npt.NDArray[Any]


def numpy_dtype(elem: int | None) -> np.dtype[Any] | None:
    """Returns the numpy type of a storage type, ``None`` where it is unknown or text."""
    if not elem or elem == TensorProto.STRING:
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem))


class Reference(NoiseModel):
    """A reference in its worker, over one graph.

    Args:
        graph: The model under suspicion.
        host: The worker that runs the reference.
        folder: Where models of measurements are written.
        stated: Unit roundoff of the stated precision; None takes each tensor's own type.
        seed: Of the noise.
        largest: Largest number of the stated precision, where its range is narrower than fp32's.
        mark: Begins the names of files, where several references write to one folder.

    Attributes:
        without_double: Operators that turned out to have no kernel for float64.
    """

    def __init__(
        self, graph: Graph, host: Host, folder: Path, *, stated: float | None, seed: int = 0,
        largest: float | None = None, mark: str = "",
    ) -> None:  # fmt: skip
        super().__init__(graph, stated=stated, seed=seed)
        self.host, self.folder, self.largest, self.mark = host, folder, largest, mark
        self.without_double: set[str] = set()
        self._numbers = itertools.count()
        self._shapes: dict[tuple[tuple[str, tuple[int, ...]], ...], dict[str, tuple[int, ...]]] = {}
        self._ends: tuple[object, Perturbed, Build] | None = None

    @cached_property
    def wide(self) -> Graph:
        """Returns the graph in which narrow floats are widened."""
        return widen(self.graph)

    def _held(self, build: Build, made: Perturbed, given: Mapping[str, Array]) -> dict[str, Array]:
        """Returns masks and values that keep tensors still where they stand exactly at a tie."""
        fed: dict[str, Array] = {}
        for tensor, shape in made.held.items():
            dtype = np.float64 if self.graph.elem(tensor) == TensorProto.DOUBLE else np.float32
            fed[mask_name(tensor)] = np.zeros(shape, dtype=bool)
            fed[f"value::{tensor}"] = np.zeros(shape, dtype=dtype)
        if not fed:
            return fed
        shown = [made.shows[t] for t in made.held]
        plain = build.sweep(
            {**given, **fed}, pools=made.pools, runs=[], windows=made.windows, names=shown
        ).base
        for tensor in made.held:
            node, x = self.rounded[tensor], plain[made.shows[tensor]]
            names = node.proto.input[1:2] if node.op == "QuantizeLinear" else ()
            mask = tied(node, x, next(iter(self.constants(names).values()), None))
            if mask is not None and mask.shape == x.shape:
                fed[mask_name(tensor)], fed[f"value::{tensor}"] = mask, x
        return fed

    # -- shapes and types ----------------------------------------------------------------------

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

    # -- running -------------------------------------------------------------------------------

    def path(self, kind: str) -> Path:
        """Returns a fresh file name for a model of a measurement."""
        return self.folder / f"{self.mark}{kind}-{next(self._numbers)}.onnx"

    def widened(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns feeds in the types of the widened graph; other types stay."""
        return {n: widen_array(v) for n, v in feeds.items()}

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

    def ends(
        self, feeds: Mapping[str, Array], *, samples: int, level: float = 0.0,
        contraction: float | None = None, factor: float = 1.0, tensors: Sequence[str] = (),
        coherent: bool = False,
    ) -> Measured:  # fmt: skip
        """Runs the uncut reference with noise on every float edge.

        Args:
            feeds: One sample.
            samples: Noisy runs.
            level: Least u of every edge.
            contraction: Least u of edges that contractions touch.
            factor: Multiplies u.
            tensors: Inner tensors to measure beside the outputs.
            coherent: Whether the first two runs shake all edges up, then all down.

        Raises:
            ReferenceFailed: The reference cannot run the model; the operator is named.
        """
        key = (tuple(sorted((n, v.shape) for n, v in feeds.items())), tuple(tensors))
        try:
            if self._ends is None or self._ends[0] != key:
                self._close_ends()
                plan = Plan(
                    nodes=range(len(self.wide.nodes)),
                    noisy=self.pool_of,
                    shapes=self.shapes(feeds),
                    values=[*self.graph.outputs, *tensors],
                    held=self.rounded,
                )
                made = perturb(self.wide, plan)
                self._ends = (key, made, self.build(made, "ends"))
            _, made, build = self._ends
            runs = self.noise(
                made.pools, samples, level=level, contraction=contraction, factor=factor,
                coherent=coherent,
            )  # fmt: skip
            return self.sweep(build, made, feeds, runs)
        except EngineFailure as failure:
            raise self.failed(failure) from failure

    def narrowed(self, feeds: Mapping[str, Array], u: float) -> dict[str, Array]:
        """Returns the outputs when every float edge is really rounded to a narrow type.

        Noise is independent from element to element; rounding is not: equal values round alike,
        and E[x²] - E[x]² cancels what is left.  Empty where no type has this ``u`` or the opset
        cannot write it.
        """
        narrow = {2.0**-8: TensorProto.BFLOAT16, 2.0**-11: TensorProto.FLOAT16}.get(u)
        if narrow is None or (narrow == TensorProto.BFLOAT16 and self.graph.opset < 13):
            return {}
        wide = self.wide
        made = perturb(wide, Plan(
            nodes=range(len(wide.nodes)), values=list(self.graph.outputs),
            rounded=dict.fromkeys(self.topology.noisy, narrow),
        ))  # fmt: skip
        narrow_constants(made.model, narrow)
        try:
            build = self.build(made, "rounded")
            try:
                return build.run(self.named(made, feeds))
            finally:
                build.close()
        except EngineFailure:
            return {}

    def _close_ends(self) -> None:
        if self._ends is not None:
            with suppress(Exception):
                self._ends[2].close()
            self._ends = None

    def sweep(
        self, build: Build, made: Perturbed, feeds: Mapping[str, Array],
        runs: Sequence[Mapping[str, Noise]], extra: Mapping[str, Array] | None = None,
    ) -> Measured:  # fmt: skip
        """Runs a sweep of a perturbed model and names its results by tensor."""
        given = {**self.named(made, feeds), **(extra or {})}
        given |= self._held(build, made, given)
        result: Sweep = build.sweep(
            given, pools=made.pools, runs=runs, windows=made.windows, shaken=made.shaken
        )
        tensor_of = {shown: t for t, shown in made.shows.items() if t not in made.hidden}

        def named(values: Mapping[str, Any]) -> dict[str, Any]:
            return {tensor_of[n]: v for n, v in values.items() if n in tensor_of}

        return Measured(
            named(result.base), named(result.spread), named(result.changed), named(result.kept)
        )

    def named(self, made: Perturbed, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns widened feeds under the names that the perturbed model reads."""
        inputs = {i.name for i in made.model.graph.input}
        given = {}
        for tensor in made.feeds:
            if tensor in feeds:
                name = feed_name(tensor) if feed_name(tensor) in inputs else tensor
                given[name] = widen_array(feeds[tensor])
        return given

    def failed(self, failure: EngineFailure) -> ReferenceFailed:
        """Returns the error that says which operator the reference cannot run."""
        plugins = [n for n in self.graph.nodes if n.plugin and n.op in failure.message]
        named = [n for n in self.graph.nodes if n.name and n.name in failure.message]
        culprit = next(iter(plugins or sorted(named, key=lambda n: -len(n.name))), None)
        where = ""
        if culprit is not None:
            domain = f"{culprit.domain}::" if culprit.domain else ""
            where = f" at operator {domain}{culprit.op} (node {culprit.name!r})"
        first = failure.message.strip().splitlines()[0][:300] if failure.message else failure.kind
        return ReferenceFailed(
            f"the reference {self.host.spec.spec!r} cannot run the model{where}: {first}. "
            "Give golden values with --reference FILE.npz, or another reference"
        )

    def close(self) -> None:
        """Frees sessions; the worker stays."""
        self._close_ends()


def widen_array(values: Array) -> Array:
    """Returns fp16 and bf16 values as float32, others as they are."""
    if values.dtype.name in ("float16", "bfloat16"):
        return values.astype(np.float32)
    return values
