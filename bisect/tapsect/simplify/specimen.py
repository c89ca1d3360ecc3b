"""A whole small model with what it is fed: the candidate of the passes that work on models.

    bytes of the model (weights inside)  +  feeds by input name  +  what the last step changed

A specimen never changes.  Two are equal when model and feeds are, whatever led to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from debugtaps import Array
from tapsect.onefile import LARGEST

__all__ = [
    "READ",
    "NodeList",
    "Specimen",
    "TooLarge",
    "bodies",
    "captured",
    "changed",
    "node_lists",
    "plainness",
    "pruned",
    "specimen",
    "whole",
]

NodeList = Sequence[NodeProto]

READ = 1 << 20
"""Values of a tensor that is worth being made plain."""


class TooLarge(Exception):
    """A model whose weights do not fit into one file."""


@dataclass(frozen=True, eq=False)
class Specimen:
    """A model that can be run by itself.

    Attributes:
        model: The ONNX file's bytes; weights lie inside.
        feeds: What it is fed, by input.
        change: What the last step did, in words.
        outside: Where weights lie that do not fit inside; such a model is not made plainer.
    """

    model: bytes = field(repr=False)
    feeds: Mapping[str, Array] = field(repr=False)
    change: str = ""
    outside: Path | None = None

    @cached_property
    def digest(self) -> str:
        """Returns what tells it from others."""
        found = hashlib.sha256(self.model)
        for name in sorted(self.feeds):
            value = self.feeds[name]
            found.update(f"{name}\0{value.dtype}{value.shape}".encode())
            text = value.dtype.kind in "OUST"
            found.update(
                repr(value.tolist()).encode() if text else np.ascontiguousarray(value).tobytes()
            )
        return found.hexdigest()

    @cached_property
    def proto(self) -> ModelProto:
        """Returns the parsed model; a copy must be made of it before it is changed."""
        return onnx.load_model_from_string(self.model)

    @cached_property
    def nodes(self) -> int:
        """Returns how many nodes there are, those of bodies and of called functions included."""
        graphs = sum(_count(each.node) for each in [self.proto.graph])
        return graphs + sum(_count(each.node) for each in self.proto.functions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Specimen) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def specimen(
    model: ModelProto, feeds: Mapping[str, Array], outside: Path | None = None
) -> Specimen:
    """Returns a model with the feeds that it reads."""
    names = {value.name for value in model.graph.input}
    kept = {name: value for name, value in feeds.items() if name in names}
    return Specimen(model.SerializeToString(deterministic=True), kept, outside=outside)


def whole(model: ModelProto, folder: Path) -> ModelProto:
    """Returns a model with its weights inside.

    Raises:
        TooLarge: They take more than one file can hold.
    """
    outside = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if not outside:
        return model
    sizes = [int(e.value) for t in outside for e in t.external_data if e.key == "length"]
    if sum(sizes) > LARGEST:
        raise TooLarge
    full = ModelProto()
    full.CopyFrom(model)
    onnx.load_external_data_for_model(full, str(folder))
    return full


def changed(
    origin: Specimen, model: ModelProto, change: str, feeds: Mapping[str, Array] | None = None
) -> Specimen:
    """Returns the specimen after one step; feeds that it no longer reads are left out."""
    made = specimen(model, origin.feeds if feeds is None else feeds)
    return Specimen(made.model, made.feeds, change)


def bodies(node: NodeProto) -> list[GraphProto]:
    """Returns the sub-graphs of a node (If, Loop, Scan …)."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            found += attribute.graphs
    return found


def node_lists(graph: GraphProto) -> Iterator[GraphProto]:
    """Yields a graph and every sub-graph in it, outer ones first."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from node_lists(body)


def captured(graph: GraphProto) -> set[str]:
    """Returns every name that a graph or one of its sub-graphs reads, its own outputs too."""
    read = {value.name for value in graph.output}
    for node in graph.node:
        read.update(name for name in node.input if name)
        for body in bodies(node):
            read |= captured(body)
    return read


def pruned(graph: GraphProto, *, top: bool = True) -> None:
    """Removes, in place, the nodes, constants and inputs that nothing reads.

    Args:
        graph: The graph or sub-graph.
        top: Whether inputs may go as well: those of a body are a contract with its node.
    """
    while True:
        read = captured(graph)
        idle = [node for node in graph.node if not any(name in read for name in node.output)]
        if not idle:
            break
        for node in idle:
            graph.node.remove(node)
    for field_name in ("initializer", "sparse_initializer"):
        held = getattr(graph, field_name)
        for tensor in [t for t in held if _tensor_name(t) not in read]:
            held.remove(tensor)
    if top:
        for value in [v for v in graph.input if v.name not in read]:
            graph.input.remove(value)
        del graph.value_info[:]


def plainness(array: Array) -> int:
    """Returns how hard values are to read: 0 zeros, 1 ones, 2 small integers, 3 few, 4 others.

    More than ``READ`` are others: nobody reads them, and to look at them costs memory.
    """
    if array.size > READ:
        return 4
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        return 0
    values = array.astype(np.float64).ravel()
    if not values.size or not np.any(values):
        return 0
    if np.all(values == 1):
        return 1
    with np.errstate(invalid="ignore"):
        if np.all((values == np.round(values)) & (np.abs(values) <= 9)):
            return 2
    return 3 if len(np.unique(values)) <= 4 else 4


def constants(model: ModelProto) -> Iterator[TensorProto]:
    """Yields the initializers and the tensors of ``Constant`` nodes, those of bodies included."""
    for graph in node_lists(model.graph):
        yield from graph.initializer
        for node in graph.node:
            if node.op_type == "Constant":
                yield from (a.t for a in node.attribute if a.type == AttributeProto.TENSOR)


def replace_values(tensor: TensorProto, values: Array) -> None:
    """Gives a constant other values, in place; its name stays."""
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def _count(nodes: NodeList) -> int:
    inner = (body for node in nodes for body in bodies(node))
    real = sum(node.op_type != "Constant" for node in nodes)
    return real + sum(_count(body.node) for body in inner)


def _tensor_name(tensor: TensorProto | onnx.SparseTensorProto) -> str:
    return tensor.values.name if isinstance(tensor, onnx.SparseTensorProto) else tensor.name
