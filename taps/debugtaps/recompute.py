"""Values of tensors from values of others: the known ones cut the graph, the rest is computed.

Every known tensor is fed where it is read, so errors never add up along the graph.  What lies
between is run by ONNX Runtime with its optimisations off, in one session for all that can run;
an operator that it lacks is computed by a function, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import helper

from debugtaps.engines.host import Host
from debugtaps.errors import EngineFailure
from debugtaps.graph import Graph, Node, TensorType
from debugtaps.surgery import extract, save

__all__ = ["Function", "Obtained", "Recomputed", "recompute", "stands_alone"]

Array = npt.NDArray[Any]
Obtained = Literal["torch", "moved", "onnxruntime", "torch-op"]
Function = Callable[[Sequence[Array | None], Mapping[str, Any]], Sequence[Array]]
Functions = Callable[[Node], Function | None]

_MOVES = frozenset(
    {
        "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split",
        "Concat", "Expand", "Gather", "Tile", "Dropout", "DepthToSpace", "SpaceToDepth",
    }
)  # fmt: skip


@dataclass
class Recomputed:
    """What could be computed.

    Attributes:
        values: By tensor, the known ones not among them.
        origins: How each was obtained; ``moved`` means exact, no arithmetic on the way.
        missing: Why a tensor has no value.
    """

    values: dict[str, Array] = field(default_factory=dict)
    origins: dict[str, Obtained] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def recompute(
    graph: Graph,
    known: Mapping[str, Array],
    wanted: Collection[str],
    host: Host,
    *,
    functions: Functions = lambda node: None,
) -> Recomputed:
    """Returns the values of ``wanted``, and of what had to be computed on the way.

    Args:
        graph: The model.
        known: Values by tensor; all graph inputs that matter are among them.
        wanted: Tensors whose value is asked for.
        host: Runs what ONNX Runtime has.
        functions: Computes nodes that are no standard operators.
    """
    return _Work(graph, known, host, functions).run(wanted)


def stands_alone(node: Node, graph: Graph) -> bool:
    """Returns whether a node is run by code from elsewhere: no standard one, no local function."""
    local = {(f.domain, f.name) for f in graph.shell.functions}
    return node.plugin and (node.domain, node.op) not in local


class _Work:
    def __init__(
        self, graph: Graph, known: Mapping[str, Array], host: Host, functions: Functions
    ) -> None:
        self.graph = graph
        self.have: dict[str, Array] = dict(known)
        self.host = host
        self.functions = functions
        self.found = Recomputed()
        self.failed: dict[int, str] = {}

    def run(self, wanted: Collection[str]) -> Recomputed:
        waiting = self._needed(wanted)
        while waiting:
            before = len(waiting)
            batch = self._runnable(waiting)
            if batch:
                self._compute(batch)
            waiting = [i for i in waiting if i not in set(batch)]
            for index in list(waiting):
                if stands_alone(self.graph.nodes[index], self.graph) and self._fed(index, set()):
                    self._call(index)
                    waiting.remove(index)
            if len(waiting) == before:
                break
        for tensor in wanted:
            if tensor not in self.have and not self._constant(tensor):
                self.found.missing[tensor] = self._why(tensor)
        return self.found

    def _constant(self, tensor: str) -> bool:
        return tensor in self.graph.constants or tensor in self.graph.sparse

    def _needed(self, wanted: Iterable[str]) -> list[int]:
        found: set[int] = set()
        stack = [t for t in wanted if t not in self.have]
        while stack:
            index = self.graph.producer.get(stack.pop())
            if index is None or index in found:
                continue
            found.add(index)
            stack += [t for t in self.graph.nodes[index].reads if t not in self.have]
        return sorted(found)

    def _fed(self, index: int, made: set[str]) -> bool:
        return all(
            t in self.have or t in made or self._constant(t) for t in self.graph.nodes[index].reads
        )

    def _runnable(self, waiting: Sequence[int]) -> list[int]:
        made: set[str] = set()
        batch = []
        for index in waiting:
            node = self.graph.nodes[index]
            if not stands_alone(node, self.graph) and self._fed(index, made):
                batch.append(index)
                made.update(node.writes)
        return batch

    def _compute(self, batch: Sequence[int]) -> None:
        try:
            self._keep(batch, self._session(batch))
        except EngineFailure:
            for index in batch:
                if self._fed(index, set()):
                    self._alone(index)

    def _alone(self, index: int) -> None:
        try:
            self._keep([index], self._session([index]))
        except EngineFailure as error:
            self.failed[index] = _refusal(self.graph.nodes[index], error)

    def _session(self, batch: Sequence[int]) -> dict[str, Array]:
        nodes = [self.graph.nodes[i] for i in batch]
        shown = [t for n in nodes for t in n.writes if t not in self.graph.untensors]
        types = {n: _type_of(a) for n, a in self.have.items()}
        model = extract(self.graph, batch, shown, types=types)
        feeds = {v.name: self.have[v.name] for v in model.graph.input}
        path = save(model, self.graph.folder / f"recompute-{batch[0]}-{len(batch)}.onnx")
        try:
            with self.host.build(path) as session:
                return session.run(feeds)
        finally:
            path.unlink(missing_ok=True)

    def _keep(self, batch: Sequence[int], values: Mapping[str, Array]) -> None:
        for index in batch:
            node = self.graph.nodes[index]
            moved = node.op in _MOVES and all(
                self.found.origins.get(t, "moved") == "moved" for t in node.reads
            )
            for tensor in node.writes:
                if tensor in values:
                    self._set(tensor, values[tensor], "moved" if moved else "onnxruntime")

    def _set(self, tensor: str, value: Array, origin: Obtained) -> None:
        if tensor not in self.have:
            self.have[tensor] = self.found.values[tensor] = value
            self.found.origins[tensor] = origin

    def _call(self, index: int) -> None:
        node = self.graph.nodes[index]
        function = self.functions(node)
        if function is None:
            self._alone(index)
            return
        try:
            given = [self._value(t) for t in node.proto.input]
            results = function(given, attributes_of(node))
            for tensor, value in zip(node.proto.output, results, strict=False):
                if tensor:
                    self._set(tensor, np.asarray(value), "torch-op")
        except Exception as error:  # the user's code may raise anything
            text = (str(error).splitlines() or [""])[0][:200]
            self.failed[index] = f"its reference raised {type(error).__name__}: {text}"

    def _value(self, tensor: str) -> Array | None:
        if not tensor:
            return None
        if tensor in self.have:
            return self.have[tensor]
        return constant_value(self.graph, tensor)

    def _why(self, tensor: str) -> str:
        index = self.graph.producer.get(tensor)
        if index is None:
            return f"nothing tells the value of {tensor!r}"
        stack, seen = [index], {index}
        while stack:
            at = stack.pop()
            if at in self.failed:
                node = self.graph.nodes[at]
                return f"{node.domain + '::' if node.domain else ''}{node.op}: {self.failed[at]}"
            for read in self.graph.nodes[at].reads:
                above = self.graph.producer.get(read)
                if above is not None and above not in seen and read not in self.have:
                    seen.add(above)
                    stack.append(above)
        return "what it is computed from has no value"


def constant_value(graph: Graph, tensor: str) -> Array:
    """Returns the value of a constant of the model."""
    from onnx import NodeProto, numpy_helper

    from debugtaps.graph import load_array

    constant = graph.constants[tensor]
    if not isinstance(constant, NodeProto):
        return load_array(constant, graph.folder)
    attribute = constant.attribute[0]
    if attribute.HasField("t"):
        return numpy_helper.to_array(attribute.t, base_dir=str(graph.folder))
    return np.asarray(helper.get_attribute_value(attribute))


def _refusal(node: Node, error: EngineFailure) -> str:
    if "not a registered function" in error.message or "no opset import" in error.message.lower():
        return (
            "ONNX Runtime has no such operator; tell what it computes with "
            f"--plugin-reference {node.domain}::{node.op}=module:function"
        )
    first = error.message.splitlines()[0]
    return first.rpartition(" failed:")[2][:200] if " failed:" in first else first[:200]


def attributes_of(node: Node) -> dict[str, Any]:
    """Returns the attributes of a node as Python values; text is ``str``."""
    found = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute}
    return {n: v.decode("utf-8", "replace") if isinstance(v, bytes) else v
            for n, v in found.items()}  # fmt: skip


def _type_of(array: Array) -> TensorType:
    if array.dtype.kind in "OUST":
        return TensorType(helper.np_dtype_to_tensor_dtype(np.dtype(object)), array.shape)
    return TensorType(int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
