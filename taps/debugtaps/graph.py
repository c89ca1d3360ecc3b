"""One ONNX model as an immutable graph whose weights stay in one place.

A model is read once.  Large weights are moved out of the protobuf into one file of the working
folder, so that each tapped, cut or reduced candidate is a small "shell" that points at them.
Weights that already lie outside are cloned there where the disk can do that, else copied once:
links will not do, since runtimes refuse symbolic ones, and onnx refuses a file with two names,
the user's own among them.

Names are those of the model.  A node without a name, or one of several with the same name, is
called by its first output, which ONNX requires to be unique.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from debugtaps.errors import ModelError

__all__ = ["FLOATS", "NARROW", "Graph", "Node", "TensorType", "external_files", "load_graph"]

FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
)
NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"})
RANDOM_OPS = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)
_INLINE_BYTES = 1024
_OFFLOAD_TOTAL = 1 << 20
_FICLONE = 0x40049409  # Linux: share the blocks of another file


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type (a ``TensorProto`` number) and shape of a tensor; ``None`` where unknown."""

    elem: int
    shape: tuple[int | str | None, ...] | None = None

    @property
    def static(self) -> tuple[int, ...] | None:
        """Returns the shape when every dimension is a number."""
        if self.shape is None or not all(isinstance(d, int) for d in self.shape):
            return None
        return tuple(d for d in self.shape if isinstance(d, int))


@dataclass(frozen=True, slots=True)
class Node:
    """One operator.  ``reads`` holds what its bodies capture, and no omitted inputs."""

    index: int
    name: str
    op: str
    domain: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    proto: NodeProto = field(repr=False, compare=False)

    @property
    def plugin(self) -> bool:
        """Returns whether the operator lies outside the standard ONNX domains."""
        return self.domain not in STANDARD_DOMAINS

    @property
    def has_body(self) -> bool:
        """Returns whether the operator holds a sub-graph (If, Loop, Scan …)."""
        return any(
            a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in self.proto.attribute
        )


@dataclass(frozen=True)
class Graph:
    """An ONNX model, read once.

    Attributes:
        path: The file as it was given.
        folder: Where candidates must be written so that they find the weights.
        shell: The model without nodes, weights and value infos: versions, functions, metadata.
        nodes: The operators in topological order; ``Constant`` nodes are not among them.
        inputs: Graph inputs that must be fed, with their types.
        outputs: Graph outputs, with their types.
        constants: Initializers and ``Constant`` nodes by tensor name.
        types: What is known of each tensor's type.
        untensors: Names of sequences, optionals and maps.
        sparse: Sparse initializers by tensor name.
        sha256: Of the model's file.
        narrowed: In a widened graph, the narrow type that a Cast still rounds a tensor to.
        overridable: Initializers that are graph inputs too: constants unless they are fed.
        renamed: Whether several nodes bore one name, so that candidates rename them.
        weights: Size and time of the files with external weights.
    """

    path: Path
    folder: Path
    shell: ModelProto = field(repr=False)
    nodes: tuple[Node, ...] = field(repr=False)
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    constants: Mapping[str, TensorProto | NodeProto] = field(repr=False)
    types: Mapping[str, TensorType] = field(repr=False)
    untensors: frozenset[str] = field(repr=False)
    sparse: Mapping[str, onnx.SparseTensorProto] = field(repr=False)
    sha256: str = ""
    narrowed: Mapping[str, int] = field(default_factory=dict, repr=False)
    overridable: Mapping[str, TensorType] = field(default_factory=dict)
    renamed: bool = False
    weights: str = ""

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Returns the index of the node that writes each tensor."""
        return {t: n.index for n in self.nodes for t in n.writes}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the indices of the nodes that read each tensor."""
        found: dict[str, list[int]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.reads):
                found.setdefault(tensor, []).append(node.index)
        return {t: tuple(i) for t, i in found.items()}

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """Returns the index of each node by its name."""
        return {n.name: n.index for n in self.nodes}

    @cached_property
    def opset(self) -> int:
        """Returns the version of the standard domain."""
        return _standard_opset(self.shell)

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Returns the tensors that derive from constants alone."""
        known = set(self.constants) | set(self.sparse)
        for node in self.nodes:
            if node.op in RANDOM_OPS or (node.has_body and not node.reads):
                continue
            if all(t in known for t in node.reads):
                known.update(node.writes)
        return frozenset(known)

    @cached_property
    def shapelike(self) -> frozenset[str]:
        """Returns the tensors that derive from shapes (and constants) alone."""
        known: set[str] = set()
        for node in self.nodes:
            told = node.op in ("Shape", "Size") and not node.domain
            derived = any(t in known for t in node.reads)
            if told or (derived and all(t in known or t in self.fixed for t in node.reads)):
                known.update(node.writes)
        return frozenset(known - self.fixed)

    def elem(self, tensor: str) -> int | None:
        """Returns the element type of a tensor, or ``None`` where nothing tells it."""
        found = self.types.get(tensor)
        return found.elem if found is not None and found.elem else None

    def is_float(self, tensor: str) -> bool:
        """Returns whether the tensor is known to hold floats."""
        return self.elem(tensor) in FLOATS

    def feeding(self, names: Iterable[str]) -> Graph:
        """Returns the graph in which the overridable initializers among ``names`` are inputs."""
        fed = {n: self.overridable[n] for n in names if n in self.overridable}
        if not fed:
            return self
        constants = {n: c for n, c in self.constants.items() if n not in fed}
        return dataclasses.replace(self, inputs={**self.inputs, **fed}, constants=constants)

    def with_types(
        self, types: Mapping[str, TensorType], *, untensors: Iterable[str] = ()
    ) -> Graph:
        """Returns the graph with what a run has told where inference could not."""
        merged = {**types, **{k: v for k, v in self.types.items() if v.elem}}
        outputs = {n: merged.get(n, t) for n, t in self.outputs.items()}
        return dataclasses.replace(
            self, types=merged, outputs=outputs, untensors=self.untensors | frozenset(untensors)
        )


def load_graph(path: Path, folder: Path) -> Graph:
    """Reads a model and moves its weights into ``folder``.

    Args:
        path: An ONNX file; its external weights lie beside it.
        folder: Working folder, created when missing; candidates are written into it.

    Raises:
        ModelError: The file is missing, truncated, not ONNX, or not valid ONNX.
    """
    model = _read(path)
    _check(path, model)
    folder.mkdir(parents=True, exist_ok=True)
    digest = _sha256(path)
    state = _move_weights(model, path.parent, folder, digest)
    try:
        return dataclasses.replace(_build(path, folder, model, digest), weights=state)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _read(path: Path) -> ModelProto:
    if not path.exists():
        raise ModelError(f"{path}: no such file; expected an ONNX model")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; expected an ONNX file")
    if path.suffix == ".py":
        raise ModelError(f"{path}: is Python; export it to ONNX first (torch.onnx.export)")
    if path.stat().st_size == 0:
        raise ModelError(f"{path}: is empty; expected an ONNX model")
    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf raises its own, undocumented kinds
        raise ModelError(
            f"{path}: is not an ONNX model, or is truncated "
            f"({path.stat().st_size} bytes read); export or copy it again"
        ) from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path}: holds no graph; expected an ONNX model with nodes and outputs")
    if not model.graph.output:
        raise ModelError(f"{path}: has no outputs, so nothing can be compared; export it again")
    return model


def _check(path: Path, model: ModelProto) -> None:
    base = path.parent.resolve()
    for tensor in _tensors(model.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        where = {e.key: e.value for e in tensor.external_data}
        file = (base / where.get("location", "")).resolve()
        if not file.is_relative_to(base) or file == base:
            raise ModelError(
                f"{path}: weights of {tensor.name!r} point outside the model's folder "
                f"({where.get('location')!r}); copy the model and its weights into one folder "
                "(cp -L)"
            )
        if not file.is_file():
            raise ModelError(
                f"{path}: the weight file {where.get('location')!r} of {tensor.name!r} is "
                "missing; put it beside the model"
            )
        end = _end_of(path, tensor.name, where)
        if file.stat().st_size < end:
            raise ModelError(
                f"{path}: the weight file {where.get('location')!r} ends before "
                f"{tensor.name!r} ({file.stat().st_size} bytes, {end} needed); copy it again"
            )
    known, asked = onnx.defs.onnx_opset_version(), _standard_opset(model)
    if asked > known:
        raise ModelError(
            f"{path}: uses opset {asked}, the installed onnx {onnx.__version__} knows opsets up to "
            f"{known}; install a newer onnx, or export with an older opset"
        )
    try:
        onnx.checker.check_model(str(path) if _has_external(model) else model)
    except Exception as error:  # ValidationError and, for odd files, others
        lines = [s.strip() for s in str(error).splitlines() if s.strip() and "==>" not in s]
        first = lines[0] if lines else type(error).__name__
        if "topological" in first or "sorted" in first:
            return  # engines take such models; the nodes are sorted below
        if "multiple hard links" in first:
            return  # package managers store files so; that they lie inside was checked above
        raise ModelError(f"{path}: is not valid ONNX: {first[:400]}") from error


def _standard_opset(model: ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)


def _end_of(path: Path, name: str, where: Mapping[str, str]) -> int:
    """Returns where the bytes of an external tensor end in its file."""
    try:
        offset, length = (int(where.get(key) or 0) for key in ("offset", "length"))
    except ValueError:
        offset = length = -1
    if min(offset, length) < 0:
        raise ModelError(
            f"{path}: offset or length of the external weights of {name!r} is no number; "
            "save the model again"
        )
    return offset + length


def _has_external(model: ModelProto) -> bool:
    return any(t.data_location == TensorProto.EXTERNAL for t in _tensors(model.graph))


def external_files(path: Path) -> tuple[str, ...]:
    """Returns the files beside a model that hold its weights, relative to its folder."""
    model = onnx.load_model(str(path), load_external_data=False)
    found = {
        os.path.normpath(entry.value)
        for tensor in _tensors(model.graph)
        for entry in tensor.external_data
        if tensor.data_location == TensorProto.EXTERNAL and entry.key == "location"
    }
    return tuple(sorted(found))


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _move_weights(model: ModelProto, base: Path, folder: Path, digest: str) -> str:
    """Leaves small tensors inline; large ones point at files of ``folder``.

    Returns:
        What tells one state of the weight files from another, without reading them.
    """
    state: list[str] = []
    inline = [t for t in model.graph.initializer if t.data_location != TensorProto.EXTERNAL]
    big = [t for t in inline if t.ByteSize() >= _INLINE_BYTES and t.data_type != TensorProto.STRING]
    if sum(t.ByteSize() for t in big) > _OFFLOAD_TOTAL:
        name = f"weights-{digest[:16]}.bin"
        offload(big, folder, name)
    linked: dict[str, str] = {}
    for tensor in _tensors(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location" and not entry.value.startswith("weights-"):
                source = base / entry.value
                if entry.value not in linked:
                    facts = source.stat()
                    state.append(f"{entry.value}:{facts.st_size}:{facts.st_mtime_ns}")
                    linked[entry.value] = bring_file(source, folder, digest, len(linked))
                entry.value = linked[entry.value]
    return "|".join(state)


def offload(tensors: Sequence[TensorProto], folder: Path, name: str) -> None:
    """Writes tensors into one file of ``folder`` and lets the protos point at it."""
    target, offset = folder / name, 0
    temporary = target.with_name(f"{name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        for tensor in tensors:
            raw = tensor.raw_data or _raw(tensor)
            pad = -offset % 64
            file.write(b"\0" * pad)
            offset += pad
            file.write(raw)
            for kind in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(kind)
            onnx.external_data_helper.set_external_data(tensor, name, offset, len(raw))
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            offset += len(raw)
    os.replace(temporary, target)


def _raw(tensor: TensorProto) -> bytes:
    return numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def bring_file(source: Path, folder: Path, digest: str, number: int) -> str:
    """Brings a weight file into ``folder``, sharing its blocks where the disk can."""
    name = f"weights-{digest[:16]}-{number}.bin"
    target = folder / name
    temporary = target.with_name(f"{name}.{os.getpid()}.part")
    with source.open("rb") as given, temporary.open("wb") as made:
        try:
            fcntl.ioctl(made.fileno(), _FICLONE, given.fileno())
        except OSError:
            shutil.copyfileobj(given, made, 1 << 22)
    os.replace(temporary, target)
    return name


def load_array(tensor: TensorProto, folder: Path) -> np.ndarray:
    """Returns the values of a constant, read from ``folder`` where they lie outside."""
    return numpy_helper.to_array(tensor, base_dir=str(folder))


def _build(path: Path, folder: Path, model: ModelProto, digest: str) -> Graph:
    graph = model.graph
    constants: dict[str, TensorProto | NodeProto] = {t.name: t for t in graph.initializer}
    sparse = {s.values.name: s for s in graph.sparse_initializer}
    protos = []
    for proto in graph.node:
        if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
            constants[proto.output[0]] = proto
        else:
            protos.append(proto)
    types, untensors = infer_types(model)
    inputs = {
        v.name: _type(v.type)
        for v in graph.input
        if v.name not in constants and v.name not in sparse
    }
    known = {*inputs, *constants, *sparse, ""}
    shell = ModelProto()
    shell.CopyFrom(_without_graph(model))
    return Graph(
        path=path,
        folder=folder,
        shell=shell,
        nodes=_named(_sorted(protos, known)),
        inputs=inputs,
        outputs={v.name: types.get(v.name) or _type(v.type) for v in graph.output},
        constants=constants,
        types=types,
        untensors=untensors,
        sparse=sparse,
        sha256=digest,
        renamed=_repeats(p.name for p in protos),
        overridable={
            v.name: _type(v.type) for v in graph.input if v.name in constants or v.name in sparse
        },
    )


def _without_graph(model: ModelProto) -> ModelProto:
    shell = ModelProto(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
    )
    shell.opset_import.extend(model.opset_import)
    shell.functions.extend(model.functions)
    shell.graph.name = model.graph.name or "graph"
    return shell


def infer_types(
    model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[dict[str, TensorType], frozenset[str]]:
    """Returns the type of every tensor that inference can tell, and the names of non-tensors.

    Args:
        model: The whole model.
        shapes: Concrete shapes of graph inputs, to fix symbolic dimensions.
    """
    source = model
    if shapes:
        source = ModelProto()
        source.CopyFrom(model)
        for value in source.graph.input:
            if value.name in shapes:
                dims = value.type.tensor_type.shape
                dims.ClearField("dim")
                for size in shapes[value.name]:
                    dims.dim.add().dim_value = int(size)
    try:
        inferred = onnx.shape_inference.infer_shapes(source, data_prop=True)
    except Exception:  # an operator's own inference may refuse; what the file says remains
        inferred = source
    graph = inferred.graph
    types: dict[str, TensorType] = {}
    others: set[str] = set()
    for value in [*graph.input, *graph.value_info, *graph.output]:
        if value.type.HasField("tensor_type"):
            types[value.name] = _type(value.type)
        elif value.type.WhichOneof("value") is not None:
            others.add(value.name)
    for tensor in graph.initializer:
        types[tensor.name] = TensorType(tensor.data_type, tuple(tensor.dims))
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            value = node.attribute[0].t
            types[node.output[0]] = TensorType(value.data_type, tuple(value.dims))
    return types, frozenset(others)


def _type(proto: onnx.TypeProto) -> TensorType:
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(tensor.elem_type, None)
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)  # exporters write -1
        else:
            dims.append(dim.dim_param if kind else None)
    return TensorType(tensor.elem_type, tuple(dims))


def captured(graph: GraphProto) -> list[str]:
    """Returns the names that a body reads from outside itself, in order."""
    local = {v.name for v in graph.input} | {t.name for t in graph.initializer} | {""}
    found: list[str] = []
    for node in graph.node:
        found += [t for t in _reads(node) if t not in local]
        local.update(node.output)
    found += [v.name for v in graph.output if v.name not in local]
    return list(dict.fromkeys(found))


def _reads(proto: NodeProto) -> list[str]:
    names = [t for t in proto.input if t]
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names += captured(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for body in attribute.graphs:
                names += captured(body)
    return list(dict.fromkeys(names))


def _sorted(protos: Sequence[NodeProto], known: set[str]) -> list[tuple[NodeProto, list[str]]]:
    """Keeps the model's order where it is topological; moves late producers forward if not."""
    have, result = set(known), []
    waiting = [(p, _reads(p)) for p in protos]
    while waiting:
        later = []
        for proto, reads in waiting:
            if all(t in have for t in reads):
                result.append((proto, reads))
                have.update(proto.output)
            else:
                later.append((proto, reads))
        if len(later) == len(waiting):
            raise ModelError(_unsortable(later, have))
        waiting = later
    return result


def _unsortable(waiting: Sequence[tuple[NodeProto, list[str]]], have: set[str]) -> str:
    """Returns why nodes cannot be put in order: a tensor that nothing makes, or a cycle."""
    made = {t for proto, _ in waiting for t in proto.output} | have
    for proto, reads in waiting:
        for tensor in reads:
            if tensor not in made:
                return f"node {proto.name or proto.op_type!r} reads {tensor!r}, which nothing makes"
    proto, reads = waiting[0]
    tensor = next(t for t in reads if t not in have)
    return (
        f"node {proto.name or proto.op_type!r} reads {tensor!r}, which is made from its own "
        "result (a cycle)"
    )


def _repeats(names: Iterable[str]) -> bool:
    given = [n for n in names if n]
    return len(set(given)) < len(given)


def _named(items: Sequence[tuple[NodeProto, list[str]]]) -> tuple[Node, ...]:
    counts: dict[str, int] = {}
    for proto, _ in items:
        counts[proto.name] = counts.get(proto.name, 0) + 1
    nodes, used = [], {n for n, c in counts.items() if n and c == 1}
    for index, (proto, reads) in enumerate(items):
        writes = tuple(t for t in proto.output if t)
        name = proto.name
        if not name or counts[name] > 1:
            name = writes[0] if writes else f"{proto.op_type}_{index}"
            while name in used:
                name += "'"
            used.add(name)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        nodes.append(Node(index, name, proto.op_type, domain, tuple(reads), writes, proto))
    return tuple(nodes)
