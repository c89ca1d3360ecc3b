"""Reduce what nodes hold: bodies of If, Loop and Scan, and functions of the model.

If ─ then: A ─▶ B ─▶ C        If ─ then: A ─▶ C          A ─▶ C
   └ else: D                     └ else: D
             a node bypassed                the branch in place of the node
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, inliner, numpy_helper

from tapsect.reduce import Asked
from tapsect.simplify.specimen import Specimen, bodies, changed, node_lists, pruned

__all__ = ["shrink_bodies"]


def shrink_bodies(problem: Asked[Specimen]) -> None:
    """Proposes a body in place of its node, functions in place of calls, bodies with less in.

    Guarantees to have tried: each branch of each If in its place, one turn of each Loop without
    scan results, all functions in place of their calls, every node of a body or a function
    bypassed through each of its inputs.
    Cost: one question for each of them.
    """
    _until_none(problem, _unfolded)
    if problem.current.proto.functions:
        inlined = inliner.inline_local_functions(problem.current.proto)
        problem.consider(changed(problem.current, inlined, "functions stand in place of calls"))
    place = 0
    while place < _places(problem.current):
        # Each place is left when no way of bypassing it fails; a success moves others there.
        if not any(problem.consider(each) for each in _bypassed(problem.current, place)):
            place += 1


def _until_none(problem: Asked[Specimen], ways: Callable[[Specimen], Iterator[Specimen]]) -> None:
    """Asks for each way once; after a success goes on from there."""
    tried = 0
    while True:
        origin = problem.current
        found = next((w for n, w in enumerate(ways(origin)) if n >= tried), None)
        if found is None:
            return
        if not problem.consider(found) or problem.current == origin:
            tried += 1


# -- a body in place of its node -----------------------------------------------------------------


def _unfolded(origin: Specimen) -> Iterator[Specimen]:
    for index, node in enumerate(origin.proto.graph.node):
        for which, body in enumerate(bodies(node)):
            if node.op_type == "If":
                inputs: dict[str, str] = {}
            elif node.op_type == "Loop" and len(node.output) == len(body.output) - 1:
                turn = ["turn::number", "turn::more", *node.input[2:]]
                inputs = dict(zip((v.name for v in body.input), turn, strict=True))
            else:
                continue
            yield _in_place(origin, index, which, inputs)


def _in_place(origin: Specimen, index: int, which: int, inputs: dict[str, str]) -> Specimen:
    """Returns the model in which a node is replaced by one of its bodies."""
    model = ModelProto()
    model.CopyFrom(origin.proto)
    graph = model.graph
    node = graph.node[index]
    body = bodies(node)[which]
    skip = len(body.output) - len(node.output)  # a Loop's body also says whether to go on
    names = dict(inputs)
    made = {t for inner in body.node for t in inner.output if t}
    made |= {t.name for t in body.initializer}
    prefix = node.name or node.output[0]
    names |= {name: f"{prefix}::{name}" for name in made}
    ends = list(zip(body.output[skip:], node.output, strict=True))
    names |= {value.name: outer for value, outer in ends if outer and value.name in made}
    inner_nodes = _renamed(body, names)
    for value, outer in ends:  # what the body passes through, or shows twice, needs a node
        if outer and names.get(value.name, value.name) != outer:
            source = names.get(value.name, value.name)
            inner_nodes.append(helper.make_node("Identity", [source], [outer]))
    if inputs:
        graph.initializer.append(numpy_helper.from_array(np.zeros((), np.int64), "turn::number"))
        graph.initializer.append(numpy_helper.from_array(np.ones((), np.bool_), "turn::more"))
    for tensor in body.initializer:
        kept = graph.initializer.add()
        kept.CopyFrom(tensor)
        kept.name = names[tensor.name]
    rest = [*graph.node[:index], *inner_nodes, *graph.node[index + 1 :]]
    copies = [NodeProto.FromString(each.SerializeToString()) for each in rest]
    del graph.node[:]
    graph.node.extend(copies)
    pruned(graph)
    what = node.op_type if node.op_type != "If" else f"branch {which + 1} of If"
    return changed(origin, model, f"the body of {what} '{prefix}' stands in its place")


def _renamed(body: GraphProto, names: dict[str, str]) -> list[NodeProto]:
    copy = GraphProto()
    copy.CopyFrom(body)
    _rename(copy, names)
    return list(copy.node)


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    for node in graph.node:
        for field in (node.input, node.output):
            for place, name in enumerate(field):
                field[place] = names.get(name, name)
        for body in bodies(node):
            local = {v.name for v in body.input} | {t.name for t in body.initializer}
            local |= {t for inner in body.node for t in inner.output}
            _rename(body, {k: v for k, v in names.items() if k not in local})
            for value in body.output:
                if value.name not in local:
                    value.name = names.get(value.name, value.name)


# -- less in a body ------------------------------------------------------------------------------


def _holders(model: ModelProto) -> list[GraphProto | onnx.FunctionProto]:
    return [*list(node_lists(model.graph))[1:], *model.functions]


def _places(origin: Specimen) -> int:
    return sum(len(holder.node) for holder in _holders(origin.proto))


def _bypassed(origin: Specimen, place: int) -> Iterator[Specimen]:
    """Yields the models in which what a body's node read is read in place of its result."""
    count = _located(origin.proto, place)[1]
    sources = dict.fromkeys(name for name in count.input if name)
    for source in sources:
        model = ModelProto()
        model.CopyFrom(origin.proto)
        holder, node = _located(model, place)
        target = node.output[0]
        why = f"{node.op_type} '{node.name or target}' is bypassed inside a body"
        holder.node.remove(node)
        for graph in [holder] if isinstance(holder, onnx.FunctionProto) else node_lists(holder):
            for reader in graph.node:
                for at, name in enumerate(reader.input):
                    if name == target:
                        reader.input[at] = source
        _show(holder, target, source)
        if isinstance(holder, GraphProto):
            pruned(holder, top=False)
        pruned(model.graph)
        yield changed(origin, model, why)


def _located(model: ModelProto, place: int) -> tuple[GraphProto | onnx.FunctionProto, NodeProto]:
    for holder in _holders(model):
        if place < len(holder.node):
            return holder, holder.node[len(holder.node) - 1 - place]
        place -= len(holder.node)
    raise IndexError(place)


def _show(holder: GraphProto | onnx.FunctionProto, target: str, source: str) -> None:
    if isinstance(holder, onnx.FunctionProto):
        for at, name in enumerate(holder.output):
            if name == target:
                holder.output[at] = source
        return
    for value in holder.output:
        if value.name == target:
            value.name = source
