"""Which line of Python, and which module of the network, made a tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debugtaps.errors import InputError
from debugtaps.store import write_json_atomic
from debugtaps.user_code import shown_path, user_frame

__all__ = ["Source", "load_sources", "read_sources", "sources_path", "write_sources"]

_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tensor comes from.

    Attributes:
        line: ``file:line`` of the user's Python, ``None`` where the exporter made the tensor.
        scope: The module that made it, as ``layer1/conv``; empty at the top.
    """

    line: str | None
    scope: str


def sources_path(model: Path) -> Path:
    """Returns the file beside a model that holds the lines of its tensors."""
    return model.with_name(f"{model.name}.sources.json")


def read_sources(model: Any, home: Path, stack: str) -> dict[str, Source]:
    """Returns the source of each tensor of an ``onnx_ir`` model.

    Args:
        model: The model, its stack traces still in it.
        home: Paths are shown relative to this folder.
        stack: The name of the metadata that holds stack traces.
    """
    found: dict[str, Source] = {}
    for node in model.graph:
        line = _line(node.metadata_props.get(stack, ""), home)
        scope = "/".join(scopes(node.metadata_props.get(_SCOPES, "")))
        if line or scope:
            found.update({v.name: Source(line, scope) for v in node.outputs if v.name})
    return found


def scopes(text: str) -> list[str]:
    """Returns the modules that a node lies in, outermost first, the operator itself left out.

    >>> scopes("['', 'layer1', 'layer1.0', 'relu']")
    ['layer1', '0']
    """
    try:
        names = [str(n) for n in ast.literal_eval(text)] if text else []
    except (ValueError, SyntaxError, RecursionError):
        return []
    found, above = [], ""
    for name in names[:-1]:
        inner = name.removeprefix(above + ".") if above else name
        if inner:
            found.append(inner.replace(".", "/"))
        above = name
    return found


def write_sources(model: Path, sources: Mapping[str, Source]) -> Path:
    """Writes the file beside ``model`` and returns its path."""
    path = sources_path(model)
    tensors = {n: {"source": s.line, "scope": s.scope} for n, s in sources.items()}
    write_json_atomic(path, {"version": 1, "tensors": tensors})
    return path


def load_sources(model: Path) -> dict[str, Source]:
    """Returns what the file beside ``model`` holds, nothing when there is none.

    Raises:
        InputError: The file is damaged.
    """
    import json

    path = sources_path(model)
    if not path.is_file():
        return {}
    try:
        tensors = json.loads(path.read_text(encoding="utf-8"))["tensors"]
        return {str(n): Source(_text(s["source"]), str(s["scope"])) for n, s in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}); prepare the model again") from None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _line(trace: str, home: Path) -> str | None:
    """Returns the innermost line of the user's own code."""
    frames = [(file, number) for file, number in _FRAME.findall(trace) if user_frame(file)]
    return f"{shown_path(frames[-1][0], home)}:{frames[-1][1]}" if frames else None
