"""A fused plan: which ONNX nodes run as one kernel, in which types, with which tactic.

Two sources say the same: the build log at VERBOSE with DETAILED verbosity (its message begins
with ``Layers:``; no GPU is needed), and the engine inspector's JSON (it needs one).  Each has
changed its layout once::

    10.x, RTX 1.4     Inputs: [ { Name: x, Dimensions: [..], Format/Datatype: Float } ], …
    11.x, RTX 1.6     Inputs: [ { Name: x, …, Datatype: Float, Format: … } ], Constants: [ … ], …

Pure: no TensorRT, Python 3.8, the standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Dict, FrozenSet, List, NamedTuple, Tuple

__all__ = ["Kernel", "core", "from_inspector", "from_log", "fusions", "lowered", "precisions",
           "tactics"]  # fmt: skip

_NODE = re.compile(r"\[ONNX Layer: ([^\]|]*?)(?: \|[^\]]*)?\]")
_TYPE = re.compile(r"Datatype: ([^,}\]]+)")
_SCALAR = re.compile(r"\{[^{}]*Dimensions: \[1?\][^{}]*\}")
_TACTIC = re.compile(r", TacticName: ([^,]*)")
_KIND = re.compile(r", LayerType: (\w+)")

_TYPES = (
    ("bf16", ("bfloat16", "bf16")),
    ("f16", ("half", "fp16")),
    ("f32", ("float", "fp32")),
    ("f8", ("fp8",)),
    ("i8", ("int8",)),
    ("f4", ("fp4",)),
    ("i4", ("int4",)),
)
_FLOATS = ("f32", "bf16", "f16", "f8", "f4")
_COARSE = {"f32": 0, "tf32": 1, "f16": 2, "bf16": 3, "f8": 4, "f4": 5}

CONTRACTION_KINDS = frozenset(
    {
        "CaskConvolution",
        "CaskDeconvolution",
        "CaskGemmConvolution",
        "MatrixMultiply",
        "correlation",
        "gemm",
        "runtime_fusion",
    }
)


class Kernel(NamedTuple):
    """One row of a plan.

    Attributes:
        name: The plan's own name.
        kind: ``kgen``, ``gemm``, ``correlation``, ``CaskConvolution`` …
        nodes: The ONNX nodes it runs; none of a mere reformat.
        tactic: The kernel chosen; a stub or empty where it is chosen at run time.
        reads, constants, writes: Type names, ``f32`` … where known, else as the plan has them.
            Constants of one element, the factors of an epilogue, are left out.
    """

    name: str
    kind: str
    nodes: FrozenSet[str]
    tactic: str
    reads: Tuple[str, ...]
    constants: Tuple[str, ...]
    writes: Tuple[str, ...]


def _type(text: str) -> str:
    word = text.strip().lower()
    for name, spellings in _TYPES:
        if any(each in word.split() for each in spellings):
            return name
    return text.strip()


def _nodes(metadata: str, names: Mapping[str, str]) -> FrozenSet[str]:
    return frozenset(names.get(found, found) for found in _NODE.findall(metadata))


def _types(text: str) -> Tuple[str, ...]:
    return tuple(_type(found) for found in _TYPE.findall(text))


def _kernel(line: str, names: Mapping[str, str]) -> Kernel:
    head, _, metadata = line.partition(", Metadata: ")
    before, _, outputs = head.partition(", Outputs: [")
    inputs, _, constants = before.partition(", Constants: [")
    kind, tactic = _KIND.search(inputs), _TACTIC.search(outputs)
    return Kernel(
        line[len("Name: ") :].partition(", LayerType: ")[0],
        kind.group(1) if kind else "",
        _nodes(metadata, names),
        tactic.group(1).strip() if tactic else "",
        _types(inputs),
        _types(_SCALAR.sub("", constants)),
        _types(outputs),
    )


def from_log(messages: Iterable[str], names: Mapping[str, str]) -> List[Kernel]:
    """Returns the kernels that a build logged.

    Args:
        messages: What the logger heard.
        names: What odd node names stand for, from ``tag_layers``.
    """
    return [
        _kernel(line, names)
        for message in messages
        if message.startswith("Layers:")
        for line in message.split("\n")
        if line.startswith("Name: ") and ", LayerType: " in line
    ]


def from_inspector(text: str, names: Mapping[str, str]) -> List[Kernel]:
    """Returns the kernels of the engine inspector's JSON; none when it holds names only."""
    found = []
    for layer in json.loads(text).get("Layers", ()):
        if isinstance(layer, Mapping):
            tensors = [
                tuple(_type(_told(each)) for each in layer.get(key, ()))
                for key in ("Inputs", "Constants", "Outputs")
            ]
            found.append(
                Kernel(
                    str(layer.get("Name", "")),
                    str(layer.get("LayerType", "")),
                    _nodes(str(layer.get("Metadata", "")), names),
                    str(layer.get("TacticName", "")),
                    *tensors,
                )
            )
    return found


def _told(tensor: Any) -> str:
    if not isinstance(tensor, Mapping):
        return ""
    return str(tensor.get("Datatype") or tensor.get("Format/Datatype") or "")


def fusions(plan: Iterable[Kernel]) -> List[List[str]]:
    """Returns the sets of ONNX nodes that run as one kernel, in the plan's order."""
    return [sorted(kernel.nodes) for kernel in plan if kernel.nodes]


def tactics(plan: Iterable[Kernel]) -> Dict[str, str]:
    """Returns the tactic of each kernel that computes, by the nodes it runs."""
    return {"+".join(sorted(k.nodes)): k.tactic for k in plan if k.nodes and k.tactic}


def core(plan: Iterable[Kernel]) -> List[Tuple[str, Tuple[str, ...]]]:
    """Returns what computes: kind and nodes of each kernel, reformats left out, sorted."""
    return sorted((kernel.kind, tuple(sorted(kernel.nodes))) for kernel in plan if kernel.nodes)


def precisions(plan: Iterable[Kernel], *, tf32: bool = False) -> Dict[str, str]:
    """Returns the type each ONNX node computes in: the coarsest of its kernels' operands.

    A kernel's types are those of what goes in and out.  They prove what a contraction computes
    in; a generated pointwise kernel between half tensors may compute in more inside.

    Args:
        plan: The kernels of a build.
        tf32: Whether contractions of float32 may compute in TF32, which no plan tells.
    """
    found: Dict[str, str] = {}
    for kernel in plan:
        told = [t for t in (*kernel.reads, *kernel.constants) if t in _FLOATS]
        told = told or [t for t in kernel.writes if t in _FLOATS]
        if not told:
            continue
        coarsest = max(told, key=_COARSE.__getitem__)
        if tf32 and coarsest == "f32" and kernel.kind in CONTRACTION_KINDS:
            coarsest = "tf32"
        for node in kernel.nodes:
            before = found.get(node, coarsest)
            found[node] = max(before, coarsest, key=_COARSE.__getitem__)
    return found


def lowered(plan: Iterable[Kernel], asked: Mapping[str, str]) -> Dict[str, str]:
    """Returns the nodes that compute in a coarser type than asked, and in which.

    Args:
        plan: The kernels of a build.
        asked: The type of each contraction, by node name: that of the tensor it writes.
    """
    seen: Dict[str, str] = {}
    for kernel in plan:
        told = [t for t in (*kernel.reads, *kernel.constants) if t in _FLOATS]
        for node in kernel.nodes & asked.keys():
            finest = min(told, key=_COARSE.__getitem__) if told else asked[node]
            if _COARSE.get(finest, 0) > _COARSE.get(asked[node], 0):
                seen[node] = finest
    return seen
