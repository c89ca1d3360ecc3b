"""Cut a part out of a model, by the names of its inputs and outputs.

    x ─▶ A ─▶ y ─▶ B ─▶ C ─▶ z        --inputs y --outputs z        y ─▶ B ─▶ C ─▶ z

Types and shapes left to ``auto`` come from inference, and from a run where that cannot tell.
Dimensions that vary with the inputs' stay free.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs
from onnx import ModelProto, helper

from debugtaps import (
    Array,
    EngineFailure,
    Graph,
    Host,
    InputError,
    TensorType,
    load_graph,
    resolve,
    value_info,
)
from tapsect.byhand.specs import Dim, TensorSpec, elem_of
from tapsect.diagnose.given import Options, read_samples
from tapsect.localize.examine import Recorded
from tapsect.replay.light import lighten
from tapsect.replay.reference import Reference

__all__ = ["Extracted", "extract_part"]


@dataclass(frozen=True, slots=True)
class Extracted:
    """A part, and what it is fed in a run of the whole.

    Attributes:
        model: The part.
        nodes: How many nodes it has.
        inputs: Its inputs in that run; empty when none was asked for.
        outputs: Its outputs in that run.
        notes: What had to be assumed.
    """

    model: ModelProto
    nodes: int
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    notes: tuple[str, ...]


def extract_part(
    path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *,
    values: bool = False, data: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None, reference: str = "ort-reference",
) -> Extracted:  # fmt: skip
    """Returns the part of a model between ``inputs`` and ``outputs``.

    Args:
        path: The model.
        inputs: Where it begins; the model's own inputs when none are given.
        outputs: Where it ends; the model's own outputs when none are given.
        values: Whether to record what its inputs and outputs are in a run.
        data: What the run is fed; random data when not given.
        shapes: Shapes of random data.
        reference: The engine that runs.

    Raises:
        InputError: A tensor does not exist (the nearest name is offered), or an input would be
            left unfed.
        ModelError: The model cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="tapsect-extract-") as work:
        graph = load_graph(path, Path(work))
        ends = outputs or [TensorSpec(name) for name in graph.outputs]
        _check_names(graph, [*inputs, *ends])
        begin = {spec.name: spec for spec in inputs}
        needed = _needed(graph, begin, ends)
        run = _Run(graph, Path(work), data, shapes, reference)
        types = {
            spec.name: _typed(graph, spec, run) for spec in [*_begins(graph, begin, needed), *ends]
        }
        model = _cut(path, [s.name for s in _begins(graph, begin, needed)], ends, types)
        fed, shown = {}, {}
        if values:
            fed = run.values([v.name for v in model.graph.input])
            shown = run.values([v.name for v in model.graph.output])
        run.close()
        return Extracted(model, len(model.graph.node), fed, shown, tuple(run.notes))


def _check_names(graph: Graph, specs: Iterable[TensorSpec]) -> None:
    known = {*graph.inputs, *graph.producer, *graph.constants, *graph.overridable}
    for spec in specs:
        if spec.name not in known:
            near = difflib.get_close_matches(spec.name, known, 3, cutoff=0.4)
            hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
            raise InputError(
                f"{graph.path} has no tensor {spec.name!r}; {hint or 'see tapsect inspect'}"
            )


def _needed(graph: Graph, begin: Mapping[str, TensorSpec], ends: Sequence[TensorSpec]) -> set[str]:
    """Returns the graph inputs that the part reads without being told to.

    Raises:
        InputError: There are some although inputs were named.
    """
    reached: dict[str, str] = {}
    waiting = [spec.name for spec in ends]
    seen: set[str] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or tensor in begin:
            continue
        seen.add(tensor)
        if tensor in graph.inputs:
            reached[tensor] = tensor
        elif tensor in graph.producer:
            waiting += graph.nodes[graph.producer[tensor]].reads
    if begin and reached:
        name = sorted(reached)[0]
        readers = [graph.nodes[i].name for i in graph.consumers.get(name, ())]
        raise InputError(
            f"the cut leaves input {name!r} unfed: {readers[0] if readers else 'an output'!r}"
            f" needs it; add --inputs {name}:auto:auto, or a tensor behind it"
        )
    return set(reached)


def _begins(graph: Graph, begin: Mapping[str, TensorSpec], needed: set[str]) -> list[TensorSpec]:
    if begin:
        return list(begin.values())
    return [TensorSpec(name) for name in graph.inputs if name in needed]


class _Run:
    """A run of the whole model, made when something must be asked of it.

    Where dimensions are free it is made twice, with other sizes: what changes stays free.
    """

    def __init__(
        self, graph: Graph, work: Path, data: Sequence[str],
        shapes: Mapping[str, Sequence[int]] | None, reference: str,
    ) -> None:  # fmt: skip
        self.graph, self.work, self.spec = graph, work, reference
        self.data, self.shapes = data, shapes
        self.notes: list[str] = []
        self._recorded: list[Recorded] | None = None
        self._host: Host | None = None

    def values(self, names: Sequence[str]) -> dict[str, Array]:
        """Returns what tensors hold."""
        try:
            return self._runs()[0].values(names, "reference")
        except EngineFailure as failure:
            raise self._runs()[0].reference.failed(failure) from failure

    def kind(self, name: str) -> tuple[int, tuple[Dim, ...]]:
        """Returns type and shape of a tensor as runs show them."""
        first = self.values([name])[name]
        shape: list[Dim] = list(first.shape)
        for other in self._runs()[1:]:
            try:
                again = other.values([name], "reference")[name].shape
            except (EngineFailure, KeyError):
                continue
            if len(again) == len(shape):
                shape = [a if a == b else None for a, b in zip(shape, again, strict=True)]
        return self.graph.elem(name) or elem_of(first.dtype), tuple(shape)

    def close(self) -> None:
        """Ends the worker, if one was started."""
        if self._host is not None:
            self._host.close()

    def _runs(self) -> list[Recorded]:
        if self._recorded is None:
            self._host = Host(resolve(self.spec, {}))
            lighten(self._host, self.work)
            reference = Reference(self.graph, self._host, self.work, stated=None)
            options = Options(self.graph.path, tuple(self.data), self.shapes)
            given = read_samples(options, self.graph)
            self.notes += given.notes
            self._recorded = [Recorded(reference, given.samples[0], {})]
            other = self._other_sizes(given.samples[0])
            if other is not None:
                more = read_samples(Options(self.graph.path, (), other), self.graph)
                self._recorded.append(Recorded(reference, more.samples[0], {}))
        return self._recorded

    def _other_sizes(self, sample: Mapping[str, Array]) -> dict[str, tuple[int, ...]] | None:
        shapes, free = {}, False
        for name, kind in self.graph.inputs.items():
            dims = kind.shape or tuple(sample[name].shape)
            sizes = [
                size if isinstance(dim, int) else size + 1
                for dim, size in zip(dims, sample[name].shape, strict=True)
            ]
            free = free or tuple(sizes) != sample[name].shape
            shapes[name] = tuple(sizes)
        return shapes if free else None


def _typed(graph: Graph, spec: TensorSpec, run: _Run) -> TensorType:
    """Returns type and shape of an end of the part: as told, as inferred, or as a run shows."""
    inferred = graph.types.get(spec.name) or graph.inputs.get(spec.name) or TensorType(0, None)
    elem, shape = spec.elem or inferred.elem, spec.shape or inferred.shape
    vague = shape is None or any(dim is None for dim in shape)
    if not elem or (vague and spec.shape is None):
        seen, dims = run.kind(spec.name)
        elem = elem or seen
        if shape is None or len(shape) != len(dims):
            shape = dims
        else:
            shape = tuple(
                own if own is not None else other for own, other in zip(shape, dims, strict=True)
            )
    return TensorType(elem, shape)


def _cut(
    path: Path, begins: Sequence[str], ends: Sequence[TensorSpec], types: Mapping[str, TensorType]
) -> ModelProto:
    original = onnx.load(path, load_external_data=False)  # only what stays is read, below
    surgeon = gs.import_onnx(original)
    tensors = surgeon.tensors()
    surgeon.inputs = [tensors[name] for name in begins]
    for name in begins:
        if isinstance(tensors[name], gs.Variable):
            tensors[name].inputs.clear()
    surgeon.outputs = [tensors[spec.name] for spec in ends]
    with redirect_stdout(StringIO()):
        surgeon.cleanup(remove_unused_graph_inputs=False)
        made = gs.export_onnx(surgeon, do_type_check=False)
    model = ModelProto()
    model.CopyFrom(original)
    model.graph.CopyFrom(made.graph)
    for values, names in (
        (model.graph.input, begins),
        (model.graph.output, [s.name for s in ends]),
    ):
        del values[:]
        values.extend(_declared(name, types[name]) for name in names)
    onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
    return model


def _declared(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    if kind.elem and kind.shape is not None:
        return helper.make_tensor_value_info(name, kind.elem, list(kind.shape))
    return value_info(name, kind)
