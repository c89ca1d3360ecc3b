"""inductor, the compiler of torch, over an ONNX file that onnx2fx turns into a module.

Python 3.8 syntax, numpy, torch, onnx and onnx2fx only.  The module is traced at the shapes of a
run, so that what follows from shapes is constant and the whole model one graph, and compiled there.

Taps are further outputs: inductor ends a fused kernel there, or has it store one value more.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from debugtaps.engines.torch_engine import FxModel, TorchEngine, TorchSession
else:
    try:
        from debugtaps.engines.torch_engine import FxModel, TorchEngine, TorchSession
    except ImportError:  # another interpreter, which is told of the file and lacks the package
        _beside = runpy.run_path(str(Path(__file__).with_name("torch_engine.py")))
        FxModel, TorchEngine, TorchSession = (
            _beside[name] for name in ("FxModel", "TorchEngine", "TorchSession")
        )

PROVENANCE = "trace.provenance_tracking_level"

# What inductor may do or leave that changes numbers; torch's own names.
KNOBS: dict[str, list[Any]] = {
    "emulate_precision_casts": [True],
    "epilogue_fusion": [False],
    "pattern_matcher": [False],
    "max_fusion_size": [1],
    "split_reductions": [False],
    "layout_optimization": [False],
    "comprehensive_padding": [False],
    "shape_padding": [False],
    "cpp.simdlen": [1],
    "cpp.enable_floating_point_contract_flag": ["off"],
    "triton.persistent_reductions": [False],
    "triton.codegen_upcast_to_fp32": [True],
}


# Operators whose inputs after the first, or whose only one, say which shape comes out.
SHAPING = ("Reshape", "Expand", "Slice", "Tile", "ConstantOfShape")
_DECIDES = "not supported by inductor: a computed value decides what is computed next"


def _frozen(node: Any) -> bool:
    """Returns whether an input is read as a shape only: it is compiled for its value, too."""
    kinds = [(each, each.meta.get("onnx_op_type", "")) for each in node.users]
    shaping = [k in SHAPING and (k == SHAPING[-1] or e.args[0] is not node) for e, k in kinds]
    return node.op == "placeholder" and bool(shaping) and all(shaping)


def _data(graph: Any) -> set[Any]:
    """Returns the nodes whose values follow from those of the inputs, not from their shapes."""
    found: set[Any] = set()
    for node in graph.nodes:
        if _frozen(node):
            continue
        kind = node.meta.get("onnx_op_type", "")
        source = node.op in ("placeholder", "output") or kind.startswith("Random")
        if source or (kind not in ("Shape", "Size") and found.intersection(node.all_input_nodes)):
            found.add(node)
    return found


class _Values(torch.fx.Interpreter):  # type: ignore[misc]  # torch is read as untyped
    """Runs a module and keeps what follows from shapes and constants."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.data = _data(module.graph)
        self.kept: dict[Any, Any] = {}

    def run_node(self, n: Any) -> Any:
        """Returns a node's value."""
        value = super().run_node(n)
        if n not in self.data:
            self.kept[n] = value
        return value


class _Tracing(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a module to be traced; what follows from shapes is there already, as constants."""

    def __init__(self, module: Any, values: Sequence[Any]) -> None:
        super().__init__(module)
        first = _Values(module)
        first.run(*values)
        self.kept = first.kept
        self.mode = _Reads(self.kept.values())

    def run_node(self, n: Any) -> Any:
        """Returns a node's value."""
        if n in self.kept:
            return self.kept[n]
        with self.mode:
            return super().run_node(n)


class _Reads(TorchFunctionMode):  # type: ignore[misc]
    """Lets a trace read constants only: torch itself would freeze any value it is asked for."""

    def __init__(self, constants: Iterable[Any]) -> None:
        super().__init__()
        self.constants = {id(each) for each in constants}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of torch; elements of a traced tensor are asked for one by one."""
        if func is torch.Tensor.tolist and id(args[0]) not in self.constants:
            return _listed(args[0])
        if func is torch.Tensor.numpy and id(args[0]) not in self.constants:
            raise NotImplementedError(_DECIDES)
        return func(*args, **(kwargs or {}))


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value.unbind()] if value.dim() else value.item()


class InductorSession(TorchSession):
    """A module that is compiled for the shapes of each run that brings new ones.

    What an input says of shapes counts as one.
    """

    def __init__(self, engine: InductorEngine, module: FxModel) -> None:
        super().__init__(engine, module)
        self.options = engine.options
        given = [node for node in module.fx.graph.nodes if node.op == "placeholder"]
        self.frozen = [_frozen(node) for node in given]
        self.compiled: dict[Any, Any] = {}
        self.told: list[str] = []

    def call(self, *values: Any) -> Any:
        """Runs what is compiled for these shapes."""
        read = [value.tolist() for value, known in zip(values, self.frozen) if known]  # noqa: B905
        shapes = str([*map(_shape, values), *read])
        if shapes not in self.compiled:
            self.compiled[shapes] = self._compile(values)
        return self.compiled[shapes](*values)

    def _compile(self, values: Sequence[Any]) -> Any:
        """Traces operators at these shapes, so that shape arithmetic is constant, and compiles."""
        try:
            traced = self.traced(values)
        except RuntimeError as error:
            if "tracing tensor" not in str(error):
                raise
            raise NotImplementedError(_DECIDES) from error

        def inner(*args: Any, **more: Any) -> Any:
            made = compile_fx_inner(*args, **more)
            self.told.append(getattr(made, "inductor_provenance_stack_traces_str", None) or "{}")
            return made

        return compile_fx(traced, list(values), inner_compile=inner, config_patches=self.options)

    def traced(self, values: Sequence[Any]) -> Any:
        """Returns the module as one graph at the shapes of these values, on their device."""
        with self.engine.device, torch.fx.traceback.preserve_node_meta():
            run = _Tracing(self.module.fx, values).run
            return make_fx(lambda *given: run(*given))(*values)

    def fusions(self) -> list[list[str]]:
        """Returns the sets of ONNX nodes that run as one kernel; none before the first run."""
        kernels = [nodes for told in self.told for nodes in json.loads(told).values()]
        return [sorted(set(nodes)) for nodes in kernels if len(set(nodes)) > 1]

    def close(self) -> None:
        """Frees the module and what was compiled for it."""
        self.compiled.clear()
        super().close()


def _shape(value: Any) -> Any:
    return [_shape(v) for v in value] if isinstance(value, list) else (value.shape, value.dtype)


class InductorEngine(TorchEngine):
    """inductor, which ``torch.compile`` compiles with.

    Args:
        device: As for torch.
        dtype: As for torch.
        autocast: As for torch.
        allow_tf32: As for torch.
        **options: Inductor's own options by name, as ``epilogue_fusion=false``.
    """

    def __init__(
        self,
        device: str = "cpu",
        dtype: str | None = None,
        autocast: str | None = None,
        allow_tf32: bool | None = None,  # noqa: FBT001
        **options: Any,
    ) -> None:
        super().__init__(device, dtype, autocast, allow_tf32)
        self.known = frozenset(torch._inductor.list_options())
        odd = [name for name in options if name not in self.known]
        if odd:
            raise TypeError(f"unknown option {odd[0]!r} of inductor in torch {torch.__version__}")
        told = {PROVENANCE: 1} if PROVENANCE in self.known else {}
        self.options = {**told, **options}
        # What comes out of this cache does not say which nodes its kernels hold.
        torch._functorch.config.enable_autograd_cache = False

    def describe(self) -> dict[str, Any]:
        """Returns name, versions, device and precision."""
        return dict(super().describe(), name="torch inductor")

    def knobs(self) -> dict[str, list[Any]]:
        """Returns the settings that can be turned one by one."""
        known = {name: values for name, values in KNOBS.items() if name in self.known}
        return {**super().knobs(), **known}

    def build(self, model: Path, taps: Sequence[str] = ()) -> InductorSession:
        """Converts an ONNX file; the first run compiles it."""
        return InductorSession(self, FxModel(model, self.dtype))
