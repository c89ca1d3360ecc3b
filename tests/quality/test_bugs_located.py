"""Published faults of ONNX Runtime, located in the version that has them: the exact minimal set.

Faults that the installed version still has run with the core tests; those of older versions are
marked ``bugs`` and run under the interpreter of that version (``make bugs``).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import onnxruntime
import pytest

from support.bug_models import CASES, BugCase, Size
from support.bugs import OuterCase, interpreter, outer_cases
from tapsect import bisect
from tapsect.finding import Finding

STILL_THERE = ("ort-layernorm-keepdims0", "ort-layernorm-rank1")
"""Faults that ONNX Runtime 1.32 has, by the case's name."""

FINER = {"ort-cast-roundtrip-f64": frozenset({"fault/Cast", "fault/Cast_1"})}
"""Where floors see the fault earlier than the tolerance the truth was made with: the deleted
round trip shows at the second Cast already, without the subtraction that makes it large."""

CHAOTIC = "ort-cast-roundtrip-f64"
"""Its embedded model of the collection amplifies the last bit of a layer: two correct builds of
one version differ by 19 % there, and what the fault adds cannot be told from that."""

EVERY = [
    pytest.param(case, size, id=f"{case.id}-{size}") for case in CASES for size in get_args(Size)
]


def located(case: BugCase, size: Size, folder: Path, python: Path | None) -> Finding:
    """Returns what the bisector says of one case."""
    built = case.build(size)
    model, inputs = built.save(folder)
    return bisect(
        model,
        inputs=[inputs],
        engine="ort",
        engine_python=python,
        reference="onnx" if case.reference == "onnx" else None,
        out=folder / "out",
    )


def assert_located(case: BugCase, finding: Finding) -> None:
    """Asserts cause, symptom and the exact smallest set of nodes."""
    assert (finding.status, finding.cause) == ("diverges", "engine_defect"), finding.message
    assert finding.failure == case.failure
    assert finding.minimal is not None
    allowed = {case.minimal, FINER.get(case.id, case.minimal)}
    assert frozenset(finding.minimal.nodes) in allowed
    assert set(finding.culprit_nodes) <= case.culprits | case.minimal
    assert finding.minimal.one_minimal


def python_of(version: str) -> Path | None:
    """Returns the interpreter of a version, ``None`` for the installed one, or skips."""
    if version == onnxruntime.__version__:
        return None
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no interpreter with ONNX Runtime {version} can be made here")
    return python


@pytest.mark.parametrize("size", get_args(Size))
@pytest.mark.parametrize("case", [c for c in CASES if c.id in STILL_THERE], ids=lambda c: c.id)
def test_the_installed_version_shows_its_faults(case: BugCase, size: Size, tmp_path: Path) -> None:
    finding = located(case, size, tmp_path, None)
    if finding.status == "agrees":
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} has {case.thread} no more")
    assert_located(case, finding)


@pytest.mark.bugs
@pytest.mark.parametrize(("case", "size"), EVERY)
def test_each_fault_is_located_in_its_version(case: BugCase, size: Size, tmp_path: Path) -> None:
    assert_located(case, located(case, size, tmp_path, python_of(case.version)))


@pytest.mark.bugs
def test_the_case_folder_shows_the_fault_under_the_old_interpreter(tmp_path: Path) -> None:
    case = next(c for c in CASES if c.id == "ort-pad-avgpool")
    python = python_of(case.version)
    located(case, "embedded", tmp_path, python)
    check = tmp_path / "out" / "case" / "check.py"
    old = subprocess.run([str(python), str(check)], capture_output=True, check=False)
    new = subprocess.run([sys.executable, str(check)], capture_output=True, check=False)
    assert (old.returncode, new.returncode) == (1, 0), (old.stdout, new.stdout)


@pytest.mark.bugs
@pytest.mark.parametrize("outer", outer_cases(), ids=lambda c: f"{c.id}-{c.size}")
def test_the_collections_own_models_are_located(outer: OuterCase, tmp_path: Path) -> None:
    model, inputs = outer.built.save(tmp_path)
    finding = bisect(
        model,
        inputs=[inputs],
        engine_python=python_of(outer.version),
        reference="onnx" if outer.id == "ort-int-div-zero" else None,
        out=tmp_path / "out",
    )
    if outer.id == CHAOTIC and outer.size == "embedded":
        assert (finding.status, finding.cause) == ("agrees", "ill_conditioned")
        return
    assert finding.cause == "engine_defect", finding.message
    assert finding.minimal is not None
    nodes = frozenset(finding.minimal.nodes)
    assert nodes == outer.minimal or (outer.id == CHAOTIC and nodes < outer.minimal)
