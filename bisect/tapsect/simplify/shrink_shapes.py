"""Shrink sizes: batch, channels, height and width, length.

    x [4, 197, 768]  W [768, 3072]        x [1, 1, 1]  W [1, 1]

A size is changed wherever it stands: in inputs, in weights (sliced to match) and in the constants
that say shapes.  What does not fit any more says so itself, by not running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper

from debugtaps import Array
from tapsect.reduction import Asked
from tapsect.simplify.resizing import declared, smaller
from tapsect.simplify.specimen import Specimen, constants, node_lists, replace_values

__all__ = ["shrink_shapes"]

# Operators whose input, at that position, lists sizes.
_SIZES_AT = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Split": 1}
# Axes of a weight from here on are a kernel, whose size attributes repeat.
_KERNEL_FROM = 2
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"})

Resize = Callable[[int], int]


def shrink_shapes(problem: Asked[Specimen]) -> None:
    """Proposes smaller sizes, the largest size first: 1, 2, then halves.

    Each size is changed everywhere at once, then together with its multiples (heads times width),
    then axis by axis of the inputs.

    Guarantees to have tried: 1, 2 and half of each size in each of these ways.
    Cost: at most nine questions a size and an input axis.
    """
    for size in _sizes(problem.current):
        _try(problem, size, _everywhere)
    for size in _sizes(problem.current):
        _try(problem, size, _with_multiples)
    for name in list(problem.current.feeds):
        for axis, size in enumerate(problem.current.feeds[name].shape):
            if size > 1:
                _try(problem, size, _along(name, axis))


def _try(
    problem: Asked[Specimen], size: int, resized: Callable[[Specimen, int, int], Specimen | None]
) -> None:
    origin = problem.current
    for new in smaller(size):
        made = resized(origin, size, new)
        if made is not None and problem.consider(made):
            return


def _sizes(origin: Specimen) -> list[int]:
    shapes = [value.shape for value in origin.feeds.values()]
    shapes += [tuple(t.dims) for t in constants(origin.proto)]
    return sorted({size for shape in shapes for size in shape if size > 1}, reverse=True)


def _everywhere(origin: Specimen, size: int, new: int) -> Specimen | None:
    return _resized(origin, lambda d: new if d == size else d, f"{size} became {new}")


def _with_multiples(origin: Specimen, size: int, new: int) -> Specimen | None:
    def resize(d: int) -> int:
        return d // size * new if d and d % size == 0 else d

    return _resized(origin, resize, f"multiples of {size} became multiples of {new}")


def _along(name: str, axis: int) -> Callable[[Specimen, int, int], Specimen | None]:
    def resized(origin: Specimen, size: int, new: int) -> Specimen | None:
        model = ModelProto()
        model.CopyFrom(origin.proto)
        value = origin.feeds[name]
        feeds = {**origin.feeds, name: value.take(range(new), axis=axis)}
        why = f"axis {axis} of input '{name}' became {new}"
        return declared(origin, model, feeds, why)

    return resized


def _resized(origin: Specimen, resize: Resize, why: str) -> Specimen | None:
    model = ModelProto()
    model.CopyFrom(origin.proto)
    kernels, lists = _special(model)
    for tensor in constants(model):
        values = numpy_helper.to_array(tensor)
        if tensor.name in lists:
            made = np.array([resize(int(v)) for v in values.ravel()], values.dtype)
            made = made.reshape(values.shape)
        else:
            last = _KERNEL_FROM if tensor.name in kernels else values.ndim
            made = _sliced(values, resize, last)
        if made.shape != values.shape or tensor.name in lists:
            replace_values(tensor, made)
    feeds = {name: _sliced(v, resize, v.ndim) for name, v in origin.feeds.items()}
    return declared(origin, model, feeds, why)


def _sliced(values: Array, resize: Resize, axes: int) -> Array:
    parts = tuple(slice(0, resize(size)) for size in values.shape[:axes])
    return np.ascontiguousarray(values[parts]).reshape(values[parts].shape)


def _special(model: ModelProto) -> tuple[set[str], set[str]]:
    """Returns the weights that hold kernels, and the constants that list sizes."""
    kernels: set[str] = set()
    lists: set[str] = set()
    for graph in node_lists(model.graph):
        made = {node.output[0]: node for node in graph.node}
        for node in graph.node:
            at = _SIZES_AT.get(node.op_type)
            if node.op_type in _CONVOLUTIONS:
                kernels.update(node.input[1:])
            elif at is not None and at < len(node.input):
                lists.update(_behind(node.input[at], made))
    return kernels, lists - {""}


def _behind(name: str, made: Mapping[str, NodeProto]) -> Iterator[str]:
    """Yields the constants that a list of sizes comes from: itself, or what it is joined from."""
    node = made.get(name)
    if node is None:
        yield name
    elif node.op_type == "Constant":
        yield from (attribute.t.name for attribute in node.attribute)
    elif node.op_type == "Concat":
        for part in node.input:
            yield from _behind(part, made)
