"""Shrink sizes: batch, channels, height and width, length.

    x [4, 197, 768]  W [768, 3072]        x [1, 1, 1]  W [1, 1]

A size is changed wherever it stands: in inputs, in weights (sliced to match) and in the constants
that say shapes.  What does not fit any more says so itself, by not running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from debugtaps import Array
from tapsect.reduce import Asked
from tapsect.simplify.specimen import Specimen, changed, constants, node_lists, replace_values

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
    for smaller in dict.fromkeys(s for s in (1, 2, size // 2) if 0 < s < size):
        made = resized(origin, size, smaller)
        if made is not None and problem.consider(made):
            return


def _sizes(origin: Specimen) -> list[int]:
    shapes = [value.shape for value in origin.feeds.values()]
    shapes += [tuple(t.dims) for t in constants(origin.proto)]
    return sorted({size for shape in shapes for size in shape if size > 1}, reverse=True)


def _everywhere(origin: Specimen, size: int, smaller: int) -> Specimen | None:
    return _resized(origin, lambda d: smaller if d == size else d, f"{size} became {smaller}")


def _with_multiples(origin: Specimen, size: int, smaller: int) -> Specimen | None:
    def resize(d: int) -> int:
        return d // size * smaller if d and d % size == 0 else d

    return _resized(origin, resize, f"multiples of {size} became multiples of {smaller}")


def _along(name: str, axis: int) -> Callable[[Specimen, int, int], Specimen | None]:
    def resized(origin: Specimen, size: int, smaller: int) -> Specimen | None:
        model = ModelProto()
        model.CopyFrom(origin.proto)
        value = origin.feeds[name]
        feeds = {**origin.feeds, name: value.take(range(smaller), axis=axis)}
        why = f"axis {axis} of input '{name}' became {smaller}"
        return _declared(origin, model, feeds, why)

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
    return _declared(origin, model, feeds, why)


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


def _declared(
    origin: Specimen, model: ModelProto, feeds: dict[str, Array], why: str
) -> Specimen | None:
    """Declares the new sizes; dimensions that were not fixed stay so."""
    if all(feeds[name].shape == value.shape for name, value in origin.feeds.items()) and all(
        a == b for a, b in zip(_dims(model), _dims(origin.proto), strict=True)
    ):
        return None
    held = {t.name: t for t in model.graph.initializer}
    for value in model.graph.input:
        shape = feeds[value.name].shape if value.name in feeds else tuple(held[value.name].dims)
        for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=False):
            if dim.HasField("dim_value"):
                dim.dim_value = size
    del model.graph.value_info[:]
    ranks = [len(value.type.tensor_type.shape.dim) for value in model.graph.output]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        told = onnx.shape_inference.infer_shapes(model)
        for value, known in zip(model.graph.output, told.graph.output, strict=True):
            value.CopyFrom(known)
    except Exception:  # an operator's own inference may refuse: engines ask the run
        pass
    for value, rank in zip(model.graph.output, ranks, strict=True):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            dims.extend(onnx.TensorShapeProto.Dimension() for _ in range(rank))
    return changed(origin, model, why, feeds)


def _dims(model: ModelProto) -> Iterator[tuple[tuple[int, ...], bytes]]:
    for tensor in constants(model):
        listed = tensor.data_type == TensorProto.INT64 and len(tensor.dims) <= 1
        yield tuple(tensor.dims), tensor.SerializeToString() if listed else b""
