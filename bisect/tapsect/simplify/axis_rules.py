"""Which axes each operator ties: one function an operator, one row of ``_RULES`` each.

An operator without a row ties what broadcasting would: axes of one size, counted from the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import ModelProto, NodeProto

from tapsect.simplify.axes import Axis, Known, Sizes, integers

__all__ = ["entries", "tied"]

# Operators whose input, at that position, lists the sizes of what they make.
_LISTED_AT = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}


def tied(model: ModelProto, known: Known) -> Sizes:
    """Returns the classes of a model's axes; bodies of control flow are not looked into."""
    sizes = Sizes(known)
    for node in model.graph.node:
        _RULES.get(node.op_type, _broadcast)(sizes, node)
        for name, place, axis in entries(known, node):
            # Who reads one list gets the same sizes from it.
            sizes.tie(sizes.named(f"{name}[{place}]", known.values[name][place]), axis)
    return sizes


def entries(known: Known, node: NodeProto) -> Iterator[tuple[str, int, Axis]]:
    """Yields the list, the place in it, and the axis that an entry gives a size to."""
    axes = known.axes(node.output[0]) if node.output else []
    if node.op_type == "Split" and len(node.input) > 1 and known.shape(node.input[0]):
        name = node.input[1]
        at = (integers(node, "axis") or [0])[0] % len(known.shape(node.input[0]))
        axes = [(out, at) for out in node.output if known.shape(out)]
    elif (where := _LISTED_AT.get(node.op_type)) is not None and where < len(node.input):
        name = node.input[where]
    else:
        return
    listed = known.values.get(name, ())
    if len(listed) <= len(axes):
        yield from ((name, i, axis) for i, axis in enumerate(axes[len(axes) - len(listed) :]))


def _broadcast(sizes: Sizes, node: NodeProto) -> None:
    # The output first: each input has its axes or fewer.
    sizes.align([*node.output, *(name for name in node.input if name)])


def _matmul(sizes: Sizes, node: NodeProto) -> None:
    a, b, y = (sizes.known.axes(name) for name in (*node.input[:2], node.output[0]))
    if len(a) < 2 or len(b) < 2 or not y:
        return
    sizes.tie(a[-1], b[-2])
    sizes.tie(y[-2], a[-2])
    sizes.tie(y[-1], b[-1])
    for batch in (a[:-2], b[:-2]):
        for left, right in zip(reversed(y[:-2]), reversed(batch), strict=False):
            sizes.tie(left, right)


def _gemm(sizes: Sizes, node: NodeProto) -> None:
    a, b, y = (sizes.known.axes(name) for name in (*node.input[:2], node.output[0]))
    if len(a) != 2 or len(b) != 2 or len(y) != 2:
        return
    a = a[::-1] if integers(node, "transA") == [1] else a
    b = b[::-1] if integers(node, "transB") == [1] else b
    sizes.tie(a[1], b[0])
    sizes.tie(y[0], a[0])
    sizes.tie(y[1], b[1])
    if len(node.input) > 2:
        sizes.align([node.output[0], node.input[2]])


def _conv(sizes: Sizes, node: NodeProto) -> None:
    x, w, y = (sizes.known.axes(name) for name in (*node.input[:2], node.output[0]))
    if len(x) < 3 or len(w) != len(x) or len(y) != len(x):
        return
    (group,) = integers(node, "group") or [1]
    inner, outer = (w[1], w[0]) if node.op_type != "ConvTranspose" else (w[0], w[1])
    sizes.align([node.output[0], node.input[0]])  # spatial axes that keep their size, and batch
    bias = sizes.known.axes(node.input[2])[:1] if len(node.input) > 2 else []
    sizes.tie(y[1], *bias)
    if group == 1:
        sizes.tie(x[1], inner)
        sizes.tie(y[1], outer)
    elif node.op_type == "Conv":
        groups = sizes.named(node.output[0], group)
        each = sizes.named(f"{node.output[0]}/each", sizes.of(y[1]) // group)
        sizes.multiply(x[1], (groups, inner))
        sizes.multiply(y[1], (groups, each))
        sizes.tie(y[1], outer)


def _channels(sizes: Sizes, node: NodeProto) -> None:
    """Ties one value a channel: scales, means, slopes."""
    sizes.align([node.output[0], node.input[0]])
    x = sizes.known.axes(node.input[0])
    for name in node.input[1:]:
        axes = sizes.known.axes(name)
        if len(x) > 1 and axes:
            sizes.tie(x[1], axes[0])


def _transpose(sizes: Sizes, node: NodeProto) -> None:
    x, y = (sizes.known.axes(name) for name in (node.input[0], node.output[0]))
    order = integers(node, "perm") or list(range(len(x)))[::-1]
    if len(order) == len(x) == len(y):
        for at, source in enumerate(order):
            sizes.tie(y[at], x[source])


def _reshape(sizes: Sizes, node: NodeProto) -> None:
    sizes.regroup(sizes.known.axes(node.input[0]), sizes.known.axes(node.output[0]))


def _reduce(sizes: Sizes, node: NodeProto) -> None:
    x, y = (sizes.known.axes(name) for name in (node.input[0], node.output[0]))
    if len(x) == len(y):
        sizes.align([node.output[0], node.input[0]])
        return
    gone = integers(node, "axes") or integers(node, "axis")
    if not gone and len(node.input) > 1:
        gone = list(sizes.known.values.get(node.input[1], ()))
    kept = [axis for at, axis in enumerate(x) if at not in {a % len(x) for a in gone}]
    if len(kept) == len(y):
        for a, b in zip(kept, y, strict=True):
            sizes.tie(a, b)


def _gather(sizes: Sizes, node: NodeProto) -> None:
    data, at, y = (sizes.known.axes(name) for name in (*node.input[:2], node.output[0]))
    if not data or len(y) != len(data) + len(at) - 1:
        return
    axis = (integers(node, "axis") or [0])[0] % len(data)
    for a, b in zip(y, [*data[:axis], *at, *data[axis + 1 :]], strict=True):
        sizes.tie(a, b)


def _joined(sizes: Sizes, node: NodeProto) -> None:
    """Ties what is joined to, or split from, a whole of as many equal parts."""
    split = node.op_type == "Split"
    whole = sizes.known.axes(node.input[0] if split else node.output[0])
    parts = [sizes.known.axes(name) for name in (node.output if split else node.input)]
    if not whole or any(len(part) != len(whole) for part in parts):
        return
    axis = (integers(node, "axis") or [0])[0] % len(whole)
    for part in parts:
        for at, each in enumerate(part):
            sizes.tie(whole[at] if at != axis else parts[0][axis], each)
    if len({sizes.of(part[axis]) for part in parts}) == 1:
        count = sizes.named(f"{node.output[0]}/parts", len(parts), fixed=True)
        sizes.multiply(whole[axis], (count, parts[0][axis]))


Rule = Callable[[Sizes, NodeProto], None]
_RULES: dict[str, Rule] = {
    "MatMul": _matmul, "Gemm": _gemm,
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "PRelu"), _channels),
    "Transpose": _transpose,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
         "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin"),
        _reduce,
    ),
    "Gather": _gather,
    **dict.fromkeys(("Concat", "Split"), _joined),
}  # fmt: skip
