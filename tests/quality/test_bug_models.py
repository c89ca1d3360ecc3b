"""The published faults are there in the versions they name, and their stated truth is true.

Marked ``bugs``: needs old versions of ONNX Runtime, made on first use (``support.bugs``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from support.bug_models import CASES, BugCase, Size
from support.bugs import extract, interpreter, outer_cases, run_elsewhere
from support.build import Built

pytestmark = pytest.mark.bugs

EVERY = [
    pytest.param(case, size, id=f"{case.id}-{size}") for case in CASES for size in get_args(Size)
]


def python_of(case: BugCase) -> Path:
    """Returns the interpreter of the case's version, or skips."""
    python = interpreter(case.version)
    if python is None:
        pytest.skip(f"no interpreter with ONNX Runtime {case.version} can be made here")
    return python


def all_values(case: BugCase, built: Built, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Returns every tensor as the case's reference computes it."""
    model = onnx.shape_inference.infer_shapes(built.model)
    infos = {i.name: i for i in [*model.graph.output, *model.graph.value_info]}
    names = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(infos[name] for name in names)
    values = truth(case, Built(model, built.feeds), folder)
    return {**built.feeds, **dict(zip(names, values, strict=True))}


def fails(python: Path, built: Built, folder: Path, want: list[np.ndarray[Any, Any]]) -> str | None:
    """Returns how the engine fails on ``built``, or ``None`` when it agrees with ``want``."""
    got = run_elsewhere(python, built, folder)
    if got.failure:
        return got.failure
    for g, w in zip(got.outputs, want, strict=True):
        limit = 1e-3 * (np.abs(w) + 0.1 * np.abs(w).max())
        if g.shape != w.shape or (np.abs(g.astype(np.float64) - w) > limit).any():
            return "accuracy"
    return None


def truth(case: BugCase, built: Built, folder: Path) -> list[np.ndarray[Any, Any]]:
    """Returns the reference's outputs."""
    if case.reference == "onnx":
        with np.errstate(all="ignore"):
            return [np.asarray(v) for v in ReferenceEvaluator(built.model).run(None, built.feeds)]
    import onnxruntime

    python = interpreter(onnxruntime.__version__)
    assert python is not None
    return list(run_elsewhere(python, built, folder, level="OFF").outputs)


@pytest.mark.parametrize(("case", "size"), EVERY)
def test_model_is_valid_and_names_its_culprits(case: BugCase, size: Size) -> None:
    built = case.build(size)
    onnx.checker.check_model(built.model, full_check=True)
    assert case.culprits <= set(built.names)
    assert case.minimal <= set(built.names)
    assert (len(built.names) > 20) == (size == "embedded")


@pytest.mark.parametrize(("case", "size"), EVERY)
def test_version_fails_as_published(case: BugCase, size: Size, tmp_path: Path) -> None:
    built = case.build(size)
    want = truth(case, built, tmp_path)
    assert want
    assert fails(python_of(case), built, tmp_path, want) == case.failure
    off = run_elsewhere(python_of(case), built, tmp_path, level="OFF")
    close = off.failure is None and all(
        np.allclose(o, w, rtol=1e-3, atol=1e-3 * np.abs(w).max())
        for o, w in zip(off.outputs, want, strict=True)
    )
    assert close != case.every_level


@pytest.mark.parametrize(("case", "size"), EVERY)
def test_stated_minimal_set_fails_and_loses_the_fault_with_any_node(
    case: BugCase, size: Size, tmp_path: Path
) -> None:
    built = case.build(size)
    values = all_values(case, built, tmp_path)

    def failure(nodes: frozenset[str]) -> str | None:
        part = extract(built, nodes, values)
        want = [values[part.model.graph.output[0].name]]
        return fails(python_of(case), part, tmp_path, want)

    assert failure(case.minimal) == case.failure
    for node in case.minimal if len(case.minimal) > 1 else ():
        assert failure(case.minimal - {node}) is None, node


@pytest.mark.parametrize("outer", outer_cases(), ids=lambda c: c.name)
def test_outer_collection_can_be_read(outer: Any) -> None:
    names = {node.name for node in outer.built.model.graph.node}
    assert outer.minimal <= names
    assert set(outer.built.feeds) == {i.name for i in outer.built.model.graph.input}
