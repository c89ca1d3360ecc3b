"""What the answer of an entry depends on, as one key: equal keys need no second look.

The model with its weights, what it is fed, the engine as it describes itself with its options,
the reference, the precision, the machine's processor and GPUs, and this program's version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tapsect
from debugtaps import EngineFailure, Host, TapsError, external_files, resolve
from tapsect.environment import environment
from tapsect.triage.job import Job, Stopped
from tapsect.triage.plan import EngineChoice, Entry

__all__ = ["Contents", "Known", "arguments", "shared", "told_engines"]

_LOAD_S = 120.0


@dataclass(frozen=True, slots=True)
class Known:
    """An entry, what its answer depends on, and what is to be done for it.

    Attributes:
        entry: The entry.
        facts: What a person compares when an answer changed: model, inputs, engine, machine.
        job: The diagnosis.
        stopped: Why it cannot be made, where that is known beforehand.
    """

    entry: Entry
    facts: Mapping[str, Any]
    job: Job
    stopped: Stopped | None = None

    @property
    def key(self) -> str:
        """Returns the digest of what the answer depends on."""
        return self.job.key


def told_engines(engines: Iterable[EngineChoice]) -> dict[str, Mapping[str, Any] | Stopped]:
    """Returns by name what each engine says of itself, or why it does not load."""
    choices = {e.name: e for e in engines}
    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(zip(choices, pool.map(_described, choices.values()), strict=True))


def _described(choice: EngineChoice) -> Mapping[str, Any] | Stopped:
    spec = resolve(choice.spec, choice.options)
    try:
        with Host(spec, python=choice.python, timeout=_LOAD_S) as host:
            return dict(host.describe())
    except (EngineFailure, TapsError) as error:
        return Stopped("engine", f"engine {choice.name} does not load: {error}")


class Contents:
    """Digests the files of entries, each file once.

    Args:
        engines: What each engine says of itself, by name.
        machine: What the findings' environment says of this machine.
    """

    def __init__(
        self,
        engines: Mapping[str, Mapping[str, Any] | Stopped],
        machine: Mapping[str, Any] | None = None,
    ) -> None:
        found = environment() if machine is None else machine
        self.machine = {k: found[k] for k in ("cpu", "gpus") if k in found}
        self.engines = engines
        self._digests: dict[Path, str] = {}
        self._models: dict[Path, list[Path]] = {}

    def of(self, entry: Entry) -> Known:
        """Returns what the answer of an entry depends on, and its job."""
        files = {str(p): self._digest(p) for p in self._files(entry)}
        told = self.engines[entry.engine.name]
        stopped = told if isinstance(told, Stopped) else None
        facts = {
            "model": _joined(files[str(p)] for p in self._model(entry.model)),
            "inputs": _joined(files[str(p.absolute())] for p in entry.inputs),
            "engine": {**_named(entry.engine.spec, files), "options": dict(entry.engine.options),
                       "describe": {} if stopped else told},
            "precision": entry.engine.precision, "machine": self.machine,
            "tapsect": tapsect.__version__,
        }  # fmt: skip
        given = arguments(entry)
        # Folders differ from machine to machine, contents do not.
        plain = json.dumps(given, sort_keys=True)
        for path, digest in sorted(files.items(), key=lambda f: -len(f[0])):
            plain = plain.replace(json.dumps(path)[1:-1], digest)
        body = json.dumps([facts, plain], sort_keys=True, default=str)
        key = hashlib.sha256(body.encode()).hexdigest()
        limits = entry.limits.model_dump(exclude_none=True, include={"time", "memory"})
        job = Job(
            key, key[:20], entry.name, given, files,
            {k: float(v) for k, v in limits.items()}, entry.engine.gpus, entry.engine.cpus,
        )  # fmt: skip
        return Known(entry, facts, job, stopped)

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            try:
                with path.open("rb") as file:
                    self._digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:  # this, too, is said where it is diagnosed
                self._digests[path] = f"unreadable: {error.strerror}"
        return self._digests[path]

    def _model(self, path: Path) -> list[Path]:
        """Returns a model's file and those that hold its weights, read once."""
        if path not in self._models:
            self._models[path] = _model_files(path)
        return self._models[path]

    def _files(self, entry: Entry) -> list[Path]:
        found = [*self._model(entry.model), *(p.absolute() for p in entry.inputs)]
        if entry.reference_model is not None:
            found += self._model(entry.reference_model)
        for text in (entry.engine.spec, entry.engine.reference or "", entry.judge or ""):
            where = text.rpartition(":")[0] or text
            if where.endswith((".py", ".npz", ".json")):
                found.append(Path(where).absolute())
        return list(dict.fromkeys(found))


def _model_files(path: Path) -> list[Path]:
    """Returns a model's file and those that hold its weights."""
    path = path.absolute()
    if path.suffix != ".onnx":
        return [path]
    try:
        return [path, *(path.parent / name for name in external_files(path))]
    except Exception:  # no ONNX file: what is wrong with it is said where it is diagnosed
        return [path]


def _joined(digests: Iterable[str]) -> str:
    """Returns one short digest of several."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _named(spec: str, files: Mapping[str, str]) -> dict[str, str]:
    """Returns what an engine is called without its folder, and what its file holds."""
    where, colon, name = spec.rpartition(":")
    if not where.endswith(".py"):
        return {"spec": spec}
    path = Path(where)
    return {"spec": f"{path.name}{colon}{name}", "source": files[str(path.absolute())][:16]}


def arguments(entry: Entry) -> dict[str, Any]:
    """Returns the arguments of ``tapsect.bisect``, those that are given, as JSON data."""
    engine, limits = entry.engine, entry.limits
    given: dict[str, Any] = {
        "model": str(entry.model.absolute()),
        "inputs": [str(p.absolute()) for p in entry.inputs],
        "input_shapes": {k: list(v) for k, v in entry.input_shapes.items()} or None,
        "engine": _absolute(engine.spec),
        "engine_options": dict(engine.options) or None,
        "engine_python": str(engine.python.absolute()) if engine.python else None,
        "reference": _absolute(engine.reference) if engine.reference else None,
        "reference_model": str(entry.reference_model.absolute()) if entry.reference_model else None,
        "precision": engine.precision,
        "judge": _absolute(entry.judge) if entry.judge else None,
        "budget": limits.budget,
        "most_builds": limits.builds,
        "seed": entry.seed,
    }
    return {k: v for k, v in given.items() if v is not None}


def _absolute(text: str) -> str:
    """Returns a specification or a file's name that means the same from any folder."""
    where, colon, name = text.rpartition(":")
    if where.endswith(".py"):
        return f"{Path(where).absolute()}{colon}{name}"
    return str(Path(text).absolute()) if text.endswith((".npz", ".json")) else text


def shared(known: Sequence[Known]) -> dict[str, list[Known]]:
    """Returns the entries by key: one look serves all that have one."""
    found: dict[str, list[Known]] = {}
    for each in known:
        found.setdefault(each.key, []).append(each)
    return found
