"""What a person writes in ``suite.yaml``: models, engines, limits, expectations.

Strict: an unknown key, a wrong type or a missing file is one sentence with its file and line.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, model_validator

from debugtaps import InputError
from tapsect.triage.yaml_lines import Document, read_yaml

__all__ = [
    "Cause",
    "EngineRow",
    "Expectation",
    "Limits",
    "Matrix",
    "ModelRow",
    "Suite",
    "read_suite",
]

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[^/*?\[\]\s][^/*?\[\]\n]*$")]
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16"]
Cause = Literal[
    "agrees", "engine_defect", "precision_limit", "ill_conditioned", "input_sensitive",
    "flaky_build", "flaky_run", "export_mismatch", "reference_suspect", "unsupported",
    "resource_limit", "inconclusive",
]  # fmt: skip


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Limits(_Row):
    """What one entry may cost.

    Seconds of wall time, memory of its processes, engine builds; and, of the time, the seconds
    for what only makes a failing case smaller.
    """

    time: Annotated[float, Field(gt=0)] | None = None
    memory: Annotated[ByteSize, Field(gt=0)] | None = None
    builds: Annotated[int, Field(gt=0)] | None = None
    budget: Annotated[float, Field(ge=0)] | None = None

    def over(self, base: Limits) -> Limits:
        """Returns these limits, completed by those of ``base``."""
        return base.model_copy(update=self.model_dump(exclude_none=True))


class Matrix(_Row):
    """Values that are tried one with each other."""

    options: dict[Text, Annotated[list[Any], Field(min_length=1)]] = {}
    precision: list[Precision] = []
    python: list[Text] = []


class EngineRow(_Row):
    """One engine, or several by its matrix; the same words as those of ``tapsect bisect``."""

    name: Name
    spec: Text = "ort"
    options: dict[Text, Any] = {}
    python: Text | None = None
    precision: Precision | None = None
    reference: Text | None = None
    matrix: Matrix = Matrix()
    limits: Limits = Limits()
    gpus: Annotated[float, Field(ge=0)] | None = None
    cpus: Annotated[float, Field(gt=0)] = 1.0


class ModelRow(_Row):
    """One model, or several by a glob, and what each is fed.

    ``inputs`` is a list of files (the samples of one entry), or a mapping from a name to such a
    list (one entry each); ``{dir}`` and ``{stem}`` stand for those of the model.
    """

    path: Text
    name: Name | None = None
    inputs: list[Text] | dict[Name, Annotated[list[Text], Field(min_length=1)]] = []
    input_shapes: dict[Text, list[int]] = {}
    engines: list[Text] = ["*"]
    reference_model: Text | None = None
    judge: Text | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    limits: Limits = Limits()


class Expectation(_Row):
    """What is known of entries beforehand; a failure is expected until a day, not for ever."""

    entries: Text
    answer: Cause
    until: Annotated[dt.date, Field(strict=False)] | None = None
    why: str = ""

    @model_validator(mode="after")
    def _expires(self) -> Expectation:
        if self.answer != "agrees" and self.until is None:
            raise ValueError("an expected failure needs a last day: until: 2030-12-31")
        return self


class Suite(_Row):
    """A suite: its models times its engines."""

    name: Name | None = None
    history: Text = "history.sqlite"
    out: Text = "triage"
    limits: Limits = Limits(time=1800.0)
    engines: Annotated[list[EngineRow], Field(min_length=1)]
    models: Annotated[list[ModelRow], Field(min_length=1)]
    expect: list[Expectation] = []


def read_suite(path: Path) -> tuple[Suite, Document]:
    """Returns a suite and the lines of its file.

    Raises:
        InputError: It cannot be read, or says something a suite cannot say; the message has
            file and line.
    """
    document = read_yaml(path)
    if not isinstance(document.data, Mapping):
        raise InputError(f"{path}:1: a suite has the keys engines and models; this is none.")
    try:
        return Suite.model_validate(document.data), document
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        more = error.error_count() - 1
        place = tuple(k for k in first["loc"] if not _is_branch(k))
        what = _words(first["type"], first["msg"], ".".join(str(k) for k in place))
        raise document.error(place, what + (f" ({more} more errors)" if more else "")) from None


def _is_branch(key: Any) -> bool:
    """Returns whether a key is the validator's name of a choice, and none of the file."""
    return isinstance(key, str) and ("[" in key or key in ("ByteSize", "list", "dict"))


def _words(kind: str, message: str, where: str) -> str:
    if kind == "extra_forbidden":
        return f"unknown key {where!r}; docs/triage.md lists the keys."
    if kind == "missing":
        return f"{where!r} is missing."
    return f"{where!r}: {message.removeprefix('Value error, ')}."
