"""The run we believe, and everything that is measured with it.

One session serves each measurement: the perturbed model (``debugtaps.perturb``) computes the
plain values when its noise pools hold ones, and what rounding might have done when they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

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
    mask_name,
    narrow_constants,
    perturb,
)
from tapsect.replay.noise import own_roundoff
from tapsect.replay.running import Runner, numpy_dtype, widen_array
from tapsect.rounding.discrete import tied
from tapsect.rounding.outputs import Measured

__all__ = ["Measured", "Reference", "numpy_dtype", "own_roundoff", "widen_array"]

Array = npt.NDArray[Any]


class Reference(Runner):
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
        super().__init__(graph, host, folder, stated=stated, seed=seed, mark=mark)
        self.largest = largest
        self.without_double: set[str] = set()
        self._ends: tuple[object, Perturbed, Build] | None = None

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
