"""Builds against a reference, tensor by tensor, in model order.

Arrays are paired by equal names and nothing else, so a tap is one more tensor to score.  A tensor
that diverges is reported and never an error; what a user limits is judged by `exceeded`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from debugtaps.archive import member_file
from debugtaps.bounds import Bound, Exceeded, check_bounds, limit_for
from debugtaps.errors import InputError
from debugtaps.scores import PRECISIONS, SCORES, Row, described, mark_fall, row_of
from debugtaps.store import read_meta, read_npz

__all__ = ["SAMPLE_OUTPUTS", "Compared", "Verification", "verify"]

Array = npt.NDArray[Any]

SAMPLE_OUTPUTS = "sample_outputs.npz"
TELEMETRY = frozenset({"benchmark_timings_ms"})
_SUFFIXES = (".tgz", ".tar.gz", ".npz")
_OTHER = "this can occur when plugin taps without a torch value are enabled"


@dataclass(frozen=True, slots=True)
class Compared:
    """One build against the reference.

    Attributes:
        name: The build's file without its ending; with its folder where two would be alike.
        path: The file.
        precision: What the build states, empty when it states nothing.
        rows: One a tensor of either side, in model order; at most one is marked.
    """

    name: str
    path: Path
    precision: str
    rows: tuple[Row, ...]

    @property
    def falls_off(self) -> Row | None:
        """Returns the first row that falls off."""
        return next((row for row in self.rows if row.falls_off), None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns how many names of either side nothing pairs with, one sentence a side."""
        said = []
        for state, words in (
            ("no reference", f"missing in the reference, {_OTHER}"),
            ("no output", "missing in the sample output"),
        ):
            count = sum(row.state == state for row in self.rows)
            if count:
                outputs = "output is" if count == 1 else "outputs are"
                said.append(f"[{self.name}]: {count} {outputs} {words}")
        return tuple(said)


@dataclass(frozen=True, slots=True)
class Verification:
    """One reference and the builds compared with it."""

    reference: Path
    builds: tuple[Compared, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns the warnings of all builds."""
        return tuple(warning for build in self.builds for warning in build.warnings)

    def exceeded(self, bounds: Iterable[Bound]) -> tuple[Exceeded, ...]:
        """Returns the rows beyond a limit, in model order; unpaired ones are never judged.

        A row that cannot be scored is beyond every limit but an infinite one.

        Raises:
            InputError: A limit names a tensor that no build compares.
        """
        given = tuple(bounds)
        check_bounds(given, list(dict.fromkeys(r.name for b in self.builds for r in b.rows)))
        found = []
        for build in self.builds:
            for row in build.rows:
                for score in SCORES:
                    value, limit = row.score(score.key), limit_for(given, score.key, row.name)
                    if value is not None and limit is not None and score.beyond(value, limit):
                        found.append(Exceeded(build.name, row.name, score, value, limit))
        return tuple(found)

    def to_json(self, exceeded: Sequence[Exceeded] = ()) -> dict[str, Any]:
        """Returns plain data; numbers that are not finite are the strings inf, -inf, nan."""
        builds = []
        for build in self.builds:
            fallen = build.falls_off
            builds.append(
                {
                    "name": build.name,
                    "path": str(build.path),
                    "precision": build.precision or None,
                    "falls_off": None if fallen is None else fallen.name,
                    "warnings": list(build.warnings),
                    "rows": [_fields(row) for row in build.rows],
                }
            )
        beyond = [
            {
                "build": each.build,
                "tensor": each.row,
                "score": each.score.key,
                "value": _plain(each.value),
                "limit": _plain(each.limit),
            }
            for each in exceeded
        ]
        return {"schema": 1, "reference": str(self.reference), "builds": builds, "exceeded": beyond}

    def to_csv(self) -> str:
        """Returns one line a row of every build, with a header."""
        text = io.StringIO()
        lines = [{"build": b.name, **_fields(row)} for b in self.builds for row in b.rows]
        if lines:
            writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        return text.getvalue()


def _fields(row: Row) -> dict[str, Any]:
    m = row.metrics
    return {
        "name": row.name,
        "kind": row.kind or None,
        "state": row.state,
        "falls_off": row.falls_off,
        "engine": row.engine or None,
        "reference": row.reference or None,
        **{score.key: _plain(row.score(score.key)) for score in SCORES},
        "ulp_p99": m.ulp_p99,
        "nonfinite_engine": m.nonfinite_engine,
        "nonfinite_reference": m.nonfinite_reference,
        "nonfinite_differs": m.nonfinite_differs,
        "note": row.note(),
    }


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))


@dataclass(frozen=True, slots=True)
class _Sample:
    """The tensors of one build, and what it says of them."""

    path: Path
    tensors: Mapping[str, Array]
    order: tuple[str, ...]
    kinds: Mapping[str, str]
    reasons: Mapping[str, str]
    precision: str


def verify(reference: Path, builds: Sequence[Path]) -> Verification:
    """Compares builds with a reference.

    Args:
        reference: The ``.npz`` that holds the reference's outputs and taps.
        builds: Files of ``tapsect compile``, or the ``sample_outputs.npz`` of one.

    Raises:
        InputError: A file is missing or damaged, or shares no tensor with the reference.
    """
    if not builds:
        raise InputError("there is no build to compare; name at least one")
    wanted = _tensors(reference)
    samples = [_read(path) for path in builds]
    order = _model_order(wanted, samples)
    for sample in samples:
        if not wanted.keys() & sample.tensors.keys():
            raise InputError(
                f"{sample.path} shares no tensor with {reference}: it holds"
                f" {_some(sample.tensors)}, the reference {_some(wanted)};"
                " were both made from one model?"
            )
    names = _names([sample.path for sample in samples])
    return Verification(
        reference,
        tuple(
            _compared(name, sample, wanted, order)
            for name, sample in zip(names, samples, strict=True)
        ),
    )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = " …" if len(listed) > 4 else ""
    return ", ".join(map(repr, listed[:4])) + more if listed else "nothing"


def _tensors(path: Path) -> dict[str, Array]:
    return {name: array for name, array in read_npz(path).items() if name not in TELEMETRY}


def _read(path: Path) -> _Sample:
    if path.suffix == ".npz":
        return _sample(path, path)
    with member_file(path, SAMPLE_OUTPUTS) as file:
        return _sample(path, file)


def _sample(path: Path, file: Path) -> _Sample:
    tensors, meta = _tensors(file), read_meta(file)
    order = meta.get("order")
    return _Sample(
        path,
        tensors,
        tuple(str(name) for name in order) if isinstance(order, list) else (),
        _texts(meta.get("kinds")),
        _texts(meta.get("reasons")),
        str(meta.get("precision") or ""),
    )


def _texts(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _model_order(wanted: Mapping[str, Array], samples: Sequence[_Sample]) -> dict[str, int]:
    """Returns the place of each name: as the first build that knows it says, else by the files."""
    told = [name for sample in samples for name in sample.order]
    found = [name for sample in samples for name in sample.tensors]
    return {name: place for place, name in enumerate(dict.fromkeys([*told, *wanted, *found]))}


def _compared(
    name: str, sample: _Sample, wanted: Mapping[str, Array], order: Mapping[str, int]
) -> Compared:
    rows = []
    for each in sorted({*wanted, *sample.tensors}, key=order.__getitem__):
        kind, got, want = sample.kinds.get(each, ""), sample.tensors.get(each), wanted.get(each)
        if got is None and want is not None:
            rows.append(Row(each, "no output", kind, reference=described(want)))
        elif got is not None and want is None:
            reason = sample.reasons.get(each, "")
            rows.append(Row(each, "no reference", kind, described(got), reason=reason))
        elif got is not None and want is not None:
            rows.append(dataclasses.replace(row_of(each, got, want), kind=kind))
    precision = PRECISIONS.get(sample.precision, 0.0)
    return Compared(name, sample.path, sample.precision, mark_fall(rows, precision))


def _names(paths: Sequence[Path]) -> list[str]:
    """Returns what to call the builds: the whole path where the file's name is not enough."""
    short = [_stem(path.name) for path in paths]
    return [
        _stem(str(path)) if short.count(name) > 1 else name
        for path, name in zip(paths, short, strict=True)
    ]


def _stem(name: str) -> str:
    ending = next((each for each in _SUFFIXES if name.endswith(each)), "")
    return name.removesuffix(ending)
