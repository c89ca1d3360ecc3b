"""Which axes of which tensors have one size, because operators tie them.

    x [4, 197, 768] ─ MatMul ─▶ h [4, 197, 3072]       4 = 4, 197 = 197: one class each
    W [768, 3072] ───┘                                 768 = W's rows, 3072 = W's columns

    q [4, 197, 768] ─ Reshape ─▶ [4, 197, 12, 64]      768 = 12 × 64: one size of two others

An axis is a tensor's name and a position.  What is tied is a guess where an operator is not
known: whoever changes a size tries whether the model still runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import onnx
from onnx import ModelProto, NodeProto, numpy_helper

from debugtaps import Array

__all__ = ["Axis", "Known", "Sizes", "integers", "known_shapes"]

Axis = tuple[str, int]
"""A tensor and one of its axes; a tensor ``#…`` stands for a size that only attributes hold."""

_LISTED = 64


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a model's tensors.

    Attributes:
        shapes: Sizes by tensor.
        values: Short constants of integers, by tensor.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, tuple[int, ...]]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a tensor's shape; empty when it is not known."""
        return self.shapes.get(name, ())

    def axes(self, name: str) -> list[Axis]:
        """Returns the axes of a tensor."""
        return [(name, at) for at in range(len(self.shape(name)))]


@dataclass
class Sizes:
    """Classes of axes of one size, and sizes that are products of others."""

    known: Known
    size: dict[Axis, int] = field(default_factory=dict)
    products: list[tuple[Axis, tuple[Axis, ...]]] = field(default_factory=list)
    fixed: set[Axis] = field(default_factory=set)
    _above: dict[Axis, Axis] = field(default_factory=dict)

    def root(self, axis: Axis) -> Axis:
        """Returns the axis that stands for a class."""
        while (above := self._above.get(axis, axis)) != axis:
            self._above[axis] = self._above.get(above, above)
            axis = above
        return axis

    def of(self, axis: Axis) -> int:
        """Returns the size of an axis."""
        name, at = axis
        if axis in self.size:
            return self.size[axis]
        shape = self.known.shape(name)
        return shape[at] if at < len(shape) else 0

    def named(self, name: str, size: int, *, fixed: bool = False) -> Axis:
        """Returns an axis that stands for a size which attributes hold, or none at all."""
        axis = (f"#{name}", 0)
        self.size[axis] = size
        if fixed:
            self.fixed.add(axis)
        return axis

    def tie(self, *axes: Axis) -> None:
        """Makes axes of equal size one class; others, and what is broadcast, are left alone."""
        first = axes[0]
        for other in axes[1:]:
            if self.of(first) == self.of(other) > 1:
                self._above[self.root(other)] = self.root(first)

    def multiply(self, whole: Axis, parts: Sequence[Axis]) -> None:
        """Notes that one size is the product of others."""
        if self.of(whole) == math.prod(self.of(part) for part in parts) > 1:
            self.products.append((whole, tuple(parts)))

    def align(self, names: Iterable[str]) -> None:
        """Ties axes as broadcasting does: counted from the last."""
        held = [self.known.axes(name)[::-1] for name in names]
        for axes in held[1:]:
            for a, b in zip(held[0], axes, strict=False):
                self.tie(a, b)

    def regroup(self, before: Sequence[Axis], after: Sequence[Axis]) -> None:
        """Ties the axes of a tensor before and after a change of its shape alone."""
        i = j = 0
        while i < len(before) and j < len(after):
            left, right = [before[i]], [after[j]]
            i, j = i + 1, j + 1
            while (a := self._size(left)) != (b := self._size(right)):
                if a < b and i < len(before):
                    left.append(before[i])
                    i += 1
                elif b < a and j < len(after):
                    right.append(after[j])
                    j += 1
                else:
                    return
            self._same(left, right)

    def _same(self, left: Sequence[Axis], right: Sequence[Axis]) -> None:
        left = [a for a in left if self.of(a) > 1]
        right = [a for a in right if self.of(a) > 1]
        if len(left) == 1 == len(right):
            self.tie(left[0], right[0])
        elif len(left) == 1:
            self.multiply(left[0], right)
        elif len(right) == 1:
            self.multiply(right[0], left)

    def _size(self, axes: Sequence[Axis]) -> int:
        return math.prod(self.of(axis) for axis in axes)

    def changed(self, axis: Axis, size: int) -> dict[Axis, int] | None:
        """Returns the new sizes of all classes when one becomes smaller.

        Returns:
            By root; ``None`` when no sizes fit together.
        """
        new = {self.root(axis): size}

        def now(each: Axis) -> int:
            return new.get(self.root(each), self.of(each))

        for _ in range(len(self.products) + 1):
            wrong = [p for p in self.products if now(p[0]) != math.prod(map(now, p[1]))]
            if not wrong:
                return new
            whole, parts = wrong[0]
            if any(self.root(part) in new for part in parts):
                if self.root(whole) in new:
                    return None
                new[self.root(whole)] = math.prod(map(now, parts))
                continue
            free = [p for p in parts if p not in self.fixed]
            if not free:
                return None
            largest = max(free, key=self.of)
            rest = math.prod(self.of(p) for p in parts if p is not largest)
            if now(whole) % rest:
                return None
            new[self.root(largest)] = now(whole) // rest
        return None


def known_shapes(model: ModelProto, feeds: Mapping[str, Array]) -> Known:
    """Returns the shapes that inference tells for what a model is fed."""
    told = ModelProto()
    told.CopyFrom(model)
    for value in told.graph.input:
        if value.name in feeds:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            dims.extend(
                onnx.TensorShapeProto.Dimension(dim_value=d) for d in feeds[value.name].shape
            )
    with suppress(Exception):  # an operator's own inference may refuse: less is known then
        told = onnx.shape_inference.infer_shapes(told, data_prop=True)
    shapes: dict[str, tuple[int, ...]] = {}
    for value in (*told.graph.input, *told.graph.value_info, *told.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
            shapes[value.name] = tuple(d.dim_value for d in kind.shape.dim)
    held = {t.name: t for t in model.graph.initializer}
    held |= {n.output[0]: n.attribute[0].t for n in model.graph.node if _holds(n)}
    shapes |= {name: tuple(t.dims) for name, t in held.items()}
    short = {n: t for n, t in held.items() if len(t.dims) <= 1 and math.prod(t.dims) <= _LISTED}
    values = {
        n: tuple(int(v) for v in numpy_helper.to_array(t).ravel())
        for n, t in short.items() if t.data_type in (6, 7)
    }  # fmt: skip
    return Known(shapes, values)


def _holds(node: NodeProto) -> bool:
    return node.op_type == "Constant" and node.attribute[0].HasField("t")


def integers(node: NodeProto, name: str) -> list[int]:
    """Returns an attribute of integers, or of one; empty when it is not there."""
    found = next((a for a in node.attribute if a.name == name), None)
    if found is None:
        return []
    return list(found.ints) or ([found.i] if found.type == onnx.AttributeProto.INT else [])
