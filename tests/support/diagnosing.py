"""Diagnoses for tests: a planted fault, one call, and what must hold of every finding."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tapsect
from support.build import Built
from tapsect.finding import Finding

__all__ = ["Diagnosed", "case_status", "diagnose", "trail_of"]


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A finding and the folder it was written to."""

    finding: Finding
    folder: Path

    @property
    def places(self) -> list[frozenset[str]]:
        """Returns the nodes of each place that was found, the first one first."""
        also = [frozenset(a.nodes) for a in self.finding.also]
        return [frozenset(self.finding.culprit_nodes), *also]

    @property
    def minimal(self) -> frozenset[str] | None:
        """Returns the nodes of the minimal case."""
        return None if self.finding.minimal is None else frozenset(self.finding.minimal.nodes)


def diagnose(
    built: Built,
    faults: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Diagnosed:
    """Returns the finding for a model with planted faults, checked for what always holds.

    Args:
        built: The model and its sample.
        faults: What is planted.
        folder: An empty folder for model, inputs and results.
        options: Further options of the planted engine.
        **more: Given to ``tapsect.bisect``.
    """
    model, inputs = built.save(folder / "given")
    told = {"faults": [dict(f) for f in faults], "state": str(folder / "state"), **(options or {})}
    if "inner" not in told:
        told = {"intra_op_num_threads": 1, **told}  # idle ones would spin
    more = {"inputs": [inputs], "engine": "planted", "engine_options": told, **more}
    finding = tapsect.bisect(model, out=folder / "out", **more)
    found = Diagnosed(finding, folder / "out")
    assert_sound(found)
    return found


def assert_sound(found: Diagnosed) -> None:
    """Asserts what holds of every finding, whatever was wrong."""
    finding = found.finding
    body = json.loads((found.folder / "result.json").read_text(encoding="utf-8"))
    assert Finding.from_json(body).to_json() == body
    parts = ("verified", "fused_away", "untappable", "unreliable", "not_judged")
    assert body["coverage"]["tensors"] == sum(body["coverage"][p] for p in parts)
    assert sum(step.builds for step in finding.trail) <= (
        finding.cost.builds + finding.cost.reduce_builds + finding.cost.fix_builds
    )
    assert finding.exit_code == {"agrees": 0, "diverges": 1, "inconclusive": 3}[finding.status]
    assert not (found.folder / ".work").exists()
    assert not (found.folder / ".probes").exists()
    if finding.minimal is not None:
        assert finding.minimal.one_minimal
        for name in (finding.minimal.model, finding.minimal.inputs, finding.minimal.expected):
            assert (found.folder / name).is_file()


def case_status(found: Diagnosed) -> int:
    """Returns the exit status of the case's own check, run as a person would run it."""
    check = found.folder / "case" / "check.py"
    return subprocess.run(
        [sys.executable, str(check)], capture_output=True, check=False, timeout=300
    ).returncode


def trail_of(found: Diagnosed) -> str:
    """Returns the decisions in words, for a failing test."""
    steps = (f"{s.builds:3d} {s.step}: {s.decision}: {s.why}" for s in found.finding.trail)
    return "\n".join([found.finding.message, *steps])
