"""The values torch computes for the tensors of an exported model.

The exporter names an ONNX tensor after the value of the torch graph that it was translated from.
So one run of that graph gives, by name, most of the tensors; the others (one torch operator
became several nodes) follow from their nearest neighbours, see `debugtaps.recompute`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import ModelError, TapError
from debugtaps.export import onnx_bytes
from debugtaps.graph import Graph, load_graph
from debugtaps.recompute import Functions, Obtained, recompute
from debugtaps.torch_arrays import from_numpy, to_numpy

__all__ = ["TorchValues", "arguments_for", "capture", "feeds_of", "obtain", "torch_values"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TorchValues:
    """Reference values for the tensors of an exported model.

    Attributes:
        values: By ONNX tensor, graph inputs among them.
        origins: ``torch`` for a value of the torch run, ``moved`` for one that was only moved
            from there, ``onnxruntime`` for one that was computed from such neighbours,
            ``torch-op`` for one computed by a plugin's own function.
        missing: Why a tensor has none.
        mapped: How many computed tensors have a value of the torch run itself, or moved.
        total: How many computed tensors there are.
    """

    values: Mapping[str, Array]
    origins: Mapping[str, Obtained]
    missing: Mapping[str, str]
    mapped: int
    total: int


def torch_values(
    program: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    functions: Functions = lambda node: None,
) -> TorchValues:
    """Returns torch's value for every tensor of an exported model.

    Args:
        program: What ``torch.onnx.export(..., dynamo=True)`` returned.
        args: Positional arguments of ``forward``.
        kwargs: Keyword arguments.
        functions: Computes nodes that are no standard operators.
    """
    with tempfile.TemporaryDirectory(prefix="tapsect-") as name:
        path = Path(name) / "model.onnx"
        path.write_bytes(onnx_bytes(program))
        graph = load_graph(path, Path(name) / "work")
        with Host(resolve("ort-reference")) as host:
            return obtain(program, (args, kwargs or {}), graph, host, functions=functions)


def obtain(
    program: Any,
    given: tuple[Sequence[Any], Mapping[str, Any]],
    graph: Graph,
    host: Host,
    *,
    wanted: Collection[str] | None = None,
    functions: Functions = lambda node: None,
) -> TorchValues:
    """Returns the values of ``wanted`` tensors, of all when not given."""
    made = {t: None for node in graph.nodes for t in node.writes}
    asked = [t for t in made if wanted is None or t in wanted]
    feeds = feeds_of(program, given, graph.inputs)
    caught = capture(program, given, {*made, *feeds})
    caught.update(feeds)
    rest = recompute(graph, caught, asked, host, functions=functions)
    origins: dict[str, Obtained] = dict.fromkeys((t for t in caught if t in made), "torch")
    origins.update(rest.origins)
    mapped = sum(origins.get(t) in ("torch", "moved") for t in asked)
    return TorchValues(
        {**caught, **rest.values}, origins, rest.missing, mapped, len(asked)
    )  # fmt: skip


def feeds_of(
    program: Any, given: tuple[Sequence[Any], Mapping[str, Any]], inputs: Collection[str]
) -> dict[str, Array]:
    """Returns what the inputs of an exported model are fed for the arguments of ``forward``.

    Raises:
        ModelError: The exporter left an input that no argument belongs to.
    """
    found = {
        name: to_numpy(leaf)
        for name, leaf in _named_arguments(program, given)
        if name in inputs and hasattr(leaf, "detach")
    }
    lacking = [n for n in inputs if n not in found]
    if lacking:
        raise ModelError(f"no argument of forward belongs to the exported input {lacking[0]!r}")
    return {n: found[n] for n in inputs}


def arguments_for(
    program: Any, given: tuple[Sequence[Any], Mapping[str, Any]], feeds: Mapping[str, Array]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of ``forward`` that stand for other inputs of the exported model."""
    from torch.utils import _pytree

    named = _named_arguments(program, given)
    leaves = [
        from_numpy(feeds[name]).to(leaf.device, leaf.dtype) if name in feeds else leaf
        for name, leaf in named
    ]
    kwargs = _ordered(program.exported_program, given[1])
    spec = _pytree.tree_flatten((tuple(given[0]), kwargs))[1]
    args, kwargs = _pytree.tree_unflatten(leaves, spec)
    return args, kwargs


def capture(
    program: Any, given: tuple[Sequence[Any], Mapping[str, Any]], names: Collection[str]
) -> dict[str, Array]:
    """Returns the values that one run of the exported torch graph gives, by name.

    Args:
        program: The exporter's result.
        given: The arguments of ``forward``.
        names: The values asked for.
    """
    import torch

    exported = program.exported_program
    found: dict[str, Array] = {}

    def keep(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and name in names:
            try:
                found[name] = to_numpy(value)
            except TapError:
                return  # no array can hold it; it is computed from others, or stays unknown

    class Capture(torch.fx.Interpreter):  # type: ignore[misc, unused-ignore]
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if isinstance(result, tuple | list):
                for index, part in enumerate(result):
                    keep(f"{n.name}__{index}", part)
            else:
                keep(n.name, result)
            return result

    fed = dict(_named_arguments(program, given))
    with torch.no_grad():
        Capture(exported.graph_module).run(*_placeholders(exported, fed))
    return found


def _named_arguments(
    program: Any, given: tuple[Sequence[Any], Mapping[str, Any]]
) -> list[tuple[str, Any]]:
    from torch.utils import _pytree

    exported = program.exported_program
    names = [
        s.arg.name for s in exported.graph_signature.input_specs if s.kind.name == "USER_INPUT"
    ]
    leaves = _pytree.tree_leaves((tuple(given[0]), _ordered(exported, given[1])))
    if len(names) != len(leaves):
        raise ModelError(f"forward takes {len(names)} values, get_fwd_args() gives {len(leaves)}")
    return list(zip(names, leaves, strict=True))


def _ordered(exported: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The exported graph takes keyword arguments in an order of its own."""
    try:
        from torch.export._tree_utils import reorder_kwargs

        return dict(reorder_kwargs(dict(kwargs), exported.call_spec.in_spec))
    except ImportError:  # private, and may move
        return dict(kwargs)


def _placeholders(exported: Any, fed: Mapping[str, Any]) -> list[Any]:
    values = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            value = fed[spec.arg.name]
            values.append(value.detach().clone() if hasattr(value, "detach") else value)
        elif spec.target in exported.state_dict:
            values.append(exported.state_dict[spec.target])
        else:
            values.append(exported.constants[spec.target])
    return values
