"""Shrink windows: kernels of convolutions and of pooling, with the padding they need.

Conv 3 × 3, pads 1 1 1 1        Conv 1 × 1, pads 0 0 0 0        the picture keeps its size
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, helper, numpy_helper

from tapsect.reduction import Asked
from tapsect.simplify.axes import integers
from tapsect.simplify.resizing import declared, smaller
from tapsect.simplify.specimen import Specimen, changed, replace_values

__all__ = ["shrink_kernels"]

# The input that holds the weights of a window; pooling has none.
_WEIGHTS_AT = {
    "Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3,
    "AveragePool": -1, "MaxPool": -1, "LpPool": -1,
}  # fmt: skip


def shrink_kernels(problem: Asked[Specimen]) -> None:
    """Proposes smaller windows: of one node at a time, all axes at once, then axis by axis.

    Padding shrinks with the window, so that what comes out keeps its size where it can.

    Guarantees to have tried: 1, 2 and half of the size of each axis of each window.
    Cost: at most three questions an axis, and three a node.
    """
    for index in range(len(problem.current.proto.graph.node)):
        window = _window(problem.current, index)
        for axes in _choices(len(window)):
            for size in smaller(max(window[a] for a in axes)):
                made = _with_window(problem.current, index, axes, size)
                if made is not None and problem.consider(made):
                    break


def _choices(rank: int) -> Iterator[Sequence[int]]:
    if rank:
        yield range(rank)
    if rank > 1:
        yield from ([axis] for axis in range(rank))


def _window(origin: Specimen, index: int) -> list[int]:
    """Returns the window of a node; empty where it has none."""
    node = origin.proto.graph.node[index]
    at = _WEIGHTS_AT.get(node.op_type)
    if at is None:
        return []
    if at < 0:
        return integers(node, "kernel_shape")
    name = node.input[at]
    held = next((t for t in origin.proto.graph.initializer if t.name == name), None)
    return list(held.dims[2:]) if held is not None else []


def _with_window(origin: Specimen, index: int, axes: Sequence[int], size: int) -> Specimen | None:
    window = _window(origin, index)
    new = [min(size, old) if at in axes else old for at, old in enumerate(window)]
    if new == window:
        return None
    model = ModelProto()
    model.CopyFrom(origin.proto)
    node = model.graph.node[index]
    at = _WEIGHTS_AT[node.op_type]
    if at >= 0:
        held = next(t for t in model.graph.initializer if t.name == node.input[at])
        values = numpy_helper.to_array(held)
        parts = (slice(None), slice(None), *(slice(0, n) for n in new))
        replace_values(held, np.ascontiguousarray(values[parts]))
    if at < 0 or integers(node, "kernel_shape"):
        _set(node, "kernel_shape", new)
    _pad_less(node, window, new)
    why = f"the window of '{node.name or node.output[0]}' became {'x'.join(map(str, new))}"
    if at >= 0:
        return declared(origin, model, dict(origin.feeds), why)
    return changed(origin, model, why)


def _pad_less(node: NodeProto, window: Sequence[int], new: Sequence[int]) -> None:
    pads = integers(node, "pads")
    rank = len(window)
    if len(pads) != 2 * rank:
        return
    steps = integers(node, "dilations") or [1] * rank
    for axis in range(rank):
        spare = (window[axis] - new[axis]) * steps[axis]
        before = min(pads[axis], (spare + 1) // 2)
        pads[axis] -= before
        pads[axis + rank] -= min(pads[axis + rank], spare - before)
    _set(node, "pads", pads)


def _set(node: NodeProto, name: str, values: Sequence[int]) -> None:
    kept: list[AttributeProto] = [a for a in node.attribute if a.name != name]
    copies = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend([*copies, helper.make_attribute(name, values)])
