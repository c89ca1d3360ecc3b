"""The first step: a model, its inputs and its reference values, ready for any engine.

A model is a Python file with class ``Model`` and function ``get_fwd_args()``, or an ONNX file.  A
torch model's reference is eager torch; an ONNX model's is ONNX Runtime with optimisations off.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from debugtaps.errors import ModelError, OutputError, UsageError
from debugtaps.manifest import Manifest
from debugtaps.plugins import load_references
from debugtaps.store import write_npz

__all__ = ["TIMINGS", "Prepared", "Request", "prepare"]

Array = npt.NDArray[Any]

TIMINGS = "benchmark_timings_ms"


@dataclass(frozen=True, slots=True)
class Request:
    """What ``prepare`` was asked for.

    Attributes:
        model: The model's file.
        onnx_out: Where the ONNX model goes.
        debug_taps: Names of manual taps; ``all`` among them means every one.
        plugin_taps: Whether boundaries of plugins are tapped.
        plugin_ops: Operators that count as plugins too.
        plugin_references: Functions by ``domain::Op``.
        inputs: For an ONNX model, files or mappings with inputs.
        input_shapes: For an ONNX model, shapes of random inputs.
        seed: Of random inputs.
    """

    model: Path
    onnx_out: Path
    debug_taps: tuple[str, ...] = ()
    plugin_taps: bool = False
    plugin_ops: tuple[str, ...] = ()
    plugin_references: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str | Path | Mapping[str, Any], ...] = ()
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What ``prepare`` wrote.

    Attributes:
        onnx: The model, its taps promoted and listed in its metadata.
        inputs: The inputs by ONNX name.
        reference: Outputs by ONNX name, taps by tap name, and the timings.
        sources: Python lines of tensors, ``None`` for an ONNX model.
        manifest: The taps and the model's own outputs.
        notes: What was assumed, changed, or should be known.
    """

    onnx: Path
    inputs: Path
    reference: Path
    sources: Path | None
    manifest: Manifest
    notes: tuple[str, ...] = ()

    @property
    def uncompared(self) -> tuple[tuple[str, str], ...]:
        """Returns the taps without a reference value, with the reason of each."""
        return tuple((t.name, t.reason) for t in self.manifest.taps if t.reference == "none")


@dataclass(frozen=True, slots=True)
class Made:
    """What a route leaves in its folder, before anything is put in its place.

    Attributes:
        feeds: Inputs by ONNX name.
        reference: Outputs and taps.
        manifest: The taps and outputs.
        notes: For the user.
    """

    feeds: Mapping[str, Array]
    reference: Mapping[str, Array]
    manifest: Manifest
    notes: tuple[str, ...]


def prepare(
    model_file: Path,
    *,
    onnx_out: Path,
    npz_out: Path,
    reference_out: Path,
    debug_taps: Sequence[str] = (),
    plugin_taps: bool = False,
    plugin_ops: Sequence[str] = (),
    plugin_references: Sequence[str] = (),
    inputs: Sequence[str | Path | Mapping[str, Any]] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> Prepared:
    """Writes the ONNX model, its inputs and its reference values.

    With no taps asked for, the ONNX is byte for byte that of the same model without taps.

    Args:
        model_file: A Python file with ``Model`` and ``get_fwd_args()``, or an ONNX file.
        onnx_out: Where the ONNX model goes; lines of tensors go to ``<onnx_out>.sources.json``.
        npz_out: Where the inputs go.
        reference_out: Where the reference values go.
        debug_taps: Taps to expose by name; ``all`` wins.  For an ONNX model, names of tensors.
        plugin_taps: Whether to expose every input and output of every plugin.
        plugin_ops: Operators that count as plugins too, ``Op`` or ``domain::Op``.
        plugin_references: ``domain::Op=module:function``, what a plugin should compute.
        inputs: For an ONNX model, files or mappings with inputs; random ones when not given.
        input_shapes: For an ONNX model, shapes of random inputs.
        seed: Of random inputs.

    Raises:
        ModelError: The model cannot be loaded or exported.
        ModelCodeError: The model's own code raised.
        TapError: A manual tap cannot be compared; the message names it, the reason and the mend.
        UsageError: Anything else that was given does not fit.
    """
    request = Request(
        Path(model_file), Path(onnx_out), tuple(debug_taps), plugin_taps or bool(plugin_ops),
        tuple(plugin_ops), load_references(plugin_references), tuple(inputs),
        dict(input_shapes or {}), seed,
    )  # fmt: skip
    _check(request, (Path(onnx_out), Path(npz_out), Path(reference_out)))
    torch = request.model.suffix == ".py"
    with _workplace(request.onnx_out) as folder:
        staged = folder / request.onnx_out.name
        made = _route(request, staged, torch=torch)
        write_npz(Path(npz_out), made.feeds)
        write_npz(Path(reference_out), made.reference)
        for file in sorted(folder.glob(f"{staged.name}*"), reverse=True):  # the model last
            os.replace(file, request.onnx_out.with_name(file.name))
    sources = request.onnx_out.with_name(f"{staged.name}.sources.json") if torch else None
    return Prepared(
        request.onnx_out, Path(npz_out), Path(reference_out), sources, made.manifest, made.notes
    )


def _route(request: Request, staged: Path, *, torch: bool) -> Made:
    if torch:
        from debugtaps.prepare_torch import prepare_torch

        return prepare_torch(request, staged)
    from debugtaps.prepare_onnx import prepare_onnx

    return prepare_onnx(request, staged)


def _check(request: Request, outs: Sequence[Path]) -> None:
    if not request.model.exists():
        raise ModelError(f"{request.model}: no such file; expected a Python or an ONNX model")
    if request.model.suffix == ".py" and (request.inputs or request.input_shapes):
        raise UsageError(
            f"{request.model}: the inputs of a Python model come from its get_fwd_args(); leave "
            "--inputs and --input-shapes out"
        )
    places = [out.resolve() for out in outs]
    if len(set(places)) < len(places) or request.model.resolve() in places:
        raise OutputError("the model and the three files to write must be four different files")
    for out in outs:
        if out.is_dir():
            raise OutputError(f"{out}: is a folder; name the file to write")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out.parent}: cannot be made: {error.strerror or error}") from None


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """A folder beside the result, so that what is whole can be moved into place."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name[:40]}.", dir=out.parent))
    except OSError as error:
        raise OutputError(f"{out.parent}: cannot be written: {error.strerror or error}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
