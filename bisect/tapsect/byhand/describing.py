"""What a model holds, as text: nodes, attributes, weights, taps, cut points."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from debugtaps import Graph, TensorType, dtype_name, load_array, load_graph, read_manifest
from tapsect.escape import LONGEST, clean
from tapsect.topology import Topology

__all__ = ["SECTIONS", "describe", "shown_type"]

SECTIONS = ("nodes", "attrs", "weights", "taps", "cuts")
_LONG = 8


def describe(path: Path, show: Collection[str] = ()) -> str:
    """Returns a description of a model: its inputs and outputs, and what ``show`` names.

    Args:
        path: The model.
        show: Of ``SECTIONS``; attributes are shown with their nodes.

    Raises:
        ModelError: The model cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="tapsect-inspect-") as work:
        graph = load_graph(path, Path(work))
        return "\n".join(clean(line, limit=LONGEST) for line in _lines(graph, show))


def _lines(graph: Graph, show: Collection[str]) -> Iterator[str]:
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in graph.shell.opset_import)
    yield f"{graph.path} | IR {graph.shell.ir_version} | opset {opsets}"
    yield f"{len(graph.nodes)} nodes, {len(graph.constants)} constants"
    for title, tensors in (("Input", graph.inputs), ("Output", graph.outputs)):
        for name, kind in tensors.items():
            yield f"{title} {name} [{shown_type(kind)}]"
    if "nodes" in show or "attrs" in show:
        yield ""
        for node in graph.nodes:
            yield from _node(graph, node.proto, str(node.index), node.name, attrs="attrs" in show)
        for function in graph.shell.functions:
            yield f"Function {function.domain}::{function.name}"
            for at, proto in enumerate(function.node):
                yield from _node(graph, proto, f"  {at}", proto.name, attrs="attrs" in show)
    if "weights" in show:
        yield from ("", *_weights(graph))
    if "taps" in show:
        yield from ("", *_taps(graph))
    if "cuts" in show:
        yield from ("", *_cuts(graph))


def shown_type(kind: TensorType | None) -> str:
    """Returns a type and shape as ``float32 (1, 3, N)``."""
    if kind is None or not kind.elem:
        return "unknown"
    name = (
        "string" if kind.elem == TensorProto.STRING
        else dtype_name(np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem)))
    )  # fmt: skip
    if kind.shape is None:
        return name
    dims = ", ".join("?" if d is None or d == "" else str(d) for d in kind.shape)
    return f"{name} ({dims})"


def _node(
    graph: Graph, proto: NodeProto, place: str, name: str, *, attrs: bool, indent: str = ""
) -> Iterator[str]:
    domain = f"{proto.domain}::" if proto.domain not in ("", "ai.onnx") else ""
    yield f"{indent}Node {place:<4} | {name} [Op: {domain}{proto.op_type}]"
    for arrow, tensors in (("reads ", proto.input), ("writes", proto.output)):
        told = [f"{t} [{shown_type(graph.types.get(t))}]" if t else "(omitted)" for t in tensors]
        yield f"{indent}    {arrow} {', '.join(told) or 'nothing'}"
    for attribute in proto.attribute:
        bodies = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        if attrs and not bodies:
            yield f"{indent}    {attribute.name} = {_value(attribute)}"
        for body in bodies:
            yield f"{indent}    {attribute.name}:"
            yield from _body(graph, body, place, attrs=attrs, indent=indent + "        ")


def _body(graph: Graph, body: GraphProto, place: str, *, attrs: bool, indent: str) -> Iterator[str]:
    for at, proto in enumerate(body.node):
        yield from _node(graph, proto, f"{place}.{at}", proto.name, attrs=attrs, indent=indent)


def _value(attribute: AttributeProto) -> str:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return shown_type(TensorType(value.data_type, tuple(value.dims)))
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "replace"))
    text = str(list(value)) if isinstance(value, list | tuple) or hasattr(value, "__len__") else ""
    return text[:200] or str(value)


def _weights(graph: Graph) -> Iterator[str]:
    for name, constant in graph.constants.items():
        kind = shown_type(graph.types.get(name))
        readers = [graph.nodes[i].name for i in graph.consumers.get(name, ())]
        yield f"Weight {name} [{kind}] read by {', '.join(readers[:3]) or 'nobody'}"
        if isinstance(constant, TensorProto):
            values = load_array(constant, graph.folder)
            if values.size and values.dtype.kind in "fiu":
                shown = f"min {values.min():.6g}, max {values.max():.6g}"
                if values.size <= _LONG:
                    shown = str(values.ravel().tolist())
                yield f"    {shown}"


def _taps(graph: Graph) -> Iterator[str]:
    manifest = read_manifest(_shell(graph.path))
    marked = {} if manifest is None else {entry.tensor: entry for entry in manifest.taps}
    tappable = Topology(graph).tappable
    yield f"{len(marked)} taps in the model, {len(tappable)} tensors can be tapped"
    for tensor in marked:
        yield f"Tap {tensor} [{shown_type(graph.types.get(tensor))}] in the model"
    for tensor in tappable:
        if tensor not in marked:
            yield f"Tap {tensor} [{shown_type(graph.types.get(tensor))}]"


def _cuts(graph: Graph) -> Iterator[str]:
    order = Topology(graph).necks
    yield f"{len(order)} cut points: what follows one depends on the inputs through it alone"
    for tensor in order:
        node = graph.nodes[graph.producer[tensor]] if tensor in graph.producer else None
        by = f" written by {node.name} [{node.op}]" if node is not None else ""
        yield f"Cut {tensor} [{shown_type(graph.types.get(tensor))}]{by}"


def _shell(path: Path) -> onnx.ModelProto:
    return onnx.load(path, load_external_data=False)
