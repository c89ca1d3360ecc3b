"""Plugins of a model: their boundaries, and functions that compute what they should.

A plugin is a node outside the standard ONNX domains, run by code of the user's.  A function of the
model itself is none.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps.errors import InputError, TapsError, UsageError
from debugtaps.graph import Graph, Node
from debugtaps.recompute import Function, stands_alone
from debugtaps.sources import scopes
from debugtaps.user_code import user_code

__all__ = ["Boundary", "boundaries", "load_references", "reference_functions"]

Array = npt.NDArray[Any]

_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, slots=True)
class Boundary:
    """One tensor that enters or leaves a plugin.

    Attributes:
        name: ``<scope>/<Op>[_k]__in0`` or ``…__out0``.
        tensor: The tensor.
        node: The plugin.
    """

    name: str
    tensor: str
    node: Node


def boundaries(graph: Graph, plugin_ops: Sequence[str] = ()) -> list[Boundary]:
    """Returns every input and output of every plugin, in model order.

    Args:
        graph: The model.
        plugin_ops: Operators that count as plugins too: ``Op`` or ``domain::Op``.

    Raises:
        UsageError: An operator among ``plugin_ops`` is not in the model.
    """
    named = set(plugin_ops)
    met: set[str] = set()
    seen: Counter[str] = Counter()
    found = []
    for node in graph.nodes:
        asked = {node.op, key_of(node)} & named
        met |= asked
        if not asked and not stands_alone(node, graph):
            continue
        base = "/".join((*_scope(node), node.op))
        number = seen[base]
        seen[base] += 1
        call = f"{base}_{number}" if number else base
        found += [
            Boundary(f"{call}__{side}{place}", tensor, node)
            for side, tensors in (("in", node.proto.input), ("out", node.proto.output))
            for place, tensor in enumerate(tensors)
            if tensor and tensor not in graph.untensors
        ]
    lacking = sorted(named - met)
    if lacking:
        present = ", ".join(sorted({key_of(n) for n in graph.nodes}))
        raise UsageError(f"plugin operator {lacking[0]!r} is not in the model; it has {present}")
    return found


def key_of(node: Node) -> str:
    """Returns ``domain::Op``, or ``Op`` for a standard operator."""
    return f"{node.domain}::{node.op}" if node.domain else node.op


def load_references(words: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Returns functions by ``domain::Op`` from words ``domain::Op=module:function``.

    The function gets the node's inputs as arrays (``None`` for one left out) and its attributes
    by name, and returns an array, or a tuple of them.

    Raises:
        UsageError: A word is of another form, or names no function.
        ModelCodeError: The module's own code raised.
    """
    found: dict[str, Callable[..., Any]] = {}
    for word in words:
        key, equals, target = word.partition("=")
        module, colon, name = target.rpartition(":")
        if not (equals and colon and key.strip() and module and name):
            raise UsageError(
                f"plugin reference {word!r} is not of the form domain::Op=module:function"
            )
        function = getattr(_import(module), name, None)
        if not callable(function):
            raise UsageError(f"plugin reference {word!r}: {module} has no function {name}()")
        found[key.strip()] = function
    return found


def _import(name: str) -> Any:
    path = Path(name)
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise InputError(f"{name} does not exist; name a Python file or module")
        module = importlib.util.module_from_spec(spec)
        with user_code(path.name, path.parent):
            spec.loader.exec_module(module)
        return module
    try:
        with user_code(name, Path.cwd()):
            return importlib.import_module(name)
    except TapsError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise UsageError(
                f"there is no module {name!r} to take a plugin reference from"
            ) from None
        raise


def reference_functions(
    given: Mapping[str, Callable[..., Any]], operators: Iterable[Any] = ()
) -> Callable[[Node], Function | None]:
    """Returns what computes a plugin node: the function given for it, else its torch operator.

    Args:
        given: By ``domain::Op``.
        operators: Torch operators that are exported as nodes of their own.
    """
    torch_ops: dict[str, Any] = {}
    for op in operators:
        from debugtaps.custom_ops import operator_key

        torch_ops[operator_key(op)] = op

    def find(node: Node) -> Function | None:
        key = key_of(node)
        if key in given:
            return lambda inputs, attributes: _listed(given[key](*inputs, **attributes))
        if key in torch_ops:
            from debugtaps.custom_ops import call_operator

            op = torch_ops[key]
            return lambda inputs, attributes: _listed(call_operator(op, inputs, attributes))
        return None

    return find


def _listed(result: Any) -> list[Array]:
    several = list(result) if isinstance(result, tuple | list) else [result]
    return [_array(each) for each in several]


def _array(value: Any) -> Array:
    if hasattr(value, "detach"):
        from debugtaps.torch_arrays import to_numpy

        return to_numpy(value)
    return np.asarray(value)


def _scope(node: Node) -> list[str]:
    for entry in node.proto.metadata_props:
        if entry.key == _SCOPES:
            return scopes(entry.value)
    return [part for part in node.name.split("/")[:-1] if part]
