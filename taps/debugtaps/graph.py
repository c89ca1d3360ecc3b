"""One ONNX model as an immutable graph whose weights stay in one place.

A model is read once.  Large weights are moved out of the protobuf into one file of the working
folder, so that each tapped, cut or reduced candidate is a small "shell" that points at them.

Names are those of the model.  A node without a name, or one of several with the same name, is
called by its first output, which ONNX requires to be unique.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from debugtaps.errors import ModelError
from debugtaps.nodes import STANDARD_DOMAINS, Node, captured, named, repeats, sorted_nodes
from debugtaps.reading import check_model, check_opset, read_model, standard_opset
from debugtaps.tensortypes import TensorType, infer_types, type_of
from debugtaps.weights import check_weights, external_files, load_array, move_weights, offload

__all__ = [
    "FLOATS",
    "NARROW",
    "RANDOM_OPS",
    "STANDARD_DOMAINS",
    "Graph",
    "Node",
    "TensorType",
    "captured",
    "external_files",
    "infer_types",
    "load_array",
    "load_graph",
    "offload",
]

FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
)
NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})

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
        return standard_opset(self.shell)

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
    model, digest = read_model(path, folder)
    check_weights(path, model, digest)
    check_opset(path, model)
    folder.mkdir(parents=True, exist_ok=True)
    state = move_weights(model, path.parent, folder, digest)
    check_model(path, model, folder / f"given-{digest[:16]}.onnx")
    try:
        return dataclasses.replace(_build(path, folder, model, digest), weights=state)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


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
        v.name: type_of(v.type)
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
        nodes=named(sorted_nodes(protos, known)),
        inputs=inputs,
        outputs={v.name: types.get(v.name) or type_of(v.type) for v in graph.output},
        constants=constants,
        types=types,
        untensors=untensors,
        sparse=sparse,
        sha256=digest,
        renamed=repeats(p.name for p in protos),
        overridable={
            v.name: type_of(v.type) for v in graph.input if v.name in constants or v.name in sparse
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
