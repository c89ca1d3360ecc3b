"""From a suite to its entries: every model with every input set on every engine."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from debugtaps import InputError, SpecError, resolve
from tapsect.triage.suite import EngineRow, Limits, ModelRow, Suite, read_suite
from tapsect.triage.yaml_lines import Document

__all__ = ["EngineChoice", "Entry", "Plan", "read_plan"]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """One engine of a suite, every choice made."""

    name: str
    spec: str
    options: Mapping[str, Any]
    python: Path | None
    precision: str | None
    reference: str | None
    limits: Limits
    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to look at each night: a model, what it is fed, an engine."""

    name: str
    model: Path
    inputs: tuple[Path, ...]
    engine: EngineChoice
    limits: Limits
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    reference_model: Path | None = None
    judge: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A suite that was read, with all its entries in order."""

    name: str
    suite: Suite
    folder: Path
    entries: tuple[Entry, ...]

    def only(self, patterns: Sequence[str]) -> tuple[Entry, ...]:
        """Returns the entries whose name one of the patterns fits; all when there is none.

        Raises:
            InputError: A pattern fits no entry.
        """
        for pattern in patterns:
            if not any(fnmatchcase(e.name, pattern) for e in self.entries):
                example = self.entries[0].name
                raise InputError(
                    f"--only {pattern!r} fits no entry of the suite; they look like {example!r}."
                )
        return tuple(
            e for e in self.entries
            if not patterns or any(fnmatchcase(e.name, p) for p in patterns)
        )  # fmt: skip


def read_plan(path: Path) -> Plan:
    """Returns the entries of a suite's file.

    Raises:
        InputError: As ``read_suite``; a file or engine it names is missing; two entries have one
            name.  The message has file and line.
    """
    suite, document = read_suite(path)
    planner = _Planner(suite, document)
    entries = tuple(planner.entries())
    return Plan(suite.name or path.stem, suite, path.parent, entries)


class _Planner:
    def __init__(self, suite: Suite, document: Document) -> None:
        self.suite, self.document = suite, document
        self.folder = document.path.parent
        self.engines = self._engines()

    def entries(self) -> Iterator[Entry]:
        """Yields every entry.

        Raises:
            InputError: Two of them have one name.
        """
        seen: dict[str, int] = {}
        for number, row in enumerate(self.suite.models):
            place = ("models", number)
            for entry in self._of_model(row, place):
                line = self.document.line(place)
                if entry.name in seen:
                    raise self.document.error(
                        place,
                        f"two entries are called {entry.name!r}, here and in line"
                        f" {seen[entry.name]}; give one of the models another name.",
                    )
                seen[entry.name] = line
                yield entry

    # -- engines -------------------------------------------------------------------------------

    def _engines(self) -> list[EngineChoice]:
        found: dict[str, EngineChoice] = {}
        for number, row in enumerate(self.suite.engines):
            place = ("engines", number)
            for choice in self._choices(row, place):
                if choice.name in found:
                    raise self.document.error(
                        (*place, "name"), f"two engines are called {choice.name!r}."
                    )
                found[choice.name] = choice
        return list(found.values())

    def _choices(self, row: EngineRow, place: tuple[str | int, ...]) -> Iterator[EngineChoice]:
        matrix = row.matrix
        axes: list[list[tuple[str, str, Any]]] = [
            [("options", key, value) for value in values] for key, values in matrix.options.items()
        ]
        axes += [[(k, k, v) for v in vs] for k, vs in
                 (("precision", matrix.precision), ("python", matrix.python)) if vs]  # fmt: skip
        for chosen in itertools.product(*axes):
            options = {**row.options, **{k: v for kind, k, v in chosen if kind == "options"}}
            plain = {kind: v for kind, _, v in chosen if kind != "options"}
            told = ",".join(f"{k}={v}" for _, k, v in chosen).replace("/", "|")
            python = plain.get("python", row.python)
            yield EngineChoice(
                f"{row.name}({told})" if told else row.name,
                self._spec(row.spec, options, (*place, "spec")), options,
                None if python is None else self._file(python, (*place, "python")),
                plain.get("precision", row.precision),
                self._reference(row.reference, (*place, "reference")),
                row.limits, row.gpus if row.gpus is not None else _gpus(row.spec), row.cpus,
            )  # fmt: skip

    def _spec(self, spec: str, options: Mapping[str, Any], place: tuple[str | int, ...]) -> str:
        """Returns a specification that means the same from any folder."""
        where, colon, name = spec.rpartition(":")
        if colon and where.endswith(".py"):
            spec = f"{self.folder / where}:{name}"
        try:
            resolve(spec, options)
        except SpecError as error:
            raise self.document.error(place, str(error)) from None
        return spec

    def _reference(self, text: str | None, place: tuple[str | int, ...]) -> str | None:
        if text is None:
            return None
        if text.endswith((".npz", ".json")):
            return str(self._file(text, place))
        return self._spec(text, {}, place)

    # -- models --------------------------------------------------------------------------------

    def _of_model(self, row: ModelRow, place: tuple[str | int, ...]) -> Iterator[Entry]:
        paths = self._files(row.path, (*place, "path"))
        if row.name is not None and len(paths) > 1:
            raise self.document.error(
                (*place, "name"), f"{len(paths)} models cannot all be called {row.name!r}."
            )
        chosen = self._chosen(row, place)
        judge = self._judge(row.judge, (*place, "judge")) if row.judge else None
        for path in paths:
            original = self._original(row, path, (*place, "reference_model"))
            for label, inputs in self._inputs(row, path, place):
                for engine in chosen:
                    parts = (row.name or path.stem, label, engine.name)
                    yield Entry(
                        "/".join(p for p in parts if p), path, inputs, engine,
                        row.limits.over(engine.limits.over(self.suite.limits)),
                        row.input_shapes, original, judge, row.seed,
                    )  # fmt: skip

    def _chosen(self, row: ModelRow, place: tuple[str | int, ...]) -> list[EngineChoice]:
        for number, pattern in enumerate(row.engines):
            if not any(fnmatchcase(e.name, pattern) for e in self.engines):
                names = ", ".join(e.name for e in self.engines[:6])
                raise self.document.error(
                    (*place, "engines", number),
                    f"no engine is called {pattern!r}; there are {names}.",
                )
        return [e for e in self.engines if any(fnmatchcase(e.name, p) for p in row.engines)]

    def _inputs(
        self, row: ModelRow, model: Path, place: tuple[str | int, ...]
    ) -> Iterator[tuple[str, tuple[Path, ...]]]:
        sets = row.inputs if isinstance(row.inputs, dict) else {"": row.inputs}
        for label, patterns in sets.items():
            files = [
                path for pattern in patterns
                for path in self._files(_filled(pattern, model), (*place, "inputs"))
            ]  # fmt: skip
            yield label, tuple(files)

    def _original(self, row: ModelRow, path: Path, place: tuple[str | int, ...]) -> Path | None:
        text = row.reference_model
        return None if text is None else self._file(_filled(text, path), place)

    def _judge(self, text: str, place: tuple[str | int, ...]) -> str:
        where, _, name = text.rpartition(":")
        if not where:
            raise self.document.error(place, f"{text!r} is no judge; write file.py:function.")
        return f"{self._file(where, place)}:{name}"

    # -- files ---------------------------------------------------------------------------------

    def _file(self, text: str, place: tuple[str | int, ...]) -> Path:
        path = self.folder / text
        if not path.exists():
            raise self.document.error(place, f"{text}: there is no such file in {self.folder}.")
        return path

    def _files(self, text: str, place: tuple[str | int, ...]) -> list[Path]:
        """Returns the files that a path or a glob names, in order of their names."""
        if not glob.has_magic(text) or (self.folder / text).exists():
            return [self._file(text, place)]
        found = sorted(glob.glob(text, root_dir=self.folder, recursive=True))
        if not found:
            raise self.document.error(place, f"{text}: no file in {self.folder} fits it.")
        return [self.folder / each for each in found]


def _filled(text: str, model: Path) -> str:
    """Returns a path with the model's folder and stem in their places."""
    escaped = {"{dir}": str(model.parent.absolute()), "{stem}": model.stem}
    for mark, value in escaped.items():
        text = text.replace(mark, glob.escape(value) if glob.has_magic(text) else value)
    return text


def _gpus(spec: str) -> float:
    """Returns how many GPUs an engine takes when its row does not say."""
    return 1.0 if spec.startswith("tensorrt") else 0.0
