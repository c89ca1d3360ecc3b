"""From the words a user writes to an engine that a worker can load.

Nothing here imports an engine: a specification names a file or a module, and the worker, which
may run under another interpreter, imports it there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from debugtaps.errors import SpecError

__all__ = ["BUILTINS", "Builtin", "EngineSpec", "names", "parse_options", "resolve"]

Target = tuple[Literal["builtin", "file", "module"], str, str]

ENTRY_POINT_GROUP = "tapsect.engines"

_FORMS = (
    "an engine is one of the names, path/to/file.py:Class, package.module:Class, "
    f"or an entry point of the group {ENTRY_POINT_GROUP}"
)


@dataclass(frozen=True, slots=True)
class Builtin:
    """An engine that comes with the tool.

    Attributes:
        file: Its file in this folder.
        name: The name of its class.
        extra: The extra of the distribution that installs its package, None when the core does.
        package: The package its file imports, as pip calls it.
    """

    file: str
    name: str
    extra: str | None
    package: str


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine or a reference, ready to be loaded by a worker.

    Attributes:
        spec: What the user wrote.
        target: How to import it: ``builtin`` or ``file`` with a path, ``module`` with a name;
            then the class.
        options: Keyword arguments of the constructor.
        needs: The extra that installs what the engine imports, None when the core does.
        package: The package to install into another interpreter, empty when unknown.
    """

    spec: str
    target: Target
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    needs: str | None = None
    package: str = ""


BUILTINS: Mapping[str, Builtin] = MappingProxyType(
    {
        "ort": Builtin("ort.py", "OrtEngine", None, "onnxruntime"),
        "ort-reference": Builtin("ort.py", "OrtReference", None, "onnxruntime"),
        "onnx": Builtin("onnx_reference.py", "OnnxReference", None, "onnx"),
        "openvino": Builtin("openvino.py", "OpenVinoEngine", "openvino", "openvino"),
        "torch": Builtin("torch_engine.py", "TorchEngine", "torch", "torch onnx2fx"),
        "inductor": Builtin("inductor.py", "InductorEngine", "torch", "torch onnx2fx"),
        "tensorrt": Builtin("tensorrt.py", "TensorRtEngine", "tensorrt", "tensorrt"),
        "tensorrt-rtx": Builtin("tensorrt.py", "TensorRtRtxEngine", "tensorrt-rtx", "tensorrt-rtx"),
        "planted": Builtin("planted.py", "Planted", None, "onnx"),
    }
)


def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points  # of use for engines of others only

    found = entry_points(group=ENTRY_POINT_GROUP)
    return {each.name: each.value for each in found}


def names() -> tuple[str, ...]:
    """Returns every name that ``resolve`` takes: the builtins and the installed entry points."""
    return tuple(sorted({*BUILTINS, *_entry_points()}))


def _from_path(spec: str, options: Mapping[str, Any]) -> EngineSpec | None:
    where, colon, name = spec.rpartition(":")
    if not colon or not name.replace(".", "_").isidentifier():
        return None
    if where.endswith(".py"):
        path = Path(where).expanduser().resolve()
        if not path.is_file():
            raise SpecError(f"engine {spec!r}: there is no file {where}; give an existing file")
        return EngineSpec(spec, ("file", str(path), name), options)
    if where and all(part.isidentifier() for part in where.split(".")):
        return EngineSpec(spec, ("module", where, name), options)
    return None


def resolve(spec: str, options: Mapping[str, Any] | None = None) -> EngineSpec:
    """Returns the engine that ``spec`` names.

    Args:
        spec: A name, ``path/to/file.py:Class``, ``package.module:Class`` or an entry point.
        options: Keyword arguments for its constructor.

    Raises:
        SpecError: It names nothing (the message lists the nearest names), or an option is not
            a value that can travel to another process.
    """
    given = MappingProxyType(dict(options or {}))
    try:
        json.dumps(dict(given))
    except TypeError as error:
        raise SpecError(f"options of engine {spec!r} must be plain JSON values: {error}") from error
    row = BUILTINS.get(spec)
    if row is not None:
        path = Path(__file__).with_name(row.file)
        return EngineSpec(spec, ("builtin", str(path), row.name), given, row.extra, row.package)
    by_path = _from_path(spec, given)
    if by_path is not None:
        return by_path
    installed = _entry_points()
    if spec in installed:
        module, _, name = installed[spec].partition(":")
        if not name:
            raise SpecError(f"the entry point {spec!r} names {module!r}; it must name module:Class")
        return EngineSpec(spec, ("module", module, name.split(" ")[0]), given)
    raise SpecError(_unknown(spec))


def _unknown(spec: str) -> str:
    import difflib

    known = names()
    near = difflib.get_close_matches(spec, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return f"no engine is called {spec!r}; {guess}names: {', '.join(known)}; {_FORMS}"


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Returns ``key=value`` words as options; a value is JSON when it parses, else text.

    >>> parse_options(["graph_optimization_level=basic", "threads=2", 'only=["a", "b"]'])
    {'graph_optimization_level': 'basic', 'threads': 2, 'only': ['a', 'b']}

    Raises:
        SpecError: A word has no ``=`` or no key.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise SpecError(f"engine option {pair!r} is not of the form key=value")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options
