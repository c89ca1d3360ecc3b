"""A body in the place of its node: a branch of an If, one turn of a Loop or a Scan.

    Scan ─ body(state, row) ─▶ (state, row)      x[0] ─▶ body(state, row) ─▶ state
      state ──┘      └── x                                               └─▶ row, as one result

What a turn takes from a sequence is its first element: cut from what is fed where the sequence
is an input of the model, gathered where it is not.  What it adds to a sequence stands alone where
the model shows it, and is a sequence of one where other operators read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from debugtaps import Array
from tapsect.simplify.axes import integers
from tapsect.simplify.resizing import retyped
from tapsect.simplify.specimen import Specimen, bodies, captured, changed, pruned

__all__ = ["unfolded"]

_LISTED_AXES = 13  # from this opset on Unsqueeze reads its axes


@dataclass
class _Turn:
    """How a body is fed, and what becomes of its results.

    Attributes:
        inputs: Input of the body -> tensor outside.
        taken: Input of the body -> sequence outside, its axis and which element.
        results: Result of the body and tensor outside, with the axis of a sequence, if it is one.
    """

    body: GraphProto
    inputs: dict[str, str] = field(default_factory=dict)
    taken: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    results: list[tuple[str, str, int | None]] = field(default_factory=list)


def unfolded(origin: Specimen) -> Iterator[Specimen]:
    """Yields the models in which one node is replaced by one turn of one of its bodies."""
    for index, node in enumerate(origin.proto.graph.node):
        for which, body in enumerate(bodies(node)):
            turn = _TURNS[node.op_type](node, body) if node.op_type in _TURNS else None
            if turn is not None:
                what = node.op_type if node.op_type != "If" else f"branch {which + 1} of If"
                name = node.name or node.output[0]
                made = _Unfolding(origin, index, turn).made()
                why = f"the body of {what} '{name}' stands in its place"
                yield changed(origin, made.model, why, made.feeds)


def _branch(node: NodeProto, body: GraphProto) -> _Turn:
    results = zip(body.output, node.output, strict=True)
    return _Turn(body, results=[(v.name, outer, None) for v, outer in results])


def _loop(node: NodeProto, body: GraphProto) -> _Turn:
    turn = ["turn::number", "turn::more", *node.input[2:]]
    inputs = dict(zip((v.name for v in body.input), turn, strict=True))
    states = len(node.input) - 2
    made = zip(body.output[1:], node.output, strict=False)  # the first says whether to go on
    results = [(v.name, o, None if i < states else 0) for i, (v, o) in enumerate(made)]
    return _Turn(body, inputs, {}, results)


def _scan(node: NodeProto, body: GraphProto) -> _Turn | None:
    (scanned,) = integers(node, "num_scan_inputs") or [0]
    states = len(node.input) - scanned
    if not scanned or len(body.input) != len(node.input):
        return None  # the form of opset 8 has batches and lengths
    names = [v.name for v in body.input]
    at = integers(node, "scan_input_axes") or [0] * scanned
    ways = integers(node, "scan_input_directions") or [0] * scanned
    taken = {
        name: (source, axis, -1 if back else 0)
        for name, source, axis, back in zip(
            names[states:], node.input[states:], at, ways, strict=True
        )
    }  # fmt: skip
    made = list(zip(body.output, node.output, strict=False))
    axes = [None] * states + (integers(node, "scan_output_axes") or [0] * (len(made) - states))
    results = [(v.name, o, axis) for (v, o), axis in zip(made, axes, strict=False)]
    return _Turn(body, dict(zip(names[:states], node.input[:states], strict=True)), taken, results)


_TURNS = {"If": _branch, "Loop": _loop, "Scan": _scan}


class _Unfolding:
    """A model in which one node is being replaced."""

    def __init__(self, origin: Specimen, index: int, turn: _Turn) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(origin.proto)
        self.feeds: dict[str, Array] = dict(origin.feeds)
        self.index, self.turn = index, turn
        node = origin.proto.graph.node[index]
        self.prefix, self.given = node.name or node.output[0], list(node.input)
        others = [n for i, n in enumerate(origin.proto.graph.node) if i != index]
        rest = GraphProto(node=others)
        self.read = captured(rest) | captured(turn.body)
        self.before: list[NodeProto] = []
        self.after: list[NodeProto] = []

    def made(self) -> _Unfolding:
        """Puts the body into the place of its node."""
        graph, turn = self.model.graph, self.turn
        names = dict(turn.inputs)
        names |= {inner: self._element(inner, *where) for inner, where in turn.taken.items()}
        made = {t for node in turn.body.node for t in node.output if t}
        made |= {t.name for t in turn.body.initializer}
        names |= {name: f"{self.prefix}::{name}" for name in made}
        for value, outer, axis in turn.results:
            if outer and value in made and not self._stacked(outer, axis):
                names[value] = outer
        nodes = _renamed(turn.body, names)
        for value, outer, axis in turn.results:
            source = names.get(value, value)
            if outer and self._stacked(outer, axis):
                self._stack(source, outer, axis or 0)
            elif outer and source != outer:  # passed through, or shown twice
                self.after.append(helper.make_node("Identity", [source], [outer]))
        if "turn::number" in names.values():
            self._constant(np.zeros((), np.int64), "turn::number")
            self._constant(np.ones((), np.bool_), "turn::more")
        for tensor in turn.body.initializer:
            kept = graph.initializer.add()
            kept.CopyFrom(tensor)
            kept.name = names[tensor.name]
        held = list(graph.node)
        rest = [*held[: self.index], *self.before, *nodes, *self.after, *held[self.index + 1 :]]
        copies = [NodeProto.FromString(each.SerializeToString()) for each in rest]
        del graph.node[:]
        graph.node.extend(copies)
        pruned(graph)
        if any(axis is not None for _, _, axis in turn.results):
            retyped(self.model, keep_ranks=False)
        return self

    def _stacked(self, outer: str, axis: int | None) -> bool:
        """Returns whether a result must become a sequence of one: other operators read it."""
        return axis is not None and outer in self.read

    def _element(self, inner: str, source: str, axis: int, place: int) -> str:
        """Returns the tensor that holds one element of a sequence."""
        graph = self.model.graph
        value = next((v for v in graph.input if v.name == source), None)
        alone = self.given.count(source) == 1 and source not in self.read
        if value is not None and source in self.feeds and alone:
            self.feeds[source] = np.asarray(self.feeds[source].take(place, axis=axis))
            dims = value.type.tensor_type.shape.dim
            if dims:
                del dims[axis]
            return source
        name, at = f"{self.prefix}::{inner}", f"{self.prefix}::{inner}::at"
        self._constant(np.array(place, np.int64), at)
        self.before.append(helper.make_node("Gather", [source, at], [name], axis=axis))
        return name

    def _stack(self, source: str, outer: str, axis: int) -> None:
        opset = next((o.version for o in self.model.opset_import if not o.domain), 0)
        if opset < _LISTED_AXES:
            node = helper.make_node("Unsqueeze", [source], [outer], axes=[axis])
        else:
            self._constant(np.array([axis], np.int64), f"{outer}::axis")
            node = helper.make_node("Unsqueeze", [source, f"{outer}::axis"], [outer])
        self.after.append(node)

    def _constant(self, values: Array, name: str) -> None:
        tensor: TensorProto = numpy_helper.from_array(values, name)
        self.model.graph.initializer.append(tensor)


def _renamed(body: GraphProto, names: Mapping[str, str]) -> list[NodeProto]:
    copy = GraphProto()
    copy.CopyFrom(body)
    _rename(copy, names)
    return list(copy.node)


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for held in (node.input, node.output):
            for place, name in enumerate(held):
                held[place] = names.get(name, name)
        for body in bodies(node):
            local = {v.name for v in body.input} | {t.name for t in body.initializer}
            local |= {t for inner in body.node for t in inner.output}
            _rename(body, {k: v for k, v in names.items() if k not in local})
            for value in body.output:
                if value.name not in local:
                    value.name = names.get(value.name, value.name)
