"""Shrink one class of tied axes at a time: batch, length, channels, heads, groups.

    x [4, 8, 4]  W [4, 4]     4 is the batch, the width and the columns: three classes, and
                              each of them shrinks by itself

What equal sizes alone cannot tell apart is told by what operators do (``axes``, ``axis_rules``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from debugtaps import Array
from tapsect.reduction import Asked
from tapsect.simplify.axes import Axis, Sizes, known_shapes
from tapsect.simplify.axis_rules import entries, tied
from tapsect.simplify.resizing import declared, smaller
from tapsect.simplify.specimen import Specimen, replace_values

__all__ = ["shrink_axes"]


def shrink_axes(problem: Asked[Specimen]) -> None:
    """Proposes smaller sizes for each class of tied axes, what holds most numbers first.

    Guarantees to have tried: 1, 2 and half of each class's size.
    Cost: at most three questions a class, and three more for each that became smaller.
    """
    tried: set[tuple[Axis, int]] = set()
    while True:
        origin = problem.current
        sizes = tied(origin.proto, known_shapes(origin.proto, origin.feeds))
        classes = _classes(origin, sizes)
        root = next((r for r in classes if (r, sizes.of(r)) not in tried), None)
        if root is None:
            return
        tried.add((root, sizes.of(root)))
        for size in smaller(sizes.of(root)):
            made = _shrunk(origin, sizes, root, size)
            if made is not None and problem.consider(made):
                break


def _held(model: ModelProto) -> dict[str, TensorProto]:
    """Returns constants by tensor, those of ``Constant`` nodes included."""
    found = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            found[node.output[0]] = node.attribute[0].t
    return found


def _classes(origin: Specimen, sizes: Sizes) -> list[Axis]:
    """Returns the classes that inputs, constants or attributes have an axis of."""
    weight: dict[Axis, int] = {}
    lists = _listed(origin.proto, sizes)
    arrays = {n: tuple(t.dims) for n, t in _held(origin.proto).items() if n not in lists}
    arrays |= {n: v.shape for n, v in origin.feeds.items()}
    for name, shape in arrays.items():
        for at, size in enumerate(shape):
            if size > 1 and name in sizes.known.shapes:
                root = sizes.root((name, at))
                weight[root] = weight.get(root, 0) + int(np.prod(shape, dtype=np.int64))
    for whole, parts in sizes.products:
        for axis in (whole, *parts):
            if sizes.of(axis) > 1 and axis not in sizes.fixed:
                weight.setdefault(sizes.root(axis), 0)
    return sorted(weight, key=lambda root: (-weight[root], root))


def _shrunk(origin: Specimen, sizes: Sizes, root: Axis, size: int) -> Specimen | None:
    new = sizes.changed(root, size)
    if new is None:
        return None

    def sliced(name: str, values: Array) -> Array:
        parts = tuple(
            slice(0, new.get(sizes.root((name, at)), old)) for at, old in enumerate(values.shape)
        )
        return np.ascontiguousarray(values[parts]).reshape(values[parts].shape)

    model = ModelProto()
    model.CopyFrom(origin.proto)
    held, lists = _held(model), _listed(model, sizes)
    for name in held.keys() - lists:
        tensor = held[name]
        values = numpy_helper.to_array(tensor)
        made = sliced(name, values)
        if made.shape != values.shape:
            replace_values(tensor, made)
    _lists(model, sizes, new, held)
    _attributes(model, sizes, new)
    feeds = {name: sliced(name, value) for name, value in origin.feeds.items()}
    return declared(origin, model, feeds, f"{_words(root)} became {size}")


def _listed(model: ModelProto, sizes: Sizes) -> set[str]:
    """Returns the constants that list sizes."""
    return {name for node in model.graph.node for name, _, _ in entries(sizes.known, node)}


def _lists(
    model: ModelProto, sizes: Sizes, new: Mapping[Axis, int], held: Mapping[str, TensorProto]
) -> None:
    for node in model.graph.node:
        for name, place, axis in entries(sizes.known, node):
            now = new.get(sizes.root(axis))
            if now is not None and sizes.known.values[name][place] == sizes.of(axis):
                values = numpy_helper.to_array(held[name]).copy()
                values.reshape(-1)[place] = now
                replace_values(held[name], values)


def _attributes(model: ModelProto, sizes: Sizes, new: Mapping[Axis, int]) -> None:
    for node in model.graph.node:
        groups = new.get((f"#{node.output[0]}", 0)) if node.output else None
        for attribute in node.attribute:
            if attribute.name == "group" and groups is not None:
                attribute.i = groups
            elif attribute.name == "split" and node.op_type == "Split":
                old = list(attribute.ints)
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                rank = len(sizes.known.shape(node.input[0])) or 1
                roots = [sizes.root((out, axis % rank)) for out in node.output]
                attribute.ints[:] = [new.get(r, o) for r, o in zip(roots, old, strict=True)]


def _words(root: Axis) -> str:
    name, at = root
    return f"the count of groups of '{name[1:]}'" if name[0] == "#" else f"axis {at} of '{name}'"
