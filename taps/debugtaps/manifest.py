"""The list of taps that a prepared model carries with it.

It rides in the ONNX file's metadata, so that later steps need no flags.  Files come from
strangers: what is read is checked before anything relies on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import onnx
from onnx import ModelProto

from debugtaps.errors import ModelError

__all__ = ["Manifest", "TapEntry", "read_manifest", "reference_names", "write_manifest"]

Kind = Literal["manual", "plugin"]
Origin = Literal["torch", "onnxruntime", "torch-op", "none"]

METADATA_KEY = "debugtaps.taps"
VERSION = 1
_LONGEST = 1 << 26  # bytes; a manifest of 100,000 taps is 30 MB
_KINDS, _ORIGINS = get_args(Kind), get_args(Origin)


@dataclass(frozen=True, slots=True)
class TapEntry:
    """One tap of a prepared model.

    Attributes:
        name: Its name in tables and in the reference file.
        output: The graph output that shows it.
        tensor: The tensor of the model that it shows.
        kind: Whether the user placed it or it is a boundary of a plugin.
        dtype: The name of its type, as ``debugtaps.dtype_name`` writes it.
        shape: Its shape; a name for a symbolic dimension, ``None`` for an unknown one, ``None``
            instead of the whole when not even the rank is known.
        source: ``file:line`` of the Python that made it.
        reference: Where its reference value comes from: the eager torch run, a recomputation by
            ONNX Runtime, the plugin's own torch operator; ``none`` when there is no value.
        reason: Why there is none; empty otherwise.
    """

    name: str
    output: str
    tensor: str
    kind: Kind
    dtype: str
    shape: tuple[int | str | None, ...] | None
    source: str | None
    reference: Origin
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The taps of a prepared model, in model order, and its own outputs.

    Attributes:
        version: Of this format.
        taps: The taps.
        outputs: The model's own outputs, taps not among them.
    """

    version: int = VERSION
    taps: tuple[TapEntry, ...] = ()
    outputs: tuple[str, ...] = ()


def reference_names(manifest: Manifest) -> tuple[str, ...]:
    """Returns the names a reference file holds: the outputs, then the taps that have a value.

    >>> reference_names(Manifest(outputs=("y",)))
    ('y',)
    """
    return (*manifest.outputs, *(t.name for t in manifest.taps if t.reference != "none"))


def write_manifest(model: ModelProto, manifest: Manifest) -> None:
    """Puts the manifest into the model's metadata, in the place of an earlier one."""
    text = json.dumps(asdict(manifest), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    kept = [p for p in model.metadata_props if p.key != METADATA_KEY]
    entry = onnx.StringStringEntryProto(key=METADATA_KEY, value=text)
    del model.metadata_props[:]
    model.metadata_props.extend([*kept, entry])


def read_manifest(model: ModelProto | Path) -> Manifest | None:
    """Returns the manifest of a model, or ``None`` when it has none.

    Raises:
        ModelError: The file is no ONNX model, or its manifest is damaged or of a newer format.
    """
    where = "the model" if isinstance(model, ModelProto) else str(model)
    proto = model if isinstance(model, ModelProto) else _load(model)
    texts = [p.value for p in proto.metadata_props if p.key == METADATA_KEY]
    if not texts:
        return None
    try:
        if len(texts[-1]) > _LONGEST:
            raise ValueError("it is too long")
        manifest = _manifest(json.loads(texts[-1]))
        shown = {v.name for v in proto.graph.output}
        lacking = [n for n in (*manifest.outputs, *(t.output for t in manifest.taps))
                   if n not in shown]  # fmt: skip
        if lacking:
            raise ValueError(f"the model has no output {lacking[0]!r}")
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{where}: its list of taps ({METADATA_KEY}) cannot be used: {error}; "
            "prepare the model again"
        ) from None
    return manifest


def _load(path: Path) -> ModelProto:
    try:
        return onnx.load_model(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf raises its own, undocumented kinds
        raise ModelError(f"{path}: is not an ONNX model, or is truncated") from error


def _manifest(value: Any) -> Manifest:
    fields = _mapping(value, "it")
    version = fields.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"its format is {version!r}, this release reads {VERSION}")
    taps = tuple(_entry(each) for each in _listed(fields, "taps"))
    outputs = tuple(_name(each, "an output") for each in _listed(fields, "outputs"))
    _check_once("tap", [t.name for t in taps])
    _check_once("output", [*outputs, *(t.output for t in taps)])
    return Manifest(VERSION, taps, outputs)


def _check_once(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name!r} stands in it twice")
        seen.add(name)


def _entry(value: Any) -> TapEntry:
    fields = _mapping(value, "a tap")
    name = _name(fields.get("name"), "the name of a tap")
    kind: Any = fields.get("kind")
    origin: Any = fields.get("reference")
    if kind not in _KINDS:
        raise ValueError(f"tap {name!r} is of kind {kind!r}, expected one of {', '.join(_KINDS)}")
    if origin not in _ORIGINS:
        raise ValueError(f"tap {name!r} has its reference from {origin!r}, which is unknown")
    source, reason = fields.get("source"), fields.get("reason", "")
    if not (source is None or isinstance(source, str)) or not isinstance(reason, str):
        raise ValueError(f"tap {name!r} has a source or a reason that is no text")
    return TapEntry(
        name,
        _name(fields.get("output"), f"the output of tap {name!r}"),
        _name(fields.get("tensor"), f"the tensor of tap {name!r}"),
        kind,
        _name(fields.get("dtype"), f"the type of tap {name!r}"),
        _shape(fields.get("shape"), name),
        source,
        origin,
        reason,
    )


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a {type(value).__name__}, expected fields by name")
    return value


def _listed(fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key!r} is no list")
    return value


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{what} is {value!r}, expected text")
    return value


def _shape(value: Any, name: str) -> tuple[int | str | None, ...] | None:
    if value is None:
        return None
    sound = isinstance(value, list) and all(
        d is None or isinstance(d, str) or (type(d) is int and d >= 0) for d in value
    )
    if not sound:
        raise ValueError(f"tap {name!r} has the shape {value!r}")
    return tuple(value)
