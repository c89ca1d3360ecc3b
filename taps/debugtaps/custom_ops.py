"""Torch operators of the user's own: how they become nodes, and how such a node is computed.

An operator that was written with ``torch.library`` has no translation.  It gets one: a node in the
domain of its namespace, named as the operator, tensors as inputs, everything else as attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["call_operator", "operator_key", "own_operators", "translations_for", "used_operators"]

Array = npt.NDArray[Any]

_TORCH = frozenset(
    {
        "aten", "prim", "prims", "quantized", "symm_mem", "_quantized", "static_runtime", "c10d",
        "onednn", "quantized_decomposed", "_c10d_functional", "mkldnn", "c10d_functional",
        "streams", "sparse", "inductor", "profiler", "fsdp", "_test", "mkl", "onnx",
        "_c10d_functional_autograd", "onnx_symbolic", "mkldnn_prepacked", "_dtensor",
        "quantization", "debugprims", "rngprims", "flex_lib", "_native", "inductor_prims",
        "debug_mode_ops", "export", "_inductor_test", "higher_order", "debugtaps", "torchao",
        "dist_autograd", "xnnpack", "xpu", "mtia",
    }
)  # fmt: skip
_ELEMENTS = (
    "float", "float16", "bfloat16", "double", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "bool", "complex64", "complex128", "string",
)  # fmt: skip
_TYPES = {
    "int": int, "float": float, "bool": bool, "str": str, "SymInt": int, "number": float,
    "List[int]": Sequence[int], "List[float]": Sequence[float], "List[bool]": Sequence[int],
    "List[str]": Sequence[str], "List[SymInt]": Sequence[int], "ScalarType": int,
}  # fmt: skip


def operator_key(op: Any) -> str:
    """Returns ``domain::Op`` of the node that an operator becomes."""
    namespace, _, name = str(op._schema.name).partition("::")
    overload = op._schema.overload_name
    return f"{namespace}::{name}_{overload}" if overload else f"{namespace}::{name}"


def own_operators() -> list[Any]:
    """Returns the operators in this process that are not torch's."""
    import torch

    found = []
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if namespace in _TORCH or not name.isidentifier():
            continue
        packet = getattr(getattr(torch.ops, namespace), name, None)
        op = getattr(packet, overload or "default", None)
        if op is not None:
            found.append(op)
    return sorted(found, key=str)


def used_operators(program: Any) -> list[Any]:
    """Returns those of the user's own operators that an exported program calls, in order."""
    found: dict[Any, None] = {}
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            target = node.target
            if node.op == "call_function" and getattr(target, "namespace", "aten") not in _TORCH:
                found.setdefault(target)
    return list(found)


def translations_for(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a translation for each operator of the user's own that has none.

    Args:
        given: Translations of the user's; they win.
    """
    table = {_overload(op): function for op, function in given.items()}
    known = _registry()
    for op in own_operators():
        if op not in table and not known(op) and _describable(op):
            table[op] = _translation(op)
    return table


def _overload(op: Any) -> Any:
    default = getattr(op, "default", None)  # torch.ops.a.b names every overload of b
    inner = getattr(op, "_opoverload", None)  # what the decorator custom_op returns
    return inner if inner is not None else default if default is not None else op


def _registry() -> Callable[[Any], bool]:
    """Returns whether the exporter itself translates an operator."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        registry = ONNXRegistry.from_torchlib()
        return lambda op: bool(registry.is_registered(op))
    except (ImportError, AttributeError, TypeError):  # its place is private and may move
        return lambda op: False


def _kind(argument: Any) -> str:
    """Returns ``tensor``, or the name of a plain type, or nothing."""
    text = str(argument.type.getElementType() if _optional(argument) else argument.type)
    if text == "Tensor":
        return "tensor"
    return text if text in _TYPES else ""


def _describable(op: Any) -> bool:
    schema = op._schema
    results = all(str(r.type) == "Tensor" for r in schema.returns) and schema.returns
    return bool(results) and all(_kind(a) for a in schema.arguments) and not schema.is_mutable


def _translation(op: Any) -> Any:
    """Returns the function that emits an operator's node, in the form the exporter takes."""
    from onnxscript.values import Op, Opset

    schema = op._schema
    domain, _, name = operator_key(op).partition("::")
    node = Op(Opset(domain, 1), name, op_schema=_declaration(schema, domain, name))
    signature = _signature(schema)
    tensors = [a.name for a in schema.arguments if _kind(a) == "tensor"]
    plain = [a.name for a in schema.arguments if _kind(a) != "tensor"]

    def translate(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        inputs = [values[n] for n in tensors]
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = {n: _encoded(values[n]) for n in plain if values[n] is not None}
        return node(*inputs, **attributes)

    # The exporter reads names and kinds of arguments from the function.
    translate.__signature__ = signature  # type: ignore[attr-defined]
    translate.__name__ = name
    translate.__annotations__ = {
        p.name: p.annotation for p in signature.parameters.values() if p.annotation is not p.empty
    }
    return translate


def _declaration(schema: Any, domain: str, name: str) -> Any:
    from onnx.defs import OpSchema

    option = OpSchema.FormalParameterOption
    kinds = [f"tensor({element})" for element in _ELEMENTS]
    tensors = [a for a in schema.arguments if _kind(a) == "tensor"]
    inputs = [
        OpSchema.FormalParameter(
            a.name, f"T{i}", param_option=option.Optional if _optional(a) else option.Single
        )
        for i, a in enumerate(tensors)
    ]
    results = range(len(schema.returns))
    names = [*(f"T{i}" for i in range(len(tensors))), *(f"R{i}" for i in results)]
    return OpSchema(
        name,
        domain,
        1,
        inputs=inputs,
        outputs=[OpSchema.FormalParameter(f"out{i}", f"R{i}") for i in results],
        type_constraints=[(n, kinds, "") for n in names],
        attributes=[
            OpSchema.Attribute(a.name, _attribute(a), "", required=False)
            for a in schema.arguments
            if _kind(a) != "tensor"
        ],
    )


def _optional(argument: Any) -> bool:
    return str(argument.type).startswith("Opt")


def _attribute(argument: Any) -> Any:
    import onnx

    kind, types = _kind(argument), onnx.defs.OpSchema.AttrType
    several = kind.startswith("List[")
    inner = kind.removeprefix("List[").removesuffix("]")
    if inner in ("float", "number"):
        return types.FLOATS if several else types.FLOAT
    if inner == "str":
        return types.STRINGS if several else types.STRING
    return types.INTS if several else types.INT


def _signature(schema: Any) -> inspect.Signature:
    found = []
    for argument in schema.arguments:
        default = (
            argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        )
        kind = _kind(argument)
        optional = _optional(argument)
        annotation: Any = inspect.Parameter.empty if kind == "tensor" else _TYPES[kind]
        if optional and default is inspect.Parameter.empty:
            default = None
        if optional and kind != "tensor":
            annotation = annotation | None
        found.append(
            inspect.Parameter(
                argument.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default,
                annotation=annotation,
            )
        )
    return inspect.Signature(found)


def _encoded(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return [_encoded(v) for v in value]
    return value


def call_operator(op: Any, inputs: Sequence[Array | None], attributes: Mapping[str, Any]) -> Any:
    """Returns what a torch operator computes for a node's inputs and attributes.

    Args:
        op: The operator.
        inputs: In the order of its tensor arguments; ``None`` for one left out.
        attributes: By the name of the argument.
    """
    import torch

    from debugtaps.torch_arrays import from_numpy

    values, given = {}, list(inputs)
    for argument in op._schema.arguments:
        if _kind(argument) == "tensor":
            array = given.pop(0) if given else None
            values[argument.name] = None if array is None else from_numpy(np.asarray(array))
        elif argument.name in attributes:
            value = attributes[argument.name]
            boolean = _kind(argument) == "bool"
            values[argument.name] = bool(value) if boolean else value
    with torch.no_grad():
        return op(**values)
