"""From an ONNX file to a parsed TensorRT network, each layer named after its ONNX node.

Works on the module it is given (``tensorrt`` or ``tensorrt_rtx``) and imports none.  Numeric
enum values changed between versions, so that every name is looked up, never written as a number.
Python 3.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from debugtaps.engines.trt import log as trt_log
from debugtaps.engines.trt import plan as trt_plan
from debugtaps.engines.trt.log import Line, NotTaken, TensorRtError
from debugtaps.engines.trt.model import Operators, read_operators, tag_layers
from debugtaps.engines.trt.settings import BadOption, Settings

__all__ = ["Network", "kept_precision", "parse"]

FLOAT_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
               "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}  # fmt: skip
_SHORT = {"FLOAT": "f32", "HALF": "f16", "BF16": "bf16"}


class Network(NamedTuple):
    """A parsed network and what keeps it alive.

    Attributes:
        names: What odd node names in the plan stand for.
        layers: The ONNX node of each layer.
        asked: The type each contraction is to compute in, by node.
    """

    builder: Any
    network: Any
    parser: Any
    names: Mapping[str, str]
    layers: Mapping[str, str]
    asked: Mapping[str, str]


def _refuse(parser: Any, operators: Operators, settings: Settings, *, rtx: bool) -> None:
    """Refuses what TensorRT would answer with an abort, or with values nobody can judge."""
    if rtx:
        for node in operators.custom():
            # A plugin creator that is registered for it aborts the process inside the parser.
            if not parser.supports_operator(node.op):
                raise NotTaken(
                    "unsupported operator: node '%s' is %s of the domain '%s'; "
                    "TensorRT-RTX takes no plugins" % (node.known_as, node.op, node.domain)
                )
    ops = {node.op for node in operators.nodes}
    if "INT8" in settings.flags and not ops & {"QuantizeLinear", "DequantizeLinear"}:
        raise BadOption(
            "INT8 of a model without QuantizeLinear needs calibration, whose step of amax/254 "
            "no floor here knows; give the quantised model"
        )


def parse(
    trt: Any, logger: Any, model: Path, settings: Settings, lines: Sequence[Line], *, rtx: bool
) -> Network:
    """Returns the network of an ONNX file.

    Raises:
        TensorRtError: It was not parsed; the message names node and reason.
        BadOption: Typing or precision cannot be as asked.
    """
    data = Path(model).read_bytes()
    operators = read_operators(data)
    builder = trt.Builder(logger)
    flags = 0
    if settings.strongly_typed:
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    elif not hasattr(trt.ILayer, "set_output_type"):
        raise BadOption("strongly_typed=false needs TensorRT 10; types are those of the model here")
    network = builder.create_network(flags)
    if network is None:  # an empty network is false, too
        raise TensorRtError("create_network gave none: %s" % _last(lines))
    parser = trt.OnnxParser(network, logger)
    _refuse(parser, operators, settings, rtx=rtx)
    parsed = parser.parse(data, str(model))
    if not parsed or network.num_outputs == 0:
        raise trt_log.parse_failure(_parser_errors(parser), lines, _parser_names(operators))
    names = tag_layers(network, operators)
    layers, asked = _layers(trt, network, names)
    for name, kind in settings.layer_precisions.items():
        _hold(trt, network, layers, name, kind)
    return Network(builder, network, parser, names, layers, asked)


def _last(lines: Sequence[Line]) -> str:
    errors = trt_log.errors_of(lines)
    return errors[-1] if errors else "it logged no error"


def _parser_names(operators: Operators) -> Dict[str, str]:
    """Returns the nodes of the main graph by what the parser calls them, or what they hold."""
    found = {}
    for node in operators.nodes:
        for each in node.everything():
            found[each.name or "node_of_" + each.first] = node.known_as
    found.update({node.name: node.name for node in operators.nodes if node.name})
    return found


def _parser_errors(parser: Any) -> List[Dict[str, Any]]:
    found = []
    for number in range(parser.num_errors):
        error = parser.get_error(number)
        code = getattr(error.code(), "name", str(error.code()))
        found.append(
            {"code": code, "desc": error.desc(), "name": error.node_name(),
             "op": error.node_operator()}
        )  # fmt: skip
    return found


def _layers(
    trt: Any, network: Any, names: Mapping[str, str]
) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Returns the ONNX node of each layer, and what each contraction is to compute in."""
    contractions = {
        getattr(trt.LayerType, name)
        for name in ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY")
        if hasattr(trt.LayerType, name)
    }
    layers, asked = {}, {}
    for layer in network:
        shown = layer.metadata[len("[ONNX Layer: ") : -1] if layer.metadata else ""
        node = names.get(shown, shown)
        layers[layer.name] = node
        if node and layer.type in contractions:
            kind = _SHORT.get(getattr(layer.get_output(0).dtype, "name", ""))
            if kind is not None:
                asked[node] = kind
    return layers, asked


def _hold(trt: Any, network: Any, layers: Mapping[str, str], name: str, kind: str) -> None:
    """Asks for a node's precision, where types are weak."""
    if not hasattr(trt.ILayer, "set_output_type"):
        raise BadOption("layer_precisions needs TensorRT 10 and strongly_typed=false")
    if kind not in FLOAT_TYPES:
        raise BadOption("layer_precisions: %r is none of fp32, fp16, bf16" % kind)
    if name not in layers.values():
        raise BadOption("layer_precisions: the model has no node %r" % name)
    dtype = getattr(trt, FLOAT_TYPES[kind])
    floats = [getattr(trt, each) for each in set(FLOAT_TYPES.values()) if hasattr(trt, each)]
    for layer in network:
        if layers[layer.name] != name or layer.type == trt.LayerType.CONSTANT:
            continue
        outputs = [layer.get_output(number) for number in range(layer.num_outputs)]
        if any(tensor.dtype in floats and not tensor.is_shape_tensor for tensor in outputs):
            layer.precision = dtype
        for number, tensor in enumerate(outputs):
            if tensor.dtype in floats and not tensor.is_shape_tensor:
                layer.set_output_type(number, dtype)


def kept_precision(made: Network, plan: Sequence[trt_plan.Kernel]) -> List[str]:
    """Returns, as sentences, where a plan computes in less than the network asks for."""
    seen = trt_plan.lowered(plan, made.asked)
    return [
        "node '%s' was to compute in %s, and the plan computes it in %s"
        % (name, made.asked[name], kind)
        for name, kind in sorted(seen.items())
    ]
