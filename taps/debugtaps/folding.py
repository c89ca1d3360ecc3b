"""Fold what derives from constants, or from the shapes of inputs, into constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["fold", "freeze"]


def fold(model: onnx.ModelProto, *, most: int, shapes: bool = False) -> onnx.ModelProto | None:
    """Returns the model with its constants folded; None when there is nothing to fold.

    Args:
        model: Weights inside.
        most: Bytes up to which a folded constant may grow.
        shapes: Whether to look for shape arithmetic as well, which a glance does not show.
    """
    import onnx

    if not shapes and not _plain(model.graph):
        return None  # graphsurgeon would take its time to find out
    import onnx_graphsurgeon as gs

    try:
        with redirect_stdout(StringIO()):
            surgeon = gs.import_onnx(onnx.shape_inference.infer_shapes(model) if shapes else model)
            surgeon.fold_constants(size_threshold=most).cleanup()
            made = gs.export_onnx(surgeon)
    except Exception:  # an operator it cannot import: the model stays as it is
        return None
    if len(made.graph.node) == len(model.graph.node):
        return None
    kept = onnx.ModelProto()
    kept.CopyFrom(model)
    kept.graph.CopyFrom(made.graph)
    return kept


def _plain(graph: onnx.GraphProto) -> bool:
    """Returns whether an operator reads constants only."""
    fixed = {t.name for t in graph.initializer}
    fixed |= {n.output[0] for n in graph.node if n.op_type == "Constant"}
    return any(
        n.op_type != "Constant" and all(name in fixed or not name for name in n.input)
        for n in graph.node
    )


def freeze(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Returns a copy whose inputs have these shapes; what inference said before is forgotten."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in made.graph.input:
        if value.name in shapes:
            kind = value.type.tensor_type
            kind.ClearField("shape")
            for size in shapes[value.name]:
                kind.shape.dim.add().dim_value = int(size)
    del made.graph.value_info[:]
    return made
