"""A Python file that offers a torch model and one set of arguments for it.

The file holds ``Model``, a class that is called without arguments (or a module that is ready),
and ``get_fwd_args()``, which returns the positional arguments of ``forward``.  It may hold:

=========================  ====================================================================
``get_fwd_kwargs()``       keyword arguments of ``forward``
``dynamic_shapes``         what ``torch.export`` takes under that name, or
``get_dynamic_shapes()``   a function that returns it
``opset_version``          the ONNX opset to export
``onnx_translations()``    torch operator -> onnxscript function, for operators of one's own
=========================  ====================================================================

Every file is loaded under one module name and with one seed, so that files which differ only in
their taps export to the same bytes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from debugtaps.errors import InputError, MissingPackage, ModelError
from debugtaps.mark import INSTALL
from debugtaps.user_code import user_code

__all__ = ["TorchFile", "leaf_tensors", "load_torch_file"]

MODULE = "tapsect_model"
_SEED = 0


@dataclass(frozen=True, slots=True)
class TorchFile:
    """A model file, loaded.

    Attributes:
        path: The file.
        model: The torch module, in eval mode.
        args: Positional arguments.
        kwargs: Keyword arguments.
        dynamic_shapes: For ``torch.export``; ``None`` when every size is fixed.
        opset: The opset asked for, ``None`` for the exporter's own choice.
        translations: Torch operator -> onnxscript function.
        notes: What was assumed or changed.
    """

    path: Path
    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    opset: int | None = None
    translations: Mapping[Any, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """Returns the folder that paths are shown relative to."""
        return self.path.parent


def load_torch_file(path: Path) -> TorchFile:
    """Returns the model and the arguments that a file offers.

    Raises:
        MissingPackage: torch, or what its exporter needs, is not installed.
        ModelError: The file is missing, or lacks ``Model`` or ``get_fwd_args``.
        ModelCodeError: The file's own code raised.
        InputError: The arguments cannot be used.
    """
    torch = require_torch()
    if not path.is_file():
        raise ModelError(f"{path}: no such file; expected a Python file with class Model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        module = _load_module(path)
        model, notes = _model(path, module)
        args, kwargs = _arguments(path, module)
        shapes = _optional(path, module, "get_dynamic_shapes", "dynamic_shapes")
        translations = _optional(path, module, "onnx_translations", "")
    _check_devices(path, model, (args, kwargs))
    return TorchFile(
        path, model, args, kwargs, shapes, _opset(path, module), translations or {}, tuple(notes)
    )


def require_torch() -> Any:
    """Returns torch, or says how to install it."""
    try:
        import onnxscript  # noqa: F401
        import torch
    except ImportError as error:
        raise MissingPackage(
            f"a Python model needs torch and onnxscript ({error}); {INSTALL}"
        ) from None
    return torch


def leaf_tensors(value: Any) -> list[Any]:
    """Returns the tensors in nested containers, in the exporter's order."""
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses and copy look their module up by name
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        with user_code(path.name, path.parent):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _model(path: Path, module: ModuleType) -> tuple[Any, list[str]]:
    import torch

    offered = getattr(module, "Model", None)
    if offered is None:
        raise ModelError(f"{path}: holds no Model; define class Model(nn.Module)")
    model = offered
    if not isinstance(offered, torch.nn.Module):
        if not callable(offered):
            raise ModelError(f"{path}: Model is a {type(offered).__name__}, expected a class")
        with user_code("Model()", path.parent):
            model = offered()
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"{path}: Model() is a {type(model).__name__}, expected a torch.nn.Module")
    notes = []
    if any(m.training for m in model.modules()):
        notes.append("the model was in training mode; eval() was set")
        model.eval()
    return model, notes


def _arguments(path: Path, module: ModuleType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    offered = getattr(module, "get_fwd_args", None)
    if not callable(offered):
        raise ModelError(
            f"{path}: holds no get_fwd_args(); define it to return the arguments of forward"
        )
    args = _optional(path, module, "get_fwd_args", "")
    kwargs = _optional(path, module, "get_fwd_kwargs", "") or {}
    if isinstance(args, Mapping) and not isinstance(args, tuple):
        raise InputError(
            f"{path}: get_fwd_args() returns a dictionary; return a tuple, and keyword "
            "arguments from get_fwd_kwargs()"
        )
    if not isinstance(kwargs, Mapping):
        raise InputError(f"{path}: get_fwd_kwargs() returns no dictionary")
    given = tuple(args) if isinstance(args, tuple | list) else (args,)
    if not leaf_tensors((given, kwargs)):
        raise InputError(f"{path}: get_fwd_args() gives no tensor; a model without inputs is fixed")
    return given, dict(kwargs)


def _optional(path: Path, module: ModuleType, function: str, variable: str) -> Any:
    offered = getattr(module, function, None)
    if callable(offered):
        with user_code(f"{function}()", path.parent):
            return offered()
    return getattr(module, variable, None) if variable else None


def _opset(path: Path, module: ModuleType) -> int | None:
    opset = getattr(module, "opset_version", None)
    if opset is None:
        return None
    if type(opset) is not int or opset < 18:
        raise ModelError(
            f"{path}: opset_version is {opset!r}; the exporter of torch writes opset 18 and newer"
        )
    return opset


def _check_devices(path: Path, model: Any, given: Sequence[Any]) -> None:
    owned = {str(t.device) for t in [*model.parameters(), *model.buffers()]}
    fed = {str(t.device) for t in leaf_tensors(given)}
    if "meta" in owned | fed:
        raise InputError(f"{path}: holds tensors on the meta device, which have no values")
    if owned and fed - owned:
        raise InputError(
            f"{path}: get_fwd_args() gives tensors on {', '.join(sorted(fed - owned))}, the "
            f"model is on {', '.join(sorted(owned))}; move them to one device"
        )
