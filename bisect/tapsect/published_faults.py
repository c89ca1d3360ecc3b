"""A published fault that current ONNX Runtime still has, as a small model for the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["LAYERNORM_KEEPDIMS0", "layernorm_keepdims0"]

LAYERNORM_KEEPDIMS0 = "microsoft/onnxruntime#30513"
"""LayerNormFusion ignores ``keepdims=0``; still so in ONNX Runtime 1.32."""


def layernorm_keepdims0(
    *, size: int = 12, seed: int = 0
) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]]]:
    """Returns a small network with a layer norm written with ``keepdims=0``, and its input.

    On a square input the variance of row j is broadcast over *column* j: legal, and not a layer
    norm.  The optimiser fuses the nine ``norm/…`` nodes into LayerNormalization all the same.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    weights = {
        "w0": rng.standard_normal((size, size)) / size**0.5,
        "w1": rng.standard_normal((size, 4)) / size**0.5,
        "scale": 1 + 0.1 * rng.standard_normal(size),
        "bias": 0.1 * rng.standard_normal(size),
        "two": np.array(2.0),
        "epsilon": np.array(1e-5),
    }
    rows: list[tuple[str, str, list[str], dict[str, Any]]] = [
        ("MatMul", "embed/MatMul", ["x", "w0"], {}),
        ("Tanh", "embed/Tanh", ["embed/MatMul"], {}),
        ("ReduceMean", "norm/ReduceMean", ["embed/Tanh"], {"axes": [-1], "keepdims": 0}),
        ("Sub", "norm/Sub", ["embed/Tanh", "norm/ReduceMean"], {}),
        ("Pow", "norm/Pow", ["norm/Sub", "two"], {}),
        ("ReduceMean", "norm/ReduceMean_1", ["norm/Pow"], {"axes": [-1], "keepdims": 0}),
        ("Add", "norm/Add", ["norm/ReduceMean_1", "epsilon"], {}),
        ("Sqrt", "norm/Sqrt", ["norm/Add"], {}),
        ("Div", "norm/Div", ["norm/Sub", "norm/Sqrt"], {}),
        ("Mul", "norm/Mul", ["norm/Div", "scale"], {}),
        ("Add", "norm/Add_1", ["norm/Mul", "bias"], {}),
        ("Relu", "head/Relu", ["norm/Add_1"], {}),
        ("MatMul", "head/MatMul", ["head/Relu", "w1"], {}),
        ("Softmax", "scores", ["head/MatMul"], {"axis": -1}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ins, [name], name=name, **attrs) for op, name, ins, attrs in rows],
        "layernorm_keepdims0",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [size, 4])],
        [
            numpy_helper.from_array(value.astype(np.float32), name)
            for name, value in weights.items()
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7, producer_name="tapsect"
    )
    return model, {"x": rng.standard_normal((size, size)).astype(np.float32)}
