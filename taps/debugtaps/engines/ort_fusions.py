"""Which nodes ONNX Runtime fuses into one.

ONNX Runtime does not say.  It can write the model it optimised, whose fused nodes read and write
tensors that keep their names; what lies between those in the model that was given is what one fused
node computes::

    given      x ─▶ Pow ─▶ ReduceMean ─▶ Add ─▶ Sqrt ─▶ y         one kernel: the four nodes
    optimised  x ───────────▶ SomeFusion ─────────────▶ y

Python 3.8, onnxruntime and onnx; where onnx is missing, nothing is told.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["kernels"]

MOVES = ("MemcpyFromHost", "MemcpyToHost", "ReorderInput", "ReorderOutput")
EXTERNAL = "session.optimized_model_external_initializers_"


def kernels(engine: Any, model: Path) -> list[list[str]]:
    """Returns sets of nodes that run as one kernel, by name, or by what they write.

    Args:
        engine: The engine that built the model; it makes a second session, which is not run.
        model: The model it built.
    """
    try:
        import onnx
    except ImportError:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options = engine.session_options()
        options.optimized_model_filepath = str(path)
        options.add_session_config_entry(EXTERNAL + "file_name", "weights")
        options.add_session_config_entry(EXTERNAL + "min_size_in_bytes", "1024")
        engine.session(model, options)
        both = [onnx.load(str(each), load_external_data=False) for each in (model, path)]
    return _fused(*(_Net(each.graph) for each in both))


class _Net:
    """Nodes, and which of them writes a tensor."""

    def __init__(self, graph: Any) -> None:
        self.nodes = list(graph.node)
        self.makers = {name: i for i, n in enumerate(graph.node) for name in n.output if name}
        self.tensors = {*self.makers, *(each.name for each in (*graph.input, *graph.initializer))}

    def between(self, tensor: str, kept: set[str]) -> set[int]:
        """Returns the nodes that make a tensor out of those that were kept."""
        found: set[int] = set()
        waiting = [self.makers[tensor]] if tensor in self.makers else []
        while waiting:
            index = waiting.pop()
            if index not in found and self.nodes[index].op_type != "Constant":
                found.add(index)
                inner = (name for name in self.nodes[index].input if name not in kept)
                waiting += [self.makers[name] for name in inner if name in self.makers]
        return found

    def names(self) -> list[str]:
        """Returns what tells nodes apart: their names, or what they write."""
        count = Counter(node.name for node in self.nodes)
        written = [next(filter(None, node.output), "") for node in self.nodes]
        pairs = zip(self.nodes, written)  # noqa: B905 - Python 3.8 has no strict
        return [n.name if n.name and count[n.name] == 1 else tensor for n, tensor in pairs]


def _fused(before: _Net, after: _Net) -> list[list[str]]:
    """Returns the nodes that a single node took the place of."""
    kept = before.tensors & after.tensors
    found: dict[int, set[int]] = {}
    for tensor, index in after.makers.items():
        if tensor in kept:
            made = after.between(tensor, kept)
            made = {i for i in made if after.nodes[i].op_type not in MOVES}
            if made == {index}:  # where several came, who does what is not told
                found.setdefault(index, set()).update(before.between(tensor, kept))
    names = before.names()
    return [[names[i] for i in sorted(group)] for group in found.values() if len(group) > 1]
