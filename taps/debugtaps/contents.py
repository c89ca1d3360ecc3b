"""What a build archive holds.

    engine/…             what the session saved of itself, or
    model/…              the model, when a session cannot save: with the options in the manifest,
                         the engine can be built again
    manifest.json        the model, the engine, the taps and the order of the tensors
    inputs.npz           the sample that was run
    sample_outputs.npz   outputs and taps by name
    plugins.json         what became of each boundary of each plugin
    build.log            the last lines the engine printed
    environment.json     versions, and what the engine says of itself

Equal content gives equal bytes, as far as the engine writes equal files.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from debugtaps.bindings import Binding
from debugtaps.engines.contract import Array
from debugtaps.engines.registry import EngineSpec
from debugtaps.graph import Graph, external_files
from debugtaps.manifest import Manifest
from debugtaps.store import write_json_atomic, write_npz, write_text_atomic
from debugtaps.verification import SAMPLE_OUTPUTS

__all__ = ["Made", "lay_out"]

SCHEMA = 1
_PACKAGES = ("tapsect", "numpy", "onnx", "ml_dtypes")


@dataclass(frozen=True, slots=True)
class Made:
    """A build and everything that is known of it.

    Attributes:
        spec: The engine.
        graph: The model.
        manifest: Its taps and outputs.
        bindings: What became of each tap.
        order: Outputs and taps in model order.
        feeds: The sample that was run.
        outputs: What came back, outputs and taps by name.
        described: What the engine says of itself.
        arch: What the engine was built for.
        precision: What it computes in.
        log: What it printed last.
        saved: The folder that the session saved itself to; ``None`` when it cannot.
        notes: What else there is to know.
    """

    spec: EngineSpec
    graph: Graph
    manifest: Manifest
    bindings: tuple[Binding, ...]
    order: tuple[str, ...]
    feeds: Mapping[str, Array]
    outputs: Mapping[str, Array]
    described: Mapping[str, Any]
    arch: str
    precision: str
    log: str
    saved: Path | None
    notes: tuple[str, ...]


def lay_out(made: Made, folder: Path) -> dict[str, Path]:
    """Writes what is not there yet into ``folder`` and returns all files by their archive names."""
    folder.mkdir()
    write_npz(folder / "inputs.npz", made.feeds)
    write_npz(folder / SAMPLE_OUTPUTS, made.outputs, meta=_sample_meta(made))
    plugins = [asdict(each) for each in made.bindings if each.kind == "plugin"]
    write_json_atomic(folder / "plugins.json", {"schema": SCHEMA, "boundaries": plugins})
    write_text_atomic(folder / "build.log", f"{made.log}\n" if made.log else "")
    write_json_atomic(folder / "environment.json", _environment(made.described))
    files = {**_files(folder), **_engine_files(made)}
    write_json_atomic(folder / "manifest.json", _about(made, files))
    return {**files, "manifest.json": folder / "manifest.json"}


def _sample_meta(made: Made) -> dict[str, Any]:
    """Returns what the comparison needs, so that the sample alone is as good as the build."""
    kinds: dict[str, str] = dict.fromkeys(made.manifest.outputs, "output")
    kinds |= {tap.name: tap.kind for tap in made.bindings}
    return {
        "order": list(made.order),
        "precision": made.precision,
        "kinds": kinds,
        "reasons": {tap.name: tap.reason for tap in made.bindings if tap.reason},
    }


def _about(made: Made, files: Mapping[str, Path]) -> dict[str, Any]:
    graph, spec = made.graph, made.spec
    return {
        "schema": SCHEMA,
        "model": {"file": graph.path.name, "sha256": graph.sha256, "nodes": len(graph.nodes)},
        "engine": {
            "spec": spec.spec,
            "options": _plain(spec.options),
            "holds": "the model and the options" if made.saved is None else "the saved engine",
        },
        "arch": made.arch,
        "precision": made.precision,
        "outputs": list(made.manifest.outputs),
        "taps": [asdict(tap) for tap in made.manifest.taps],
        "order": list(made.order),
        "notes": list(made.notes),
        "files": {
            name: {"size": path.stat().st_size, "sha256": _digest(path)}
            for name, path in sorted(files.items())
        },
    }


def _environment(described: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: told for name in _PACKAGES if (told := _version(name))},
        "engine": _plain(described),
    }


def _plain(value: Mapping[str, Any]) -> Any:
    """Returns what JSON takes: words for NaN and infinity, and for what it does not know."""
    return json.loads(json.dumps(dict(value), default=str), parse_constant=str)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path, under: str = "") -> dict[str, Path]:
    found = (each for each in folder.rglob("*") if each.is_file())
    return {under + each.relative_to(folder).as_posix(): each for each in found}


def _engine_files(made: Made) -> dict[str, Path]:
    if made.saved is not None:
        return _files(made.saved, "engine/")
    path = made.graph.path
    beside = {f"model/{each}": path.parent / each for each in external_files(path)}
    return {f"model/{path.name}": path, **beside}
