r"""Models in which edges are cut, carry noise, or receive a given error.

One model serves a whole measurement.  A noisy edge is multiplied by a *window*: part of a noise
pool, in the tensor's shape.  Windows of ones leave the plain values, bit for bit; windows of
1 + u·r give what rounding at u might have done.  For a tensor ``t``::

    producer -> raw::t --\
                          >-- [× noise::t] -- [+ error::t] -- [where] --> t --> consumers
    fed:      feed::t ---/

Consumers, and the bodies of control-flow operators, go on reading ``t``.  What is fed anyway is
shaken before it is fed: that costs no operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from debugtaps.graph import Graph, TensorType
from debugtaps.surgery import add_constants, emit, follow, rename_reads, value_info

__all__ = ["Perturbed", "Plan", "error_name", "feed_name", "mask_name", "perturb", "raw_name"]

_WHERE_SINCE = 9
_SPAN = 65536  # windows of different edges start at different offsets of one pool


def feed_name(tensor: str) -> str:
    """Returns the graph input that carries the value of a cut tensor."""
    return f"feed::{tensor}"


def raw_name(tensor: str) -> str:
    """Returns what the producer itself computes."""
    return f"raw::{tensor}"


def error_name(tensor: str) -> str:
    """Returns the graph input whose value is added to (or replaces) a tensor."""
    return f"error::{tensor}"


def mask_name(tensor: str) -> str:
    """Returns the graph input that says which elements are replaced."""
    return f"mask::{tensor}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with which edge.

    Attributes:
        nodes: Indices of the operators that run.
        cut: Tensors fed from outside although an operator here (or none) makes them.
        noisy: Tensor -> pool that its noise comes from.
        shapes: Shapes of the noisy tensors; one without a shape here carries no noise.
        added: Tensors that receive an error by addition.
        replaced: Tensors some of whose elements are replaced.
        raw: Tensors to show as their producer computes them, before noise.
        values: Tensors to show as consumers read them.
        aliases: Tensor -> tensor that is read in its place (a bypassed operator).
        held: Tensors that stand still where a mask says so, in spite of noise; they are shown.
        rounded: Tensor -> narrow float type that its values are really rounded to.
    """

    nodes: Sequence[int]
    cut: Collection[str] = ()
    noisy: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    added: Collection[str] = ()
    replaced: Collection[str] = ()
    raw: Sequence[str] = ()
    values: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    held: Collection[str] = ()
    rounded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Perturbed:
    """The model, the pools it reads (elements, dtype), and the names it feeds and shows.

    ``windows`` are inputs to be fed with part of a pool (pool, start, shape), ``shaken`` feeds
    to be multiplied by one (pool, start).  ``held`` are tensors whose mask and value must be fed
    as well, with their shapes; those in ``hidden`` are shown for that alone.
    """

    model: ModelProto
    pools: Mapping[str, tuple[int, str]]
    feeds: tuple[str, ...]
    shows: Mapping[str, str]
    windows: Mapping[str, tuple[str, int, tuple[int, ...]]] = field(default_factory=dict)
    shaken: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    held: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


def perturb(graph: Graph, plan: Plan) -> Perturbed:
    """Returns the model of a plan.

    Args:
        graph: The graph the plan speaks of; narrow floats must be widened before.
        plan: What to cut, to shake and to show.
    """
    model = ModelProto()
    model.CopyFrom(graph.shell)
    builder = _Builder(graph, plan, model.graph)
    feeds = builder.build()
    pools = {
        name: (max(size, 1) + _SPAN, "float64" if elem == TensorProto.DOUBLE else "float32")
        for name, (size, elem) in builder.pools.items()
    }
    held = {t: plan.shapes[t] for t in builder.held}
    hidden = frozenset(held).difference(plan.raw, plan.values)
    return Perturbed(
        model, pools, feeds, builder.shows, builder.windows, builder.shaken, held, hidden
    )


class _Builder:
    def __init__(self, graph: Graph, plan: Plan, target: GraphProto) -> None:
        self.graph, self.plan, self.target = graph, plan, target
        self.cut = frozenset(plan.cut)
        self.noisy = {t: p for t, p in plan.noisy.items() if t in plan.shapes}
        reads = {t for i in plan.nodes for t in graph.nodes[i].reads}
        able = graph.opset >= _WHERE_SINCE
        self.held = [t for t in plan.held if able and t in plan.shapes and t in reads]
        self.added, self.replaced = frozenset(plan.added), frozenset([*plan.replaced, *self.held])
        self.pools: dict[str, tuple[int, int]] = {}
        self.shows: dict[str, str] = {}
        self.windows: dict[str, tuple[str, int, tuple[int, ...]]] = {}
        self.shaken: dict[str, tuple[str, int]] = {}

    def build(self) -> tuple[str, ...]:
        plan, graph = self.plan, self.graph
        made = {t for i in plan.nodes for t in graph.nodes[i].writes}
        constant = graph.constants.keys() | graph.sparse.keys()
        reads = dict.fromkeys(
            follow(t, plan.aliases) for i in plan.nodes for t in graph.nodes[i].reads
        )
        for name in [*plan.values, *(t for t in plan.raw if t not in made)]:
            reads.setdefault(name)
        feeds = [t for t in reads if t not in constant and (t in self.cut or t not in made)]
        add_constants(graph, self.target, dict.fromkeys(reads))
        for tensor in feeds:
            self._feed(tensor)
        for index in plan.nodes:
            self._node(index)
        shown = {t: raw_name(t) if self._staged(t) and t in made else t for t in plan.raw}
        for tensor in [*plan.values, *self.held]:
            shown.setdefault(tensor, tensor)
        for tensor, name in shown.items():
            self.shows[tensor] = name
            self.target.output.append(self._info(name, tensor))
        return tuple(feeds)

    def _staged(self, tensor: str) -> bool:
        return (
            tensor in self.cut
            or tensor in self.noisy
            or tensor in self.added
            or tensor in self.replaced
            or tensor in self.plan.rounded
        )

    def _info(self, name: str, tensor: str) -> ValueInfoProto:
        kind = self.graph.types.get(tensor)
        return value_info(name, TensorType(kind.elem) if kind is not None else None)

    def _feed(self, tensor: str) -> None:
        staged = tensor in self.added or tensor in self.replaced or tensor in self.plan.rounded
        source = feed_name(tensor) if staged else tensor
        self.target.input.append(self._info(source, tensor))
        if tensor in self.noisy:
            self.shaken[source] = self._window(tensor)
        if staged:
            self._stages(tensor, source, fed=True)

    def _node(self, index: int) -> None:
        start = len(self.target.node)
        emit(self.graph, index, self.target)
        for proto in self.target.node[start:]:
            if self.plan.aliases:
                rename_reads(proto, self.plan.aliases)
            for position, tensor in enumerate(proto.output):
                if tensor and self._staged(tensor):
                    proto.output[position] = raw_name(tensor)
        for tensor in self.graph.nodes[index].writes:
            if self._staged(tensor) and tensor not in self.cut:
                self._stages(tensor, raw_name(tensor), fed=False)

    def _stages(self, tensor: str, source: str, *, fed: bool) -> None:
        stages = []
        if tensor in self.noisy and not fed:
            stages.append(self._noise)
        if tensor in self.plan.rounded:
            stages.append(self._round)
        if tensor in self.added:
            stages.append(self._add)
        if tensor in self.replaced:
            stages.append(self._replace)
        current = source
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            result = tensor if last else f"stage{number}::{tensor}"
            stage(tensor, current, result)
            current = result

    def _op(self, op: str, inputs: Iterable[str], output: str) -> None:
        self.target.node.append(helper.make_node(op, list(inputs), [output]))

    def _window(self, tensor: str) -> tuple[str, int]:
        """Returns the pool a tensor's noise comes from and where its window begins."""
        pool = f"pool::{self.noisy[tensor]}"
        elem = self.graph.elem(tensor) or TensorProto.FLOAT
        if elem == TensorProto.DOUBLE:
            pool += "::double"
        size = int(np.prod(self.plan.shapes[tensor], dtype=np.int64))
        self.pools[pool] = (max(size, self.pools.get(pool, (0, 0))[0]), elem)
        return pool, ((len(self.windows) + len(self.shaken)) * 7919) % _SPAN

    def _noise(self, tensor: str, source: str, result: str) -> None:
        pool, start = self._window(tensor)
        noise = f"noise::{tensor}"
        self.windows[noise] = (pool, start, self.plan.shapes[tensor])
        self.target.input.append(self._info(noise, tensor))
        self._op("Mul", [source, noise], result)

    def _round(self, tensor: str, source: str, result: str) -> None:
        narrow, wide = f"narrow::{tensor}", self.graph.elem(tensor) or TensorProto.FLOAT
        to = self.plan.rounded[tensor]
        self.target.node.append(helper.make_node("Cast", [source], [narrow], to=to))
        self.target.node.append(helper.make_node("Cast", [narrow], [result], to=wide))

    def _add(self, tensor: str, source: str, result: str) -> None:
        self.target.input.append(self._info(error_name(tensor), tensor))
        self._op("Add", [source, error_name(tensor)], result)

    def _replace(self, tensor: str, source: str, result: str) -> None:
        mask, value = mask_name(tensor), f"value::{tensor}"
        self.target.input.append(helper.make_tensor_value_info(mask, TensorProto.BOOL, None))
        self.target.input.append(self._info(value, tensor))
        self._op("Where", [mask, value, source], result)
