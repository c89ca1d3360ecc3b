"""What the answer of an entry depends on: all of it changes the key, where files lie does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

pytest.importorskip("ruamel.yaml")

from support.nights import tiny
from tapsect.triage.content import Contents
from tapsect.triage.plan import read_plan

SUITE = """\
engines:
- {name: e, spec: "engine.py:Engine", options: {level: basic}, precision: fp32, limits: {time: 9}}
models:
- {path: m/model.onnx, inputs: [m/inputs.npz], judge: "judge.py:judge", seed: 1}
"""
TOLD = {"name": "engine", "versions": {"engine": "1.0"}}
MACHINE = {"cpu": "one", "gpus": ["H200, 580.1"], "platform": "any"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "here"
    built = tiny("m")
    built.save(home / "m", external=True)
    for name in ("engine.py", "judge.py"):
        (home / name).write_text("# nothing\n")
    (home / "suite.yaml").write_text(SUITE)
    return home


def key(folder: Path, told: Mapping[str, Any] = TOLD, machine: Mapping[str, Any] = MACHINE) -> str:
    (entry,) = read_plan(folder / "suite.yaml").entries
    return Contents({"e": told}, machine).of(entry).key


def test_where_files_lie_does_not_count(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "there")
    assert key(folder) == key(folder.parent / "there")


def test_the_weights_are_among_the_files(folder: Path) -> None:
    (entry,) = read_plan(folder / "suite.yaml").entries
    files = Contents({"e": TOLD}, MACHINE).of(entry).job.files
    assert {Path(path).name for path in files} == {
        "model.onnx", "model.weights", "inputs.npz", "judge.py", "engine.py",
    }  # fmt: skip


def in_suite(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        assert old in SUITE
        (folder / "suite.yaml").write_text(SUITE.replace(old, new))

    return change


def in_file(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[-1] ^= 1
        (folder / name).write_bytes(data)

    return change


def rename_a_node(folder: Path) -> None:
    path = folder / "m/model.onnx"
    model = onnx.load(path, load_external_data=False)
    model.graph.node[0].name = "other"
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "change",
    [
        rename_a_node,
        in_file("m/model.weights"),
        in_file("m/inputs.npz"),
        in_file("engine.py"),
        in_file("judge.py"),
        in_suite("basic", "all"),
        in_suite("fp32", "fp16"),
        in_suite("seed: 1", "seed: 2"),
        in_suite("inputs: [m/inputs.npz]", "inputs: []"),
    ],
)
def test_what_is_asked_counts(change: Callable[[Path], None], folder: Path) -> None:
    before = key(folder)
    change(folder)
    assert key(folder) != before


def test_engine_and_machine_count_limits_do_not(folder: Path) -> None:
    before = key(folder)
    assert key(folder, {**TOLD, "versions": {"engine": "1.1"}}) != before
    assert key(folder, machine={**MACHINE, "gpus": ["H200, 580.2"]}) != before
    assert key(folder, machine={**MACHINE, "cpu": "two"}) != before
    assert key(folder, machine={**MACHINE, "platform": "other"}) == before
    in_suite("time: 9", "time: 10")(folder)
    assert key(folder) == before
