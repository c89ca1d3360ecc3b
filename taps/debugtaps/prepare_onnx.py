"""``prepare`` for an ONNX model: inputs, and golden values from ONNX Runtime unoptimised."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import ReferenceFailed, TapError, UsageError
from debugtaps.feeds import InputSpec, Sample, load_inputs
from debugtaps.graph import Graph, TensorType, load_graph
from debugtaps.manifest import read_manifest
from debugtaps.plugins import boundaries, reference_functions
from debugtaps.preparation import Made, Request
from debugtaps.promotion import Tapped, promote_taps
from debugtaps.recompute import Recomputed, constant_value, recompute
from debugtaps.synthetic import random_inputs

__all__ = ["prepare_onnx"]

Array = npt.NDArray[Any]


def prepare_onnx(request: Request, staged: Path) -> Made:
    """Writes the ONNX model to ``staged`` and returns the rest."""
    graph = load_graph(request.model, staged.parent / "work")
    earlier = read_manifest(request.model)
    notes = _copy(request.model, staged)
    sample, warnings = _sample(request, graph)
    graph = graph.feeding(sample.feeds)
    manual = _manual(request, graph)
    found = boundaries(graph, request.plugin_ops) if request.plugin_taps else []
    functions = reference_functions(request.plugin_references)
    wanted = dict.fromkeys([*graph.outputs, *manual, *(b.tensor for b in found)])
    with Host(resolve("ort-reference")) as host:
        ran = recompute(graph, sample.feeds, list(wanted), host, functions=functions)
    have = {**sample.feeds, **ran.values}
    taps = {t.output for t in earlier.taps} if earlier is not None else set()
    outputs = _outputs(graph, have, ran, taps)
    tapped = [_tapped(graph, have, ran, t, t, "manual") for t in manual]
    for tap in tapped:
        if tap.value is None:
            raise TapError(f"--debug-taps {tap.name}: its value cannot be computed: {tap.reason}")
    tapped += [_tapped(graph, have, ran, b.name, b.tensor, "plugin") for b in found]
    manifest, values = promote_taps(staged, graph, tapped, {}, earlier=earlier)
    named = {t.output: t.name for t in earlier.taps} if earlier is not None else {}
    golden = {named.get(n, n): v for n, v in outputs.items()}
    return Made(sample.feeds, {**golden, **values}, manifest, (*notes, *warnings))


def _copy(source: Path, staged: Path) -> list[str]:
    """Copies a model; weights that lie outside go into one file beside the copy."""
    model = onnx.load_model(str(source), load_external_data=False)
    if not any(t.data_location == TensorProto.EXTERNAL for t in model.graph.initializer):
        staged.write_bytes(source.read_bytes())
        return []
    whole = onnx.load_model(str(source))
    weights = f"{staged.name}.data"
    onnx.save_model(whole, str(staged), save_as_external_data=True, location=weights)
    kept = staged.with_name(weights).is_file()
    return [f"the weights are in {weights}, beside the model"] if kept else []


def _sample(request: Request, graph: Graph) -> tuple[Sample, list[str]]:
    specs = [_spec(n, t, optional=False) for n, t in graph.inputs.items()]
    if not request.inputs:
        return random_inputs(specs, request.input_shapes or None, seed=request.seed)
    specs += [_spec(n, t, optional=True) for n, t in graph.overridable.items()]
    found = load_inputs(list(request.inputs), specs)
    if len(found) != 1:
        raise UsageError(f"prepare takes one sample of inputs, {len(found)} were given")
    return found[0], []


def _spec(name: str, kind: TensorType, *, optional: bool) -> InputSpec:
    dtype: np.dtype[Any] | Literal["string"] = "string"
    if kind.elem != TensorProto.STRING:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem))
    return InputSpec(name, dtype, kind.shape, optional)


def _manual(request: Request, graph: Graph) -> list[str]:
    """Returns the tensors that names stand for; an ONNX file has no marks."""
    if "all" in request.debug_taps:
        raise TapError(
            f"--debug-taps all: {request.model} is an ONNX file, which has no tap(x, name); name "
            "tensors of it"
        )
    known = [*graph.inputs, *graph.constants, *(t for n in graph.nodes for t in n.writes)]
    for name in request.debug_taps:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            guess = f"; did you mean {' or '.join(near)}?" if near else ""
            raise TapError(f"--debug-taps {name}: the model has no such tensor{guess}")
        if name in graph.untensors:
            raise TapError(f"--debug-taps {name}: it is a sequence or a map, no tensor")
    return list(dict.fromkeys(request.debug_taps))


def _outputs(
    graph: Graph, have: Mapping[str, Array], ran: Recomputed, optional: Collection[str]
) -> dict[str, Array]:
    found = {}
    for name in graph.outputs:
        if name in have:
            found[name] = have[name]
        elif name in graph.constants:
            found[name] = constant_value(graph, name)
        elif name not in graph.untensors and name not in optional:
            raise ReferenceFailed(
                f"output {name!r} has no reference value: {ran.missing.get(name, 'unknown')}; give "
                "--plugin-reference domain::Op=module:function for an operator of your own"
            )
    return found


def _tapped(
    graph: Graph,
    have: Mapping[str, Array],
    ran: Recomputed,
    name: str,
    tensor: str,
    kind: Literal["manual", "plugin"],
) -> Tapped:
    if tensor in have:
        origin = ran.origins.get(tensor, "onnxruntime")
        shown: Literal["onnxruntime", "torch-op"] = (
            "torch-op" if origin == "torch-op" else "onnxruntime"
        )
        return Tapped(name, tensor, kind, have[tensor], shown)
    if tensor in graph.constants:
        return Tapped(name, tensor, kind, constant_value(graph, tensor), "onnxruntime")
    reason = ran.missing.get(tensor, "no value was found")
    return Tapped(name, tensor, kind, None, "none", reason=reason)
