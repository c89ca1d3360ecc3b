"""One entry as a process of its own gets it, and what became of it.  Plain data, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Done", "Job", "Stopped"]

StopKind = Literal["time", "memory", "builds", "died", "refused", "failed", "engine"]

_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|0x[0-9a-fA-F]+|\d[\d.]*|\{[^}]*\}|\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why an entry has no finding.

    Attributes:
        kind: ``time``, ``memory`` or ``builds``: over its limit; ``died``: its process ended by
            itself; ``refused``: the model or its inputs cannot be used; ``failed``: the
            environment cannot do it; ``engine``: the engine does not load.
        message: One sentence.
    """

    kind: StopKind
    message: str

    @property
    def symptom(self) -> str:
        """Returns it without what differs from model to model."""
        if self.kind in ("time", "memory", "builds"):
            return f"over its limit of {self.kind}"
        return f"{self.kind}: {' '.join(_VARIES.sub('…', self.message).split())[:120]}"


@dataclass(frozen=True, slots=True)
class Job:
    """One diagnosis to make.

    Attributes:
        key: What its answer depends on, as a digest.
        folder: The name of its folder among those of all findings.
        entry: The entry it is for; where several have one key, the first.
        arguments: Of ``tapsect.bisect``, JSON data; paths are absolute.
        files: The files among them and beside them, by path: their digests.
        limits: Of ``time`` (seconds) and ``memory`` (bytes); without one, none.
        gpus, cpus: What it takes of a machine.
    """

    key: str
    folder: str
    entry: str
    arguments: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    gpus: float = 0.0
    cpus: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a job.

    Attributes:
        key: Of the job.
        result: What ``result.json`` holds; ``None`` when there is none.
        stopped: Why there is none.
        seconds: Wall time of its process.
    """

    key: str
    result: Mapping[str, Any] | None
    stopped: Stopped | None = None
    seconds: float = 0.0
