"""Builds that choose among variants: what was chosen, forced, kept, and what it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import SpecError

CHAIN = """
    <ir_version: 8, opset_import: ["" : 17]>
    chain (float[4] x) => (float[4] y)
    { [a] q = Neg(x)
      [b] y = Relu(q) }
"""
X = np.array([-1, -2, -3, 4], np.float32)
RIGHT = np.maximum(-X, 0)
VARIANTS = {"a": ["direct", "winograd"], "b": ["one", "two", "three"], "elsewhere": ["x", "y"]}
FAULT = {"kind": "value", "nodes": "a", "scale": 2.0, "tactic": {"a": "winograd"}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(CHAIN), path)
    return path


@pytest.fixture
def engine() -> Iterator[Any]:
    hosts: list[Host] = []

    def make(**options: Any) -> Host:
        told = {"faults": [FAULT], "variants": VARIANTS, **options}
        hosts.append(Host(resolve("planted", told), timeout=20.0))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


def test_each_build_chooses_anew_and_says_so(engine: Any, model: Path) -> None:
    host = engine(seed=3)
    builds = [host.build(model) for _ in range(12)]
    assert "tactics" in builds[0].has
    chosen = [build.tactics() for build in builds]
    assert all(set(each) == {"a", "b"} for each in chosen)
    assert {each["a"] for each in chosen} == set(VARIANTS["a"])
    assert {each["b"] for each in chosen} == set(VARIANTS["b"])


def test_a_fault_of_a_variant_strikes_only_where_it_was_chosen(engine: Any, model: Path) -> None:
    host = engine(seed=1)
    for build in [host.build(model) for _ in range(8)]:
        factor = 2.0 if build.tactics()["a"] == "winograd" else 1.0
        np.testing.assert_array_equal(build.run({"x": X})["y"], factor * RIGHT)


@pytest.mark.parametrize(("choice", "factor"), [("direct", 1.0), ("winograd", 2.0)])
def test_a_forced_choice_is_made_each_time(
    engine: Any, model: Path, choice: str, factor: float
) -> None:
    host = engine(tactics={"a": choice})
    for build in [host.build(model) for _ in range(4)]:
        assert build.tactics()["a"] == choice
        np.testing.assert_array_equal(build.run({"x": X})["y"], factor * RIGHT)


@pytest.mark.parametrize("forced", [{"a": "unheard"}, {"nowhere": "x"}])
def test_a_choice_that_there_is_not_is_refused(engine: Any, model: Path, forced: Any) -> None:
    with pytest.raises(SpecError, match="it takes (direct, winograd|nothing)"):
        engine(tactics=forced).build(model)


def test_what_was_saved_chooses_no_more(engine: Any, model: Path, tmp_path: Path) -> None:
    host = engine(seed=1)
    for number in range(6):
        build, folder = host.build(model), tmp_path / f"kept{number}"
        folder.mkdir()
        build.save(folder)
        again = host.load(folder)
        assert again.tactics() == build.tactics()
        np.testing.assert_array_equal(again.run({"x": X})["y"], build.run({"x": X})["y"])
