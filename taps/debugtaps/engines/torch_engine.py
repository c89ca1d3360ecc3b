"""torch, eager, over an ONNX file that onnx2fx turns into a module.

Python 3.8 syntax, numpy, torch, onnx and onnx2fx only: the worker loads this file under any
interpreter.  onnx2fx 0.0.1 wants Python 3.11 and torch 2.9.  Taps are further outputs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.inliner
import onnx2fx
import torch
from onnx import numpy_helper
from onnx2fx.graph_builder import GraphBuilder

ROUNDOFF = {torch.float64: 2.0**-53, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
NAMES = {"DOUBLE": "float64", "FLOAT": "float32", "FLOAT16": "float16", "BFLOAT16": "bfloat16"}
TF32 = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
KINDS = {onnx_name: getattr(torch, name) for onnx_name, name in NAMES.items()}
# What onnx2fx 0.0.1 takes and answers wrongly, by the node tests that come with onnx.
UNFAITHFUL = (
    "Attention", "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "EyeLike",
    "QLinearConv", "QLinearMatMul", "QuantizeLinear", "SoftmaxCrossEntropyLoss",
)  # fmt: skip
FAITHFUL: dict[tuple[str, str], tuple[Any, ...]] = {
    ("BatchNormalization", "training_mode"): (0,),
    ("Pad", "mode"): (b"constant", b"reflect", b"edge"),
    ("Resize", "antialias"): (0,),
    ("Resize", "cubic_coeff_a"): (-0.75,),
    ("Resize", "exclude_outside"): (0,),
    ("SpaceToDepth", "mode"): (b"DCR",),
}
RESIZES = (b"half_pixel", b"pytorch_half_pixel", b"align_corners")


def to_torch(array: Any) -> Any:
    """Returns an array as a tensor of the same type; types that numpy lacks go by their bits."""
    array = np.array(array, copy=True, order="C")
    name = array.dtype.names[0] if array.dtype.names else array.dtype.name
    kind = getattr(torch, name, None)
    if kind is None or array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)  # raises TypeError where torch has no such type
    bits = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
    return torch.from_numpy(array.view(bits)).view(kind)


def to_numpy(value: Any) -> Any:
    """Returns what the module gave as arrays; sequences stay lists, an absent value None."""
    if isinstance(value, (list, tuple)):
        return [to_numpy(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value if value is None else np.asarray(value)
    value = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
    kind = getattr(ml_dtypes, str(value.dtype).replace("torch.", ""), None)
    if kind is None:
        return np.array(value.numpy(), copy=True)
    bits = {1: torch.uint8, 2: torch.int16}[value.element_size()]
    return np.array(value.view(bits).numpy(), copy=True).view(kind)


class _Builder(GraphBuilder):  # type: ignore[misc]  # onnx2fx has no types
    def load_tensor(self, tensor: Any) -> Any:
        """Returns a constant; the library's own way cannot take what numpy lacks."""
        return to_torch(numpy_helper.to_array(tensor))


def _rename(graph: Any, names: dict[str, str]) -> None:
    """Gives every tensor an identifier for a name: onnx2fx makes ``a.b`` and ``a_b`` one."""

    def new(name: str) -> str:
        return names.setdefault(name, f"t{len(names)}") if name else name

    for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        value.name = new(value.name)
    for node in graph.node:
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                _rename(inner, names)


def _refuse(graph: Any) -> None:
    """Raises for a node that onnx2fx is known to translate into something else."""
    for node in graph.node:
        told = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        odd = [n for n, v in told.items() if v not in FAITHFUL.get((node.op_type, n), (v,))]
        if node.op_type == "Resize" and not _as_torch_resizes(told):
            odd.append("mode")
        if node.domain in ("", "ai.onnx") and (odd or node.op_type in UNFAITHFUL):
            what = node.op_type + "".join(f" with this {name}" for name in odd[:1])
            raise NotImplementedError(f"node {node.name!r}: {what} is not supported by onnx2fx")
        for inner in told.values():
            if isinstance(inner, onnx.GraphProto):
                _refuse(inner)


def _as_torch_resizes(told: Mapping[str, Any]) -> bool:
    how = told.get("coordinate_transformation_mode", b"half_pixel")
    nearest = how == b"asymmetric" and told.get("nearest_mode") == b"floor"
    return nearest if told.get("mode", b"nearest") == b"nearest" else how in RESIZES


class FxModel:
    """An ONNX model as an fx module, and what ONNX calls its parts."""

    def __init__(self, path: Path, dtype: Any) -> None:
        model = onnx.inliner.inline_local_functions(onnx.load(str(path)))
        given = {each.name for each in model.graph.initializer}
        self.inputs = [each.name for each in model.graph.input if each.name not in given]
        self.outputs = [each.name for each in model.graph.output]
        takes = {each.name for each in model.graph.input} & given
        self.constants = {each.name: each for each in model.graph.initializer if each.name in takes}
        self.constants = {n: numpy_helper.to_array(c) for n, c in self.constants.items()}
        self.kinds = [_kind(each) for each in model.graph.output]
        _refuse(model.graph)
        _rename(model.graph, {})
        self.fx = _built(model)
        for node, origin in _origins(self.fx.graph):
            node.meta["stack_trace"] = origin  # the one mark that survives into kernels
        if dtype is not None:
            _narrow(self.fx, dtype)


def _built(model: Any) -> Any:
    try:
        return _Builder(model).build().eval()
    except Exception as error:
        text = f"not supported by onnx2fx {onnx2fx.__version__}: {type(error).__name__}: {error}"
        raise NotImplementedError(text) from error


def _kind(value: Any) -> Any:
    """Returns the float type that an output is declared with, None when it is none."""
    return KINDS.get(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))


def _origins(graph: Any) -> Iterator[tuple[Any, str]]:
    """Yields fx node and ONNX node; what an operator made on its way belongs to it."""
    waiting: list[Any] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        waiting.append(node)
        if "onnx_name" in node.meta:
            yield from ((each, node.meta["onnx_name"]) for each in waiting)
            waiting.clear()


def _narrow(module: Any, dtype: Any) -> None:
    """Makes every float32 of a module another type: weights, and the casts it writes."""
    module.to(dtype)
    swap = {torch.float32: dtype}
    for node in module.graph.nodes:
        node.args = tuple(swap.get(a, a) if isinstance(a, torch.dtype) else a for a in node.args)
    module.recompile()


class TorchSession:
    """A module on a device."""

    def __init__(self, engine: TorchEngine, module: FxModel) -> None:
        self.engine = engine
        self.module: Any = module
        module.fx.to(engine.device)

    def call(self, *values: Any) -> Any:
        """Runs the module operator by operator."""
        with self.engine.device:  # what the module makes on its way, as shapes, is made there, too
            return self.module.fx(*values)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Returns every output under its ONNX name."""
        module, engine = self.module, self.engine
        lacking = [name for name in module.inputs if name not in feeds]
        if lacking:
            raise ValueError(f"no value for input {', '.join(map(repr, lacking))}")
        for name, value in module.constants.items():
            if name in feeds and not np.array_equal(feeds[name], value):
                raise ValueError(f"input {name!r} is a constant here; torch takes no other value")
        values = [engine.fed(feeds[name]) for name in module.inputs]
        with engine.setting():
            found = self.call(*values)
        results = [found] if len(module.outputs) == 1 else found
        if engine.coarse is not None:
            results = [_declared(value, kind) for value, kind in zip(results, module.kinds)]  # noqa: B905
        return {name: to_numpy(value) for name, value in zip(module.outputs, results)}  # noqa: B905

    def close(self) -> None:
        """Frees the module, whose parts hold one another."""
        self.module = None
        gc.collect()
        if self.engine.device.type == "cuda":
            torch.cuda.empty_cache()


def _declared(value: Any, kind: Any) -> Any:
    """Returns an output in the type the model declares: only the arithmetic was asked coarser."""
    if kind is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.to(kind)


class TorchEngine:
    """torch, operator by operator.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:1`` … as torch names them.
        dtype: Every float32 of the model becomes this type: float64, float16, bfloat16.
        autocast: ``torch.autocast`` with this type: float16, bfloat16.
        allow_tf32: Whether CUDA's matrix products and convolutions may compute in TF32; torch's
            own defaults (convolutions may) when not given.
    """

    def __init__(
        self,
        device: str = "cpu",
        dtype: str | None = None,
        autocast: str | None = None,
        allow_tf32: bool | None = None,  # noqa: FBT001 - options come by name
    ) -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"no device {device!r}: this torch sees no CUDA GPU; it has cpu")
        self.dtype, self.autocast = _named("dtype", dtype), _named("autocast", autocast)
        if self.dtype is not None and self.autocast is not None:
            raise ValueError("dtype and autocast are given; a model takes one of them")
        self.coarse = self.dtype or self.autocast
        products, convolutions = TF32 if allow_tf32 is None else (allow_tf32, allow_tf32)
        torch.backends.cuda.matmul.allow_tf32 = bool(products)
        torch.backends.cudnn.allow_tf32 = bool(convolutions)

    @property
    def tf32(self) -> dict[str, bool]:
        """Returns what may compute in TF32."""
        if self.device.type != "cuda":
            return {}
        both = {"matmul": torch.backends.cuda.matmul, "cudnn": torch.backends.cudnn}
        return {name: bool(backend.allow_tf32) for name, backend in both.items()}

    @property
    def unit_roundoff(self) -> float | None:
        """Returns u of what was asked for; TF32 is for contractions only, and found by itself."""
        if self.coarse is None and any(self.tf32.values()):
            return None
        return ROUNDOFF.get(self.coarse, 2.0**-24)

    def describe(self) -> dict[str, Any]:
        """Returns name, versions, device and precision."""
        cuda = self.device.type == "cuda"
        return {
            "name": "torch",
            "versions": {
                "torch": torch.__version__,
                "onnx2fx": onnx2fx.__version__,
                "numpy": np.__version__,
                **({"cuda": torch.version.cuda} if cuda else {}),
            },
            "device": torch.cuda.get_device_name(self.device) if cuda else str(self.device),
            "precision": str(self.coarse or torch.float32).replace("torch.", ""),
            **({"allow_tf32": self.tf32} if cuda else {}),
        }

    def knobs(self) -> dict[str, list[Any]]:
        """Returns the settings that can be turned one by one."""
        return {"allow_tf32": [False]} if self.device.type == "cuda" else {}

    def fed(self, array: Any) -> Any:
        """Returns an input as a tensor on the device; a sequence as a list of them."""
        if isinstance(array, (list, tuple)):
            return [self.fed(each) for each in array]
        value = to_torch(np.asarray(array)).to(self.device)
        return value.to(self.dtype) if self.dtype and value.dtype == torch.float32 else value

    @contextlib.contextmanager
    def setting(self) -> Iterator[None]:
        """Holds what a run needs: no gradients, autocast when asked."""
        with torch.no_grad(), contextlib.ExitStack() as stack:
            if self.autocast is not None:
                stack.enter_context(torch.autocast(self.device.type, self.autocast))
            yield

    def build(self, model: Path, taps: Sequence[str] = ()) -> TorchSession:
        """Converts an ONNX file; taps are outputs of it already."""
        return TorchSession(self, FxModel(model, self.dtype))


def _named(option: str, name: str | None) -> Any:
    if name is None or name in NAMES.values():
        return None if name is None else getattr(torch, name)
    raise ValueError(f"{option} is {name!r}; it takes {', '.join(NAMES.values())}")
