"""The models and values of a case under other names, and with other numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from debugtaps import FLOATS, Array, InputError, read_npz

__all__ = ["load", "names_of_case", "random_like", "renamed", "with_random_weights"]

SMALL = 8
"""Constants of no more elements are part of the structure: axes, scales, thresholds."""


def load(path: Path) -> ModelProto:
    """Returns a model with its weights.

    Raises:
        InputError: It is no ONNX model.
    """
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf and onnx raise many kinds
        raise InputError(f"{path} is not an ONNX model or is truncated ({error}).") from None


def names_of_case(folder: Path) -> tuple[set[str], set[str]]:
    """Returns the names in a case's models and arrays, and the operators they use."""
    names: set[str] = set()
    ops: set[str] = set()
    for path in sorted(folder.glob("*.onnx")):
        model = load(path)

        def note(name: str) -> str:
            names.add(name)
            return name

        _each_name(model, note)
        ops |= {node.op_type for graph in _graphs(model) for node in graph}
    for path in sorted(folder.glob("*.npz")):
        names |= set(read_npz(path))
    return names - {""}, ops


def renamed(model: ModelProto, name: Callable[[str], str]) -> ModelProto:
    """Returns the model under other names, without documentation, metadata and origin.

    Operators and their domains stay: the engine must know them; functions of the model's own are
    renamed with their callers.
    """
    found = ModelProto()
    found.CopyFrom(model)
    _each_name(found, name)
    own = {(f.domain, f.name) for f in model.functions}
    for nodes in _graphs(found):
        for node in nodes:
            node.doc_string = ""
            if (node.domain, node.op_type) in own:
                node.op_type = name(node.op_type)
            if "metadata_props" in node.DESCRIPTOR.fields_by_name:
                node.ClearField("metadata_props")
    for function in found.functions:
        function.name, function.doc_string = name(function.name), ""
    for field in ("doc_string", "producer_name", "producer_version", "domain", "model_version"):
        found.ClearField(field)
    del found.metadata_props[:]
    for graph in _bodies(found.graph):
        graph.name = name(graph.name) or "graph"
        _bare(graph)
    return found


def _bare(graph: GraphProto) -> None:
    """Removes what nobody computes with."""
    graph.doc_string = ""
    del graph.quantization_annotation[:]
    if "metadata_props" in graph.DESCRIPTOR.fields_by_name:
        graph.ClearField("metadata_props")
    for each in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        each.doc_string = ""
        if "metadata_props" in each.DESCRIPTOR.fields_by_name:
            each.ClearField("metadata_props")


def _each_name(model: ModelProto, name: Callable[[str], str]) -> None:
    """Puts every name of tensors, nodes, dimensions and functions through ``name``."""
    for nodes in _graphs(model):
        for node in nodes:
            node.name = name(node.name)
            node.input[:] = [name(t) for t in node.input]
            node.output[:] = [name(t) for t in node.output]
    for graph in _bodies(model.graph):
        for tensor in graph.initializer:
            tensor.name = name(tensor.name)
        for sparse in graph.sparse_initializer:
            sparse.values.name = name(sparse.values.name)
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.name = name(value.name)
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = name(dim.dim_param)
    for function in model.functions:
        function.input[:] = [name(t) for t in function.input]
        function.output[:] = [name(t) for t in function.output]


def _graphs(model: ModelProto) -> Iterator[Any]:
    """Yields every list of nodes: the graph's, its bodies', the functions'."""
    for graph in _bodies(model.graph):
        yield graph.node
    for function in model.functions:
        yield function.node
        for node in function.node:
            for body in _bodies_of(node):
                yield body.node


def _bodies(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        yield from _bodies_of(node)


def _bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from _bodies(attribute.g)
        for body in attribute.graphs:
            yield from _bodies(body)


# --------------------------------------------------------------------------------- other numbers


def with_random_weights(model: ModelProto, rng: np.random.Generator) -> ModelProto:
    """Returns the model with every float constant of some size drawn anew, of equal spread."""
    found = ModelProto()
    found.CopyFrom(model)
    for tensor in _constants(found):
        if tensor.data_type in FLOATS and int(np.prod(tensor.dims, dtype=np.int64)) > SMALL:
            drawn = random_like(numpy_helper.to_array(tensor), rng)
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(drawn, name))
    return found


def _constants(model: ModelProto) -> Iterator[TensorProto]:
    for graph in _bodies(model.graph):
        yield from graph.initializer
    for nodes in _graphs(model):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.TENSOR:
                    yield attribute.t


def random_like(array: Array, rng: np.random.Generator) -> Array:
    """Returns numbers of the same type, shape and spread; what is no float stays as it is."""
    if array.dtype.kind not in "fV" and array.dtype.name != "bfloat16":
        return array
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size <= SMALL or finite.size < wide.size:
        return array
    # Within 3 deviations, not up to the old extremes: those would be numbers of the original.
    drawn = np.clip(rng.standard_normal(array.shape), -3.0, 3.0)
    drawn = float(finite.mean()) + (float(finite.std()) or 1e-3) * drawn
    if finite.min() >= 0:  # variances and probabilities stay what they are
        drawn = np.abs(drawn)
    return drawn.astype(array.dtype)


def all_random(values: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Returns tensors of the same types and shapes with other numbers."""
    return {name: random_like(value, rng) for name, value in values.items()}
