"""A build in one file: the engine, its taps, a sample of what it answers, and how it was made."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from debugtaps.archive import write_archive
from debugtaps.bindings import Binding, bindings, check_bindings, model_order
from debugtaps.contents import Made, lay_out
from debugtaps.engines.contract import Array
from debugtaps.engines.host import Build, Host
from debugtaps.engines.registry import EngineSpec
from debugtaps.errors import InputError, ModelError, OutputError, TapError
from debugtaps.feeds import InputSpec, Sample, Source, load_inputs
from debugtaps.graph import Graph, load_graph
from debugtaps.manifest import Manifest, read_manifest
from debugtaps.scores import PRECISIONS

__all__ = ["Package", "compile_model"]

_SAID = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class Package:
    """A build that was written.

    Attributes:
        path: The archive.
        precision: What the engine computes in, as stated or as the model's types say.
        saved: Whether it holds the engine itself; else the model and the engine's options.
        names: Outputs and taps in model order.
        bindings: What became of each tap.
        notes: What else there is to know.
    """

    path: Path
    precision: str
    saved: bool
    names: tuple[str, ...]
    bindings: tuple[Binding, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a session answered, and what its engine said."""

    found: Mapping[str, Array]
    described: Mapping[str, Any]
    log: str
    saved: bool
    notes: tuple[str, ...]


def compile_model(
    model: Path,
    inputs: Source,
    *,
    spec: EngineSpec,
    output: Path | None = None,
    python: Path | None = None,
    timeout: float = 600.0,
    precision: str | None = None,
) -> Package:
    """Builds a model with its taps, runs a sample and writes both into one file.

    Args:
        model: An ONNX file; the taps are those of its manifest.
        inputs: One sample, as ``load_inputs`` takes it.
        spec: The engine, from ``resolve``.
        output: The archive, or, without the ending ``.tgz``, a folder for it; here when not
            given.  Its name is then ``<model>.<arch>.<precision>.tgz``.  It appears whole or
            not at all.
        python: The interpreter to run the engine under; this one when not given.
        timeout: Seconds that the build or the run may take.
        precision: What the engine computes in: fp64, fp32, tf32, fp16, bf16.  What the engine
            says of itself, or else the model's narrowest float type, when not given.

    Raises:
        ModelError, InputError, SpecError, OutputError: What was given cannot be used.
        EngineFailure: The engine refused, died or was late.
        TapError: The build lost a tap that it was made to show.
    """
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"precision '{precision}' is none of {', '.join(PRECISIONS)}.")
    if output is not None:
        _check_output(output)
    with tempfile.TemporaryDirectory(prefix="tapsect-") as work:
        folder = Path(work)
        graph = load_graph(model, folder / "weights")
        manifest = _manifest(model, graph)
        sample = _one_sample(inputs, graph)
        with Host(spec, python=python, timeout=timeout) as host:
            answer = _build_and_run(host, model, sample, manifest, folder / "engine")
        taps = bindings(manifest, answer.found, answer.notes)
        check_bindings(taps)
        _check_outputs(spec, manifest, answer)
        made = Made(
            spec=spec,
            graph=graph,
            manifest=manifest,
            bindings=taps,
            order=model_order(graph, manifest),
            feeds=sample.feeds,
            outputs=_by_name(answer.found, manifest),
            described=answer.described,
            arch=_arch(answer.described),
            precision=precision or _precision(answer.described, graph),
            log=answer.log,
            saved=folder / "engine" if answer.saved else None,
            notes=answer.notes,
        )
        target = _target(output, model, made)
        _write(target, lay_out(made, folder / "content"))
        return Package(target, made.precision, answer.saved, made.order, taps, answer.notes)


def _manifest(model: Path, graph: Graph) -> Manifest:
    """Returns the manifest of the model, in which every output that is no tap is an output."""
    found = read_manifest(model) or Manifest()
    tapped = {tap.output for tap in found.taps}
    outputs = tuple(name for name in graph.outputs if name not in tapped)
    for tap in found.taps:
        if tap.name in outputs:
            raise ModelError(
                f"{model}: '{tap.name}' is a tap and an output of it; prepare it again with"
                " another name for the tap"
            )
    return Manifest(found.version, found.taps, outputs)


def _one_sample(inputs: Source, graph: Graph) -> Sample:
    specs = [_input_spec(n, t.elem, t.shape) for n, t in graph.inputs.items()]
    specs += [_input_spec(n, t.elem, t.shape, optional=True) for n, t in graph.overridable.items()]
    found = load_inputs([inputs], specs)
    if len(found) != 1:
        raise InputError(f"{inputs} holds {len(found)} samples; a build runs one, give one.")
    return found[0]


def _input_spec(
    name: str, elem: int, shape: tuple[int | str | None, ...] | None, *, optional: bool = False
) -> InputSpec:
    if elem == TensorProto.STRING:
        return InputSpec(name, "string", shape, optional)
    return InputSpec(name, np.dtype(helper.tensor_dtype_to_np_dtype(elem)), shape, optional)


def _build_and_run(
    host: Host, model: Path, sample: Sample, manifest: Manifest, engine: Path
) -> _Answer:
    wanted = [*manifest.outputs, *(tap.output for tap in manifest.taps)]
    described = dict(host.describe())
    # The taps are outputs of the file already: for an engine with another way to look inside
    # there is nothing left to promote.
    taps = () if host.promotes_taps else tuple(tap.output for tap in manifest.taps)
    with host.build(model, taps) as build:
        log = [host.tail()]
        found = build.run(sample.feeds, names=wanted)
        log.append(host.tail())
        saved, notes = _save(build, engine)
        text = "\n".join(each for each in log if each)
        return _Answer(found, described, text, saved, (*notes, *build.notes))


def _check_outputs(spec: EngineSpec, manifest: Manifest, answer: _Answer) -> None:
    for output in manifest.outputs:
        if output not in answer.found:
            held = ", ".join(map(repr, answer.found)) or "nothing"
            raise TapError(f"engine {spec.spec!r} returned no output '{output}', only {held}")


def _save(build: Build, engine: Path) -> tuple[bool, tuple[str, ...]]:
    if "save" not in build.has:
        return False, ("the engine cannot be saved: the build holds the model and the options",)
    engine.mkdir()
    build.save(engine)
    if any(each.is_file() for each in engine.rglob("*")):
        return True, ()
    return False, ("the engine saved no file: the build holds the model and the options",)


def _by_name(found: Mapping[str, Array], manifest: Manifest) -> dict[str, Array]:
    named = {output: output for output in manifest.outputs}
    named |= {tap.output: tap.name for tap in manifest.taps}
    return {named[output]: array for output, array in found.items()}


def _arch(described: Mapping[str, Any]) -> str:
    """Returns what the engine was built for: ``sm90``, or the processor of this machine."""
    told = str(described.get("arch") or "")
    if not told and (capability := str(described.get("compute_capability") or "")):
        told = "sm" + capability.replace(".", "").removeprefix("sm")
    return told if told.replace("_", "").isalnum() else platform.machine()


def _precision(described: Mapping[str, Any], graph: Graph) -> str:
    """Returns what the engine says it computes in, else the narrowest float of the model."""
    told = str(described.get("precision") or "")
    told = _SAID.get(told, told)
    if told in PRECISIONS:
        return told
    used = {graph.elem(tensor) for node in graph.nodes for tensor in (*node.reads, *node.writes)}
    if TensorProto.BFLOAT16 in used:
        return "bf16"
    if TensorProto.FLOAT16 in used:
        return "fp16"
    return "fp64" if TensorProto.DOUBLE in used and TensorProto.FLOAT not in used else "fp32"


def _target(output: Path | None, model: Path, made: Made) -> Path:
    name = f"{model.stem}.{made.arch}.{made.precision}.tgz"
    if output is None:
        return Path(name)
    return output if _is_archive(output) else output / name


def _is_archive(output: Path) -> bool:
    return output.name.endswith((".tgz", ".tar.gz")) and not output.is_dir()


def _check_output(output: Path) -> None:
    """Checks before a long build that its file can be written."""
    nearest = output.parent if _is_archive(output) else output
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(f"{output} cannot be written: {nearest} is no folder that takes files.")


def _write(target: Path, files: Mapping[str, Path]) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_archive(target, files)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}.") from None
