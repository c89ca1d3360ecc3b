"""A diagnosis that is stopped in the middle goes on where it was: no probe is made twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support import counting_engine, zoo

ENGINE = f"{Path(counting_engine.__file__)}:CountingEngine"
FAULT = [{"kind": "fusion", "nodes": ["block3/Conv", "block3/Relu", "block4/Conv"]}]


def command(folder: Path, out: Path, count: Path, pause: float) -> list[str]:
    """Returns the command of a diagnosis that takes about two dozen builds."""
    model, inputs = folder / "model.onnx", folder / "inputs.npz"
    options = {"faults": json.dumps(FAULT), "count": json.dumps(str(count)), "pause": str(pause)}
    given = [part for k, v in options.items() for part in ("--engine-option", f"{k}={v}")]
    return [
        sys.executable, "-m", "tapsect", "bisect", str(model), "--inputs", str(inputs),
        "--engine", ENGINE, *given, "--out", str(out), "--quiet",
    ]  # fmt: skip


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stopped(arguments: list[str], out: Path, probes: int, how: signal.Signals) -> int:
    """Runs a diagnosis until so many lines stand in its journal, stops it, returns its status."""
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        deadline = time.monotonic() + 120
        while lines(out / "journal.jsonl") < probes and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(how)
        return process.wait(60)


def told(out: Path) -> dict[str, Any]:
    """Returns what a result says, less what it cost."""
    body: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
    kept = ("status", "failure", "cause", "culprit_nodes", "first_divergence", "minimal")
    return {key: body[key] for key in kept}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """Returns what a diagnosis says that nobody stops, and its builds."""
    folder = tmp_path_factory.mktemp("whole")
    zoo.chain_cnn(12).save(folder)
    line = command(folder, folder / "out", folder / "count", 0.0)
    assert subprocess.run(line, stdout=subprocess.DEVNULL, check=False).returncode == 1
    return told(folder / "out"), lines(folder / "count")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("how", "status", "probes"),
    [
        (signal.SIGKILL, -9, 5),
        (signal.SIGKILL, -9, 16),
        (signal.SIGINT, 130, 8),
        (signal.SIGTERM, 143, 6),
    ],
    ids=["killed-early", "killed-late", "ctrl-c", "ended"],
)
def test_stopped_diagnosis_goes_on_and_makes_no_probe_twice(
    how: signal.Signals, status: int, probes: int, whole: tuple[dict[str, Any], int], tmp_path: Path
) -> None:
    zoo.chain_cnn(12).save(tmp_path)
    part, count = tmp_path / "part", tmp_path / "count"
    said, builds = whole
    again = command(tmp_path, part, count, 0.05)
    assert stopped(again, part, probes, how) == status
    before = lines(count)
    kept = lines(part / "journal.jsonl") - 1
    assert not (part / "result.json").exists()
    assert before < builds
    assert subprocess.run(again, stdout=subprocess.DEVNULL, check=False).returncode == 1
    assert told(part) == said
    # What was being built when the end came was not written down; all else was.
    assert lines(count) - before == builds - kept
    assert before - kept <= 1
