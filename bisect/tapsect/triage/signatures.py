"""When two failures are the same fault: cause, operators, symptom and engine agree.

Names, weights, sizes, revisions and versions do not count, so that one fault of an engine is one
line however many models it hits, and stays that line from build to build.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tapsect.finding import Finding
from tapsect.triage.job import Stopped

__all__ = ["Signature", "of_finding", "of_stop"]

_OP = str.maketrans({"(": " ", ":": "."})


@dataclass(frozen=True, slots=True)
class Signature:
    """What makes failures the same fault.

    Attributes:
        cause: In the words of ``result.json``, ``inconclusive``, or ``not judged``.
        symptom: The kind of failure, and how much of a tensor it touches or what was said.
        pattern: The operators at fault, as ``diagnose.pattern`` writes them.
        engine: What runs them, without its version.
        precision: The precision that was asked for, where one was.
    """

    cause: str
    symptom: str
    pattern: tuple[str, ...]
    engine: str
    precision: str | None = None

    @property
    def digest(self) -> str:
        """Returns its short name: 12 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON data, always in one order."""
        return {
            "cause": self.cause, "symptom": self.symptom, "pattern": list(self.pattern),
            "engine": self.engine, "precision": self.precision,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Signature:
        """Returns what `to_json` wrote."""
        return cls(
            str(body["cause"]), str(body["symptom"]), tuple(body["pattern"]),
            str(body["engine"]), body["precision"],
        )  # fmt: skip

    @property
    def ops(self) -> tuple[str, ...]:
        """Returns the types of its operators, each once."""
        found = (line.partition("(")[0] for line in self.pattern if "(" in line)
        return tuple(dict.fromkeys(found))

    @property
    def words(self) -> str:
        """Returns it in a few words: ``engine defect in LayerNormalization float16 on ort``."""
        where = " + ".join(self.ops[:4]) + (" …" if len(self.ops) > 4 else "")
        kind = _data_type(self.pattern) or self.precision or ""
        place = f" in {where}" + (f" {kind}" if kind else "") if where else ""
        return f"{self.cause.replace('_', ' ')}{place} on {self.engine}: {self.symptom}"


def of_finding(finding: Finding) -> Signature | None:
    """Returns the signature of a finding; ``None`` when the engine agrees."""
    if finding.status == "agrees":
        return None
    told = finding.signature
    cause = finding.cause or "inconclusive"
    parts = [finding.failure or "difference", told.get("extent", ""), told.get("detail", "")]
    return Signature(
        cause, ", ".join(str(p) for p in parts if p), tuple(told.get("pattern", ())),
        _engine(finding.engine), told.get("precision"),
    )  # fmt: skip


def of_stop(stop: Stopped, engine: str) -> Signature:
    """Returns the signature of an entry that could not be judged."""
    return Signature("not judged", stop.symptom, (), engine)


def _engine(told: Mapping[str, Any]) -> str:
    """Returns what an engine is called: by itself, or by its specification without folders."""
    name = told.get("describe", {}).get("name")
    spec = str(told.get("spec", "?"))
    return str(name) if name else spec.replace("\\", "/").rpartition("/")[2]


def _data_type(pattern: Sequence[str]) -> str:
    """Returns the type of what the first operator writes."""
    written = pattern[0].rpartition("-> ")[2] if pattern else ""
    return written.split("r")[0].rstrip() if "r" in written else ""
