"""What a report draws beside the finding: the graph, the error along it, the culprit's values.

A diagnosis writes it as ``profile.json``; a result without one is as valid, it only has no
pictures.  Errors are rms over the rms of the replayed tensor, as in ``result.json``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from debugtaps import InputError, write_text_atomic
from tapsect.folder import PROFILE

__all__ = ["SCHEMA", "Culprit", "Element", "Operator", "Point", "Profile", "read_profile"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Operator:
    """One node: its place in model order is its number.

    ``reads`` are the numbers of the nodes whose tensors it reads, ``depth`` the longest way, in
    nodes, from the inputs.
    """

    name: str
    op: str
    depth: int
    reads: tuple[int, ...] = ()
    plugin: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One tensor that the engine showed, judged.

    ``ratio`` is introduced error over floor, ``limit`` the ratio from which it is suspect.
    ``inherited`` (the propagated error) is known for a selection of tensors only.  ``cut`` says
    whether the replay began anew behind it.
    """

    tensor: str
    node: int
    dtype: str
    shape: tuple[int, ...]
    kind: str
    introduced: float | None = None
    inherited: float | None = None
    floor: float | None = None
    ratio: float | None = None
    limit: float | None = None
    low: float | None = None
    high: float | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """One element of the culprit's tensor: index, and what engine and reference have there."""

    index: tuple[int, ...]
    engine: float
    expected: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """Values of the culprit's tensor, counted into bins of equal width.

    ``errors`` counts absolute errors by decade: (exponent of ten, elements).
    """

    tensor: str
    source: Literal["tapped", "case"]
    elements: int
    differing: int
    edges: tuple[float, ...] = ()
    engine: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    errors: tuple[tuple[int, int], ...] = ()
    worst: tuple[Element, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """What there is to draw.  ``fused`` are sets of nodes that run as one kernel."""

    sample: int = 0
    operators: tuple[Operator, ...] = ()
    points: tuple[Point, ...] = ()
    fused: tuple[tuple[int, ...], ...] = ()
    inputs: tuple[str, ...] = ()
    culprit: Culprit | None = None
    schema: int = SCHEMA

    def write(self, folder: Path) -> None:
        """Writes ``profile.json`` into ``folder``, whole or not at all."""
        body = {"schema": self.schema, **_plain(self)}
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
        write_text_atomic(folder / PROFILE, text + "\n")


def read_profile(folder: Path) -> Profile | None:
    """Returns the profile of a folder that a diagnosis wrote; ``None`` where it has none.

    Raises:
        InputError: It is there and damaged, or of another schema.
    """
    from pydantic import TypeAdapter, ValidationError

    path = folder / PROFILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        found: Profile = TypeAdapter(Profile).validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "the whole"
        raise InputError(
            f"{path} is damaged at {where[:80]}; remove it for a report without pictures."
        ) from None
    if found.schema != SCHEMA:
        raise InputError(
            f"{path} has schema {found.schema}, this version reads {SCHEMA}; remove it for a"
            " report without pictures."
        )
    count = len(found.operators)
    numbers = [n for o in found.operators for n in o.reads] + [p.node for p in found.points]
    numbers += [n for group in found.fused for n in group]
    if not all(0 <= n < count for n in numbers):
        raise InputError(f"{path} names nodes that it does not hold; write it again.")
    return found


def _plain(value: Any) -> Any:
    """Returns JSON data; fields that are at their defaults are left out."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value):
        kind: type = type(value)
        held = ((name, getattr(value, name), default) for name, default in _fields(kind))
        return {name: _plain(v) for name, v, default in held if v != default}
    return value


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.default) for f in dataclasses.fields(kind) if f.name != "schema")
