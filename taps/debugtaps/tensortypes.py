"""What is known of tensors before anything runs: element type and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto

__all__ = ["TensorType", "infer_types", "type_of"]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type (a ``TensorProto`` number) and shape of a tensor; ``None`` where unknown."""

    elem: int
    shape: tuple[int | str | None, ...] | None = None

    @property
    def static(self) -> tuple[int, ...] | None:
        """Returns the shape when every dimension is a number."""
        if self.shape is None or not all(isinstance(d, int) for d in self.shape):
            return None
        return tuple(d for d in self.shape if isinstance(d, int))


def infer_types(
    model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[dict[str, TensorType], frozenset[str]]:
    """Returns the type of every tensor that inference can tell, and the names of non-tensors.

    Args:
        model: The whole model.
        shapes: Concrete shapes of graph inputs, to fix symbolic dimensions.
    """
    source = model
    if shapes:
        source = ModelProto()
        source.CopyFrom(model)
        for value in source.graph.input:
            if value.name in shapes:
                dims = value.type.tensor_type.shape
                dims.ClearField("dim")
                for size in shapes[value.name]:
                    dims.dim.add().dim_value = int(size)
    try:
        inferred = onnx.shape_inference.infer_shapes(source, data_prop=True)
    except Exception:  # an operator's own inference may refuse; what the file says remains
        inferred = source
    graph = inferred.graph
    types: dict[str, TensorType] = {}
    others: set[str] = set()
    for value in [*graph.input, *graph.value_info, *graph.output]:
        if value.type.HasField("tensor_type"):
            types[value.name] = type_of(value.type)
        elif value.type.WhichOneof("value") is not None:
            others.add(value.name)
    for tensor in graph.initializer:
        types[tensor.name] = TensorType(tensor.data_type, tuple(tensor.dims))
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            value = node.attribute[0].t
            types[node.output[0]] = TensorType(value.data_type, tuple(value.dims))
    return types, frozenset(others)


def type_of(proto: onnx.TypeProto) -> TensorType:
    """Returns the declared type of a tensor; element type 0 when it is none."""
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(tensor.elem_type, None)
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)  # exporters write -1
        else:
            dims.append(dim.dim_param if kind else None)
    return TensorType(tensor.elem_type, tuple(dims))
