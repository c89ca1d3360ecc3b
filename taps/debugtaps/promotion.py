"""The last stage of ``prepare``: taps become outputs, and the model says so in its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from debugtaps.errors import ModelError
from debugtaps.expose import Exposed, expose
from debugtaps.graph import Graph, TensorType
from debugtaps.manifest import Kind, Manifest, Origin, TapEntry, write_manifest
from debugtaps.reading import typed_outputs
from debugtaps.sources import Source
from debugtaps.store import dtype_name
from debugtaps.surgery import save

__all__ = ["Tapped", "promote_taps"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tapped:
    """A tensor to expose, and its reference value where there is one.

    Attributes:
        name: The tap's name.
        tensor: The tensor.
        kind: Who placed it.
        value: Its reference value.
        origin: Where that comes from.
        source: ``file:line`` of the tap.
        reason: Why there is no value.
    """

    name: str
    tensor: str
    kind: Kind
    value: Array | None
    origin: Origin
    source: str | None = None
    reason: str = ""


def promote_taps(
    path: Path,
    graph: Graph,
    tapped: Sequence[Tapped],
    sources: Mapping[str, Source],
    *,
    earlier: Manifest | None = None,
) -> tuple[Manifest, dict[str, Array]]:
    """Promotes taps in the file at ``path`` and returns the manifest and the reference values.

    Without taps the file stays as it is, byte for byte.

    Args:
        path: The model, changed in place.
        graph: The same, read.
        tapped: The taps, in any order.
        sources: Python lines by tensor.
        earlier: The manifest the model carries already; its taps stay.

    Raises:
        ModelError: The model with its taps is not valid, which is a fault of this tool.
    """
    before = earlier if earlier is not None else Manifest(outputs=tuple(graph.outputs))
    if not tapped:
        return before, {}
    ordered = sorted(tapped, key=lambda t: graph.producer.get(t.tensor, -1))
    types = {t.tensor: _type(t.value) for t in ordered if t.value is not None}
    model = onnx.load_model(str(path), load_external_data=False)
    exposed = expose(model, [(t.name, t.tensor) for t in ordered], types)
    known = {v.name: v for v in model.graph.output}
    fresh = [
        _entry(tap, shown, known[shown.output], sources)
        for tap, shown in zip(ordered, exposed, strict=True)
    ]
    manifest = Manifest(taps=(*before.taps, *fresh), outputs=before.outputs)
    write_manifest(model, manifest)
    _check(model, path)
    save(model, path)
    values = {
        shown.name: tap.value
        for tap, shown in zip(ordered, exposed, strict=True)
        if tap.value is not None
    }
    return manifest, values


def _check(model: onnx.ModelProto, path: Path) -> None:
    beside = save(typed_outputs(model), path.with_name(f".check-{path.name}"))
    try:
        onnx.checker.check_model(str(beside))
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(f"{path.name} with its taps is not valid ONNX: {first}") from error
    finally:
        beside.unlink()


def _type(value: Array) -> TensorType:
    kind = np.dtype(object) if value.dtype.kind in "OUST" else value.dtype
    return TensorType(int(helper.np_dtype_to_tensor_dtype(kind)), value.shape)


def _entry(
    tap: Tapped, shown: Exposed, value: onnx.ValueInfoProto, sources: Mapping[str, Source]
) -> TapEntry:
    kind = value.type.tensor_type
    shape: tuple[int | str | None, ...] | None = None
    if kind.HasField("shape"):
        shape = tuple(
            d.dim_value if d.HasField("dim_value") else (d.dim_param or None)
            for d in kind.shape.dim
        )
    if tap.value is not None:
        dtype = dtype_name(tap.value.dtype)
    elif kind.elem_type:
        dtype = dtype_name(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    else:
        dtype = "unknown"
    made = sources.get(tap.tensor)
    line = tap.source or (made.line if made is not None else None)
    return TapEntry(
        shown.name, shown.output, tap.tensor, tap.kind, dtype, shape, line, tap.origin, tap.reason
    )
