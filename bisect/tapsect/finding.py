"""The result of one diagnosis, as frozen data, and its form in ``result.json``.

The shape of the file is a contract (``SCHEMA``): a new field is free, a changed one raises the
number.  Non-finite numbers are written as the strings "inf", "-inf" and "nan".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from debugtaps import InputError
from tapsect.observed import InputsSeen, Repeats, Separated

__all__ = [
    "SCHEMA",
    "Cost",
    "Coverage",
    "Divergence",
    "Finding",
    "Fix",
    "Minimal",
    "OutputReport",
    "Step",
    "Unseen",
]

SCHEMA = 1

Status = Literal["agrees", "diverges", "inconclusive"]
Evidence = Literal["tapped", "healed", "isolated", "predicate"]
Hidden = Literal["fused_away", "healed", "untappable", "unreliable", "not_judged"]


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One model output of one sample, engine against reference.

    ``floor`` is the end-to-end floor as rms over the rms of the reference; ``rel_rms`` the rms
    error over the rms of the reference.
    """

    name: str
    sample: int
    failing: bool
    max_abs: float | None = None
    rel_rms: float | None = None
    cosine: float | None = None
    floor: float | None = None
    nonfinite_engine: int = 0
    nonfinite_reference: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One place where the engine's answer leaves the reference's.

    ``introduced`` and ``propagated`` are rms errors over the rms of the replayed tensor;
    ``rounding_ratio`` is the ratio that decided.  ``None`` where no number exists.
    """

    tensor: str
    node: str
    op_type: str
    introduced: float | None = None
    propagated: float | None = None
    rounding_ratio: float | None = None
    evidence: Evidence = "tapped"
    tap: str | None = None
    source: str | None = None
    kernel: str | None = None
    nodes: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Minimal:
    """The smallest failing case: files relative to the result's folder, and its proof."""

    model: str
    inputs: str
    expected: str
    nodes: tuple[str, ...]
    values: Literal["reference", "engine"]
    reproduced: int
    of: int
    one_minimal: bool = True


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the model was seen.  ``tensors`` is the sum of the other five."""

    verified: int = 0
    fused_away: int = 0
    untappable: int = 0
    unreliable: int = 0
    not_judged: int = 0

    @property
    def tensors(self) -> int:
        """Returns the number of tensors counted."""
        return self.verified + self.fused_away + self.untappable + self.unreliable + self.not_judged


@dataclass(frozen=True, slots=True)
class Unseen:
    """Inner tensors that no trusted tap showed.

    Attributes:
        why: ``fused_away`` into a kernel, ``healed`` (a look at them changes the failure),
            ``untappable``, ``unreliable`` or ``not_judged``.
        tensors: Their names.
        kernel: The kernel that holds them, where the engine tells.
    """

    why: Hidden
    tensors: tuple[str, ...]
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that was tried and what it did.

    Errors are the worst output's rms error over the rms of what it should be; latencies seconds
    of one run.  ``cures`` is false where an error of rounding was only halved.
    """

    kind: str
    setting: str
    error_before: float | None = None
    error_after: float | None = None
    latency_before: float | None = None
    latency_after: float | None = None
    cures: bool = True


@dataclass(frozen=True, slots=True)
class Cost:
    """What the diagnosis cost: engine builds and runs; those of reduction and fixes apart."""

    builds: int = 0
    runs: int = 0
    seconds: float = 0.0
    reduce_builds: int = 0
    fix_builds: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of the flow, with its reason and the engine builds it took."""

    step: str
    decision: str
    why: str
    builds: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one diagnosis."""

    message: str
    status: Status
    tool_version: str
    command: tuple[str, ...] = ()
    failure: str | None = None
    cause: str | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    precision: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[OutputReport, ...] = ()
    first_divergence: Divergence | None = None
    culprit_nodes: tuple[str, ...] = ()
    also: tuple[Divergence, ...] = ()
    harmless: tuple[Divergence, ...] = ()
    contributors: tuple[Divergence, ...] = ()
    signature: Mapping[str, Any] = field(default_factory=dict)
    minimal: Minimal | None = None
    coverage: Coverage = Coverage()
    unseen: tuple[Unseen, ...] = ()
    fixes: tuple[Fix, ...] = ()
    repeats: Repeats | None = None
    samples: InputsSeen | None = None
    cost: Cost = Cost()
    trail: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    said: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Returns 0 agrees, 1 diverges and is located or explained, 3 diverges unlocated."""
        if self.status == "agrees":
            return 0
        return 1 if self.status == "diverges" else 3

    def to_json(self) -> dict[str, Any]:
        """Returns the content of ``result.json``: JSON types only, no NaN or infinity."""
        body = {"schema": SCHEMA, **_plain(self)}
        body["coverage"] = {"tensors": self.coverage.tensors, **body["coverage"]}
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Returns the finding that a ``result.json`` holds; fields it does not know are skipped.

        Raises:
            InputError: The file is of another schema, or a field of it is not as it must be.
        """
        schema = body.get("schema") if isinstance(body, Mapping) else None
        if schema != SCHEMA:
            raise InputError(
                f"This result has schema {schema!r}, this version reads {SCHEMA};"
                " read it with the version that wrote it."
            )
        finding: Self = _read(cls, body, "result")
        return finding


_PARTS: Mapping[str, type] = {
    "outputs": OutputReport,
    "first_divergence": Divergence,
    "also": Divergence,
    "harmless": Divergence,
    "contributors": Divergence,
    "minimal": Minimal,
    "coverage": Coverage,
    "unseen": Unseen,
    "fixes": Fix,
    "repeats": Repeats,
    "samples": InputsSeen,
    "separated_by": Separated,
    "cost": Cost,
    "trail": Step,
}
_NONFINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _read(kind: Any, body: Any, where: str) -> Any:
    if not isinstance(body, Mapping):
        raise InputError(f"{where} is no object in this result.json; write it again.")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        if each.name in body:
            path = f"{where}.{each.name}"
            given[each.name] = _field(each.name, hints[each.name], body[each.name], path)
    try:
        return kind(**given)
    except TypeError as error:
        raise InputError(f"{where} lacks a field in this result.json ({error}).") from None


def _field(name: str, hint: Any, value: Any, where: str) -> Any:
    part = _PARTS.get(name)
    if isinstance(value, list) and str(hint).startswith("tuple["):
        if part is not None:
            return tuple(_read(part, item, f"{where}[{i}]") for i, item in enumerate(value))
        value = tuple(value)
    elif part is not None and value is not None:
        return _read(part, value, where)
    elif isinstance(value, str) and "float" in str(hint):
        value = _NONFINITE.get(value, value)
    if not _fits(hint, value):
        raise InputError(
            f"{where} is {repr(value)[:60]} in this result.json, which is no value for it; write"
            " the result again."
        )
    return value


def _fits(hint: Any, value: Any) -> bool:
    """Returns whether a value is of the type that a field declares."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value in parts
    if kind is tuple:
        return isinstance(value, tuple) and all(_fits(parts[0], item) for item in value)
    if kind is Mapping:
        return isinstance(value, Mapping)
    if parts:  # a union
        return any(_fits(part, value) for part in parts)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    return value
