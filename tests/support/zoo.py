"""The zoo: every model of the tests, by name.

``NETWORKS`` are whole networks, ``ODD`` carry one oddity each, ``OPSET_MODELS`` are the same
network as each opset from 7 to 24 writes it.  ``ZOO`` is all of them.  Builders are seeded: the
same call gives the same bytes.

``to_narrow`` gives a model in real fp16 or bf16 tensors; ``emulate`` one that computes in fp32
and rounds every tensor (``rounding_engine``), as a correct low-precision engine would.
"""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from support import zoo_networks, zoo_odd
from support.build import Array, Builder, Built, Net
from support.rounding_engine import emulate
from support.zoo_networks import (
    argmax_head,
    attention,
    branching,
    chain_cnn,
    control_flow,
    dynamic_shape,
    multi_output,
    qdq_int8,
    recurrent,
    residual,
    shared_weight,
    transformer,
    transformer_nodes,
    u_shaped,
)
from support.zoo_odd import (
    OPSETS,
    constant_nodes,
    contrib,
    disconnected_input,
    dropout_and_random,
    duplicate_names,
    empty_names,
    external_weights,
    initializer_inputs,
    initializer_outputs,
    local_function,
    missing_names,
    no_value_info,
    omitted_optional,
    opset,
    optional_values,
    scalar_and_empty,
    sequences,
    strange_tensor_names,
    strings,
    unused_outputs,
)

__all__ = [
    "NETWORKS",
    "ODD",
    "OPSETS",
    "OPSET_MODELS",
    "RANDOM",
    "ZOO",
    "Array",
    "Builder",
    "Built",
    "Net",
    "argmax_head",
    "attention",
    "branching",
    "chain_cnn",
    "constant_nodes",
    "contrib",
    "control_flow",
    "disconnected_input",
    "dropout_and_random",
    "duplicate_names",
    "dynamic_shape",
    "empty_names",
    "emulate",
    "external_weights",
    "initializer_inputs",
    "initializer_outputs",
    "local_function",
    "missing_names",
    "multi_output",
    "no_value_info",
    "omitted_optional",
    "opset",
    "optional_values",
    "qdq_int8",
    "recurrent",
    "residual",
    "scalar_and_empty",
    "sequences",
    "shared_weight",
    "strange_tensor_names",
    "strings",
    "to_float16",
    "to_narrow",
    "transformer",
    "transformer_nodes",
    "u_shaped",
    "unused_outputs",
]

NETWORKS: dict[str, Builder] = {
    name: getattr(zoo_networks, name)
    for name in zoo_networks.__all__
    if name != "transformer_nodes"
}
ODD: dict[str, Builder] = {
    name: getattr(zoo_odd, name)
    for name in zoo_odd.__all__
    if name not in ("OPSETS", "opset", "external_weights")
}
OPSET_MODELS: dict[str, Builder] = {f"opset{v}": partial(opset, v) for v in OPSETS}
ZOO: dict[str, Builder] = {**NETWORKS, **ODD, **OPSET_MODELS}
RANDOM = frozenset({"dropout_and_random"})
"""Models that hold random operators: equal seeds, yet no promise of equal bits."""

_SAVED_TYPES = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_STAY_FLOAT = {
    "Resize": (1, 2),
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "Range": (0, 1, 2),
}


def to_float16(built: Built) -> Built:
    """Returns the model with fp16 inputs, weights and tensors."""
    return to_narrow(built, "fp16")


def to_narrow(built: Built, precision: str) -> Built:
    """Returns the model in real ``fp16`` or ``bf16`` tensors: inputs, weights, casts, outputs.

    Inputs that ONNX wants in fp32 (Resize scales) stay.  ONNX Runtime's CPU provider runs fp16
    by casting around kernels it lacks; for bf16 it has few kernels and refuses most models.
    """
    kind = _SAVED_TYPES[precision]
    narrow = np.dtype(np.float16) if precision == "fp16" else np.dtype(ml_dtypes.bfloat16)
    model = onnx.ModelProto()
    model.CopyFrom(built.model)
    graph = model.graph
    wide = {
        node.input[at]
        for node in graph.node
        for at in _STAY_FLOAT.get(node.op_type, ())
        if at < len(node.input)
    }
    _narrow_graph(graph, kind, narrow, wide)
    del graph.value_info[:]
    feeds = {k: v.astype(narrow) if v.dtype == np.float32 else v for k, v in built.feeds.items()}
    return Built(onnx.shape_inference.infer_shapes(model), feeds)


def _narrow_graph(
    graph: onnx.GraphProto, kind: int, narrow: np.dtype[np.generic], wide: set[str]
) -> None:
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in wide:
            _narrow_tensor(tensor, narrow)
    for info in [*graph.input, *graph.output, *graph.value_info]:
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = kind
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                _narrow_graph(attribute.g, kind, narrow, wide)
            elif attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
            elif attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT:
                _narrow_tensor(attribute.t, narrow)


def _narrow_tensor(tensor: onnx.TensorProto, narrow: np.dtype[np.generic]) -> None:
    with np.errstate(over="ignore"):  # a mask of -1e9 becomes -inf, as converters have it
        values = numpy_helper.to_array(tensor).astype(narrow)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
