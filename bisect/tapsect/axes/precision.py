"""Nodes that stay in fp32 while the rest becomes fp16, and the smallest set of them that helps.

The conversion is ONNX Runtime's own; what it leaves undone is done here: between two nodes that
both stay, no value passes through fp16, and the nodes come in an order that checkers accept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapsect.search.subsets import minimal_subset

if TYPE_CHECKING:
    import onnx

__all__ = ["Mixed", "mixed", "needed"]

HALF_MAX = 65504.0
FLOAT, FLOAT16 = 1, 10
"""As ``onnx.TensorProto`` numbers them."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A model in two precisions.

    Attributes:
        model: The model.
        clamped: Weights that fp16 cannot hold; the converter cuts them off at its largest number.
    """

    model: onnx.ModelProto
    clamped: tuple[str, ...]


def needed(
    ranked: Sequence[str], good: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...] | None:
    """Returns the smallest set of nodes that is good enough; None when not even all are.

    Args:
        ranked: The nodes, those that most likely matter first.
        good: Whether it is enough to keep a set.

    Notes:
        Cost: with the k nodes that matter among the first m, about ``log2(m)`` builds to take
        them in, then those of `minimal_subset` on m nodes.
    """
    if not ranked or not good(tuple(ranked)):
        return None
    size = 1
    while size < len(ranked) and not good(tuple(ranked[:size])):
        size *= 2
    return minimal_subset(tuple(ranked[:size]), good).items


def mixed(model: onnx.ModelProto, keep: Sequence[str], wide: Sequence[str]) -> Mixed:
    """Returns ``model`` in fp16, but for the nodes that are kept.

    Args:
        model: In fp32, weights inside; its nodes have names.
        keep: Names of the nodes that stay in fp32.
        wide: Inputs and outputs that stay fp32.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = onnx.ModelProto()
    made.CopyFrom(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weights that are cut off are told below
        made = convert_float_to_float16(
            made,
            keep_io_types=list(wide) or False,
            node_block_list=_with_sources(model.graph, keep),
        )
    _joined(made, {node.name for node in model.graph.node})
    _sorted(made.graph)
    half = {t.name for t in made.graph.initializer if t.data_type == onnx.TensorProto.FLOAT16}
    clamped = tuple(
        t.name
        for t in model.graph.initializer
        if t.name in half and np.abs(numpy_helper.to_array(t)).max(initial=0) > HALF_MAX
    )
    return Mixed(made, clamped)


def _with_sources(graph: onnx.GraphProto, keep: Sequence[str]) -> list[str]:
    """Adds what kept nodes read and nothing computes: constants and casts become fp16 else."""
    producer = {name: node for node in graph.node for name in node.output}
    kept = dict.fromkeys(keep)
    read = [name for node in graph.node if node.name in kept for name in node.input]
    sources = [producer[name] for name in read if name in producer]
    return list(kept | dict.fromkeys(n.name for n in sources if n.op_type in ("Constant", "Cast")))


def _joined(model: onnx.ModelProto, own: set[str]) -> None:
    """Joins nodes that stay: fp32 ─▶ Cast ─▶ fp16 ─▶ Cast ─▶ fp32 loses what they stay for."""
    graph = model.graph
    casts = {n.output[0]: n for n in graph.node if n.op_type == "Cast" and n.name not in own}
    around = {
        name: casts[up.input[0]].input[0]
        for name, up in casts.items()
        if up.input[0] in casts and _to(up) == FLOAT and _to(casts[up.input[0]]) == FLOAT16
    }
    ends = {value.name for value in graph.output}
    made = {name for node in graph.node for name in node.output}
    # The tensor before both casts takes the name of the output that lies behind them.
    renamed = {
        around[name]: name for name in around if name in ends and around[name] in made - ends
    }
    for node in graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                wide = name if names is node.output else around.get(name, name)
                names[at] = renamed.get(wide, wide)
    for name in renamed.values():
        graph.node.remove(casts.pop(name))
    _without_unread(graph, casts)


def _without_unread(graph: onnx.GraphProto, casts: Mapping[str, onnx.NodeProto]) -> None:
    """Removes the casts that nothing reads any more, not even a body."""
    ends = {value.name for value in graph.output}
    while True:
        read = ends.union(*(_reads(node) for node in graph.node))
        unread = [n for n in graph.node if n.output[0] in casts and n.output[0] not in read]
        if not unread:
            return
        for node in unread:
            graph.node.remove(node)


def _to(cast: onnx.NodeProto) -> int:
    return int(next(a.i for a in cast.attribute if a.name == "to"))


def _sorted(graph: onnx.GraphProto) -> None:
    """Puts nodes behind those they read: the converter appends its casts at the end."""
    import networkx as nx

    producer = {name: n for n, node in enumerate(graph.node) for name in node.output if name}
    order = nx.DiGraph()
    order.add_nodes_from(range(len(graph.node)))
    for n, node in enumerate(graph.node):
        order.add_edges_from((producer[name], n) for name in _reads(node) if name in producer)
    nodes = [graph.node[n] for n in nx.lexicographical_topological_sort(order)]
    del graph.node[:]
    graph.node.extend(nodes)


def _reads(node: onnx.NodeProto) -> set[str]:
    """Returns what a node reads, its bodies included."""
    found = set(node.input)
    for attribute in node.attribute:
        for body in [attribute.g, *attribute.graphs]:
            for inner in body.node:
                found |= _reads(inner)
    return found
