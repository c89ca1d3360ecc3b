"""The shape of a model: which edges may be cut or shaken, who makes what, where it narrows.

Everything here reads a :class:`debugtaps.graph.Graph` and answers questions about it; nothing
builds, runs or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from debugtaps import Graph

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["CONTRACTIONS", "EXACT", "Topology"]

CONTRACTIONS = frozenset(
    {
        "Attention",
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "Einsum",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GRU",
        "Gemm",
        "GroupQueryAttention",
        "LSTM",
        "MatMul",
        "MatMulNBits",
        "MultiHeadAttention",
        "RNN",
    }
)
"""Operators that multiply and accumulate: engines lower their precision first."""

EXACT = frozenset(
    {
        "Abs", "Cast", "CastLike", "Ceil", "Clip", "Compress", "Concat", "ConcatFromSequence",
        "DepthToSpace", "Dropout", "Expand", "Flatten", "Floor", "Gather", "GatherElements",
        "GatherND", "GlobalMaxPool", "Identity", "Max", "MaxPool", "Min", "Neg", "Pad", "Relu",
        "Reshape", "ReverseSequence", "Round", "ScatterElements", "ScatterND", "Shape", "Sign",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu",
        "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators that move or select values: they round nothing, so they have no vote on precision."""

# Inputs that shape inference reads, by operator: their values decide shapes.
_STRUCTURAL: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "DequantizeLinear": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


class Topology:
    """Answers about one graph, computed once each."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def structural(self) -> frozenset[str]:
        """Returns the tensors whose values decide shapes, with the integers they come from."""
        graph = self.graph
        found: set[str] = set()
        waiting = [
            node.proto.input[position]
            for node in graph.nodes
            if not node.domain
            for position in self._positions(node.op)
            if position < len(node.proto.input) and node.proto.input[position]
        ]
        while waiting:
            tensor = waiting.pop()
            if tensor in found or tensor in graph.fixed or tensor not in graph.producer:
                continue
            found.add(tensor)
            # Climb through integers, and one float above them: floats that become shapes.
            if not graph.is_float(tensor):
                waiting += graph.nodes[graph.producer[tensor]].reads
        return frozenset(found)

    def _positions(self, op: str) -> tuple[int, ...]:
        if op.startswith("Reduce"):
            return (1,)
        return _STRUCTURAL.get(op, ())

    @cached_property
    def tappable(self) -> tuple[str, ...]:
        """Returns the inner tensors that a tap may expose, in model order.

        Not among them: model outputs, what derives from constants or shapes alone, sequences,
        optionals and strings.
        """
        graph = self.graph
        hidden = graph.fixed | graph.shapelike | graph.untensors | graph.outputs.keys()
        return tuple(
            tensor
            for node in graph.nodes
            for tensor in node.writes
            if tensor not in hidden and graph.elem(tensor) != _STRING and self.is_read(tensor)
        )

    def is_read(self, tensor: str) -> bool:
        """Returns whether an operator reads the tensor or it is an output."""
        return tensor in self.graph.consumers or tensor in self.graph.outputs

    @cached_property
    def shakeable(self) -> frozenset[str]:
        """Returns the float edges that may be cut and carry noise."""
        graph = self.graph
        barred = graph.fixed | graph.shapelike | self.structural | graph.untensors
        names = [*graph.inputs, *(t for n in graph.nodes for t in n.writes)]
        return frozenset(t for t in names if graph.is_float(t) and t not in barred)

    @cached_property
    def noisy(self) -> frozenset[str]:
        """Returns the shakeable edges that rounding may touch.

        The result of a Cast carries no noise: its rounding is what the model asks for.
        """
        casts = {t for n in self.graph.nodes if n.op in ("Cast", "CastLike") for t in n.writes}
        return self.shakeable - casts

    @cached_property
    def depth(self) -> Mapping[str, int]:
        """Returns the longest distance, in operators, of each tensor from the inputs."""
        depth: dict[str, int] = {}
        for node in self.graph.nodes:
            level = 1 + max((depth.get(t, 0) for t in node.reads), default=0)
            depth.update(dict.fromkeys(node.writes, level))
        return depth

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Returns the place of each tensor in model order."""
        names = [t for n in self.graph.nodes for t in n.writes]
        return {t: i for i, t in enumerate([*self.graph.inputs, *names])}

    def region(self, tensor: str, cut: Collection[str]) -> frozenset[int]:
        """Returns the operators that replay ``tensor`` from the nearest cut edges."""
        return self._reached([tensor], cut)

    def _reached(self, tensors: Iterable[str], cut: Collection[str]) -> frozenset[int]:
        nodes, producer = self.graph.nodes, self.graph.producer
        found: set[int] = set()
        waiting = [producer[t] for t in tensors if t in producer]
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += [
                    producer[t] for t in nodes[index].reads if t not in cut and t in producer
                ]
        return frozenset(found)

    def blamed(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Returns the operators of a region that can be at fault: not mere shape arithmetic."""
        graph = self.graph
        given = sorted(nodes)
        idle = graph.fixed | graph.shapelike
        kept = [i for i in given if any(t not in idle for t in graph.nodes[i].writes)]
        return tuple(kept or given)

    def unrounded(self, tensor: str) -> bool:
        """Returns whether every engine has the same bits here: inputs, moved or selected."""
        nodes = (self.graph.nodes[i] for i in self.ancestors([tensor]))
        return all(n.op in EXACT and not n.plugin for n in nodes)

    def ancestors(self, tensors: Iterable[str]) -> frozenset[int]:
        """Returns the operators that the tensors depend on."""
        return self._reached(tensors, ())

    @cached_property
    def digraph(self) -> nx.DiGraph[int]:
        """Returns the operators as a networkx graph, edges from producer to reader."""
        import networkx

        graph: nx.DiGraph[int] = networkx.DiGraph()
        graph.add_nodes_from(n.index for n in self.graph.nodes)
        for node in self.graph.nodes:
            for tensor in node.reads:
                if tensor in self.graph.producer:
                    graph.add_edge(self.graph.producer[tensor], node.index)
        return graph

    @cached_property
    def waists(self) -> frozenset[str]:
        """Returns the tensors that all of some other operator's influence flows through.

        They are the post-dominators: between such an operator and the outputs no path avoids them.

        Cost: one pass of networkx' dominator tree over the reversed graph.
        Reference: K. D. Cooper, T. J. Harvey, K. Kennedy, "A simple, fast dominance algorithm",
        2001.
        """
        import networkx

        graph = self.digraph.reverse(copy=True)
        ends = {self.graph.producer[t] for t in self.graph.outputs if t in self.graph.producer}
        graph.add_edges_from((-1, end) for end in ends)
        dominators = networkx.immediate_dominators(graph, -1)
        dominators.pop(-1, None)
        counted = set(dominators.values()) - {-1}
        return frozenset(t for i in counted for t in self.graph.nodes[i].writes)

    @cached_property
    def necks(self) -> tuple[str, ...]:
        """Returns the tensors that all passes through from the inputs to the outputs, in order.

        An output that is no constant depends on the inputs by way of each neck alone, so a model
        can be cut there in two.  An operator whose neck has company, a second output that is
        read, has none.
        """
        import networkx

        model = self.graph
        graph = self.digraph.reverse(copy=True)
        ends = [model.producer[t] for t in model.outputs if t in model.producer]
        starts = [n.index for n in model.nodes if any(t in model.inputs for t in n.reads)]
        graph.add_edges_from((_END, each) for each in ends)
        graph.add_edges_from((each, _START) for each in starts)
        above = networkx.immediate_dominators(graph, _END)
        read = {t for node in model.nodes for t in node.reads} | set(model.outputs)
        found: list[str] = []
        at = above.get(_START, _END)
        while at != _END:
            writes = [t for t in model.nodes[at].writes if t in read]
            found += writes if len(writes) == 1 else []
            at = above[at]
        return tuple(found)


_STRING = 8  # TensorProto.STRING
_END, _START = -1, -2
