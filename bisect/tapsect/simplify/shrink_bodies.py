"""Reduce what nodes hold: bodies of If, Loop and Scan, and functions of the model.

If ─ then: A ─▶ B ─▶ C        If ─ then: A ─▶ C          A ─▶ C
   └ else: D                     └ else: D
             a node bypassed                the branch in place of the node
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, inliner, numpy_helper

from tapsect.reduction import Asked
from tapsect.simplify.axes import integers
from tapsect.simplify.specimen import (
    Specimen,
    bodies,
    captured,
    changed,
    node_lists,
    pruned,
    replace_values,
)
from tapsect.simplify.unfolding import unfolded

__all__ = ["shrink_bodies"]


def shrink_bodies(problem: Asked[Specimen]) -> None:
    """Proposes a body in place of its node, functions in place of calls, bodies with less in.

    Guarantees to have tried: each branch of each If in its place, one turn of each Loop and Scan,
    all functions in place of their calls, every Loop with one turn, Loop and Scan without the
    sequences that nothing reads, every node of a body or a function bypassed through each of its
    inputs.
    Cost: one question for each of them.
    """
    _until_none(problem, unfolded)
    if problem.current.proto.functions:
        inlined = inliner.inline_local_functions(problem.current.proto)
        problem.consider(changed(problem.current, inlined, "functions stand in place of calls"))
    _until_none(problem, _unread)
    _until_none(problem, _fewer_turns)
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


# -- less in a body ------------------------------------------------------------------------------


def _unread(origin: Specimen) -> Iterator[Specimen]:
    """Yields the models without one of the sequences that a Loop or a Scan makes for nobody."""
    for which, graph in enumerate(node_lists(origin.proto.graph)):
        read = captured(graph)
        for index, node in enumerate(graph.node):
            for place in range(_states(node), len(node.output)):
                if node.output[place] not in read or not node.output[place]:
                    yield _without_sequence(origin, which, index, place)


def _states(node: NodeProto) -> int:
    """Returns how many results are no sequences; all of them where the operator makes none."""
    if node.op_type == "Loop":
        return len(node.input) - 2
    if node.op_type == "Scan" and integers(node, "num_scan_inputs"):
        return len(node.input) - integers(node, "num_scan_inputs")[0]
    return len(node.output)


def _without_sequence(origin: Specimen, which: int, index: int, place: int) -> Specimen:
    model = ModelProto()
    model.CopyFrom(origin.proto)
    node = list(node_lists(model.graph))[which].node[index]
    states, (body,) = _states(node), bodies(node)
    del node.output[place], body.output[place + (node.op_type == "Loop")]
    for attribute in node.attribute:
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            del attribute.ints[place - states]
    for empty in [a for a in node.attribute if a.type == AttributeProto.INTS and not a.ints]:
        node.attribute.remove(empty)
    pruned(body, top=False)
    pruned(model.graph)
    return changed(origin, model, f"'{node.name or node.output[0]}' shows a sequence less")


def _fewer_turns(origin: Specimen) -> Iterator[Specimen]:
    """Yields the models in which a Loop makes one turn."""
    for node in origin.proto.graph.node:
        held = [t for t in origin.proto.graph.initializer if t.name in node.input[:1]]
        if node.op_type == "Loop" and held and np.any(numpy_helper.to_array(held[0]) > 1):
            model = ModelProto()
            model.CopyFrom(origin.proto)
            turns = next(t for t in model.graph.initializer if t.name == held[0].name)
            replace_values(turns, np.ones_like(numpy_helper.to_array(turns)))
            yield changed(origin, model, f"'{node.name or node.output[0]}' makes one turn")


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
