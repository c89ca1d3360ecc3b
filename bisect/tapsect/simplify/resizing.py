"""What every change of sizes needs: which sizes to try, and the sizes that a model declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import onnx
from onnx import ModelProto, TensorProto

from debugtaps import Array
from tapsect.simplify.specimen import Specimen, changed, constants

__all__ = ["declared", "retyped", "smaller"]


def smaller(size: int) -> list[int]:
    """Returns the sizes to try in place of one, the smallest first."""
    return [s for s in dict.fromkeys((1, 2, size // 2)) if 0 < s < size]


def declared(
    origin: Specimen, model: ModelProto, feeds: dict[str, Array], why: str
) -> Specimen | None:
    """Returns the model with its new sizes declared; dimensions that were not fixed stay so.

    Returns:
        ``None`` when no size of an input or a constant changed.
    """
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
    retyped(model)
    return changed(origin, model, why, feeds)


def retyped(model: ModelProto, *, keep_ranks: bool = True) -> None:
    """Declares, in place, what shape inference says of the outputs, and nothing of the middle.

    Args:
        model: The model.
        keep_ranks: Whether outputs of which it says nothing have as many dimensions as before.
    """
    del model.graph.value_info[:]
    ranks = [len(value.type.tensor_type.shape.dim) for value in model.graph.output]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    with suppress(Exception):  # an operator's own inference may refuse: engines ask the run
        told = onnx.shape_inference.infer_shapes(model)
        for value, known in zip(model.graph.output, told.graph.output, strict=True):
            value.CopyFrom(known)
    for value, rank in zip(model.graph.output, ranks, strict=True):
        kind = value.type.tensor_type
        if keep_ranks and value.type.HasField("tensor_type") and not kind.HasField("shape"):
            kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(rank))


def _dims(model: ModelProto) -> Iterator[tuple[tuple[int, ...], bytes]]:
    for tensor in constants(model):
        listed = tensor.data_type == TensorProto.INT64 and len(tensor.dims) <= 1
        yield tuple(tensor.dims), tensor.SerializeToString() if listed else b""
