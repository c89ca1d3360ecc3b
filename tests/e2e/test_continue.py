"""Killed, interrupted, finished, another command, two at once: what a folder goes through."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import contract, zoo
from tapsect.cli import main

FAULT = ("--engine", "slow.py:Slow")
SLOW = '''
"""ONNX Runtime with a planted fault; each build waits until it may go on."""
import json, pathlib, time
from debugtaps.engines.planted import Planted

HERE = pathlib.Path(__file__).parent

class Slow(Planted):
    def __init__(self):
        super().__init__(kind="value", nodes=["stage0/Conv"])

    def build(self, model, taps=()):
        with (HERE / "builds.txt").open("a") as file:
            file.write("x")
        count = len((HERE / "builds.txt").read_text())
        limit = int((HERE / "limit.txt").read_text())
        while count > limit:
            time.sleep(0.05)
            limit = int((HERE / "limit.txt").read_text())
        return super().build(model, taps)
'''


def laid_out(folder: Path) -> Path:
    """Returns the folder with the model and the engine in it."""
    zoo.residual(1).save(folder)
    (folder / "slow.py").write_text(SLOW)
    (folder / "builds.txt").touch()
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return laid_out(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """Returns the result of a diagnosis that nobody stops, and its builds."""
    folder = laid_out(tmp_path_factory.mktemp("whole"))
    done = finished(folder, command())
    assert done.returncode == 1, done.stderr
    return contract.check(folder / "o"), builds(folder)


def allow(place: Path, builds: int) -> None:
    """Lets the engine make this many builds; the next one waits."""
    (place / "limit.new").write_text(str(builds))
    (place / "limit.new").replace(place / "limit.txt")


def builds(place: Path) -> int:
    return len((place / "builds.txt").read_text())


def command(*more: str) -> list[str]:
    """Returns the command; what only makes a case prettier stops by the clock, and is left out."""
    words = ["bisect", "model.onnx", "--inputs", "inputs.npz", "--out", "o", "--budget", "0"]
    return [*words, *FAULT, *more]


def start(place: Path, argv: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tapsect", *argv], cwd=place, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


def probes(place: Path) -> int:
    journal = place / "o" / "journal.jsonl"
    if not journal.exists():
        return 0
    return sum(b'"entry": "probe"' in line for line in journal.read_bytes().splitlines())


def until(place: Path, count: int, running: subprocess.Popen[str]) -> None:
    """Waits until so many builds were begun and all before the last are written down."""
    deadline = time.monotonic() + 120
    while builds(place) < count or probes(place) < count - 1:
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)


def finished(place: Path, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    allow(place, 10_000)
    running = start(place, argv)
    out, err = running.communicate(timeout=240)
    return subprocess.CompletedProcess(running.args, running.returncode, out, err)


@pytest.mark.parametrize("at", [2, 4])
def test_a_killed_diagnosis_continues_and_loses_no_probe(
    place: Path, at: int, whole: tuple[dict[str, Any], int]
) -> None:
    other, needed = whole
    allow(place, at - 1)
    running = start(place, command())
    until(place, at, running)
    running.kill()
    running.communicate()
    with (place / "o" / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"entry": "probe", "key": "torn')  # as a write that was cut off
    assert not (place / "o" / "result.json").exists()
    done = finished(place, command())
    assert done.returncode == 1, done.stderr
    assert f"continued: {at - 1} probes are known from an earlier run" in done.stderr
    # Each build once, and the one that was cut off again.
    assert builds(place) == needed + 1
    body = contract.check(place / "o")
    assert body["culprit_nodes"] == ["stage0/Conv"]
    assert f"continued: {at - 1} probes are known from an earlier run" in body["notes"]
    for field in ("message", "culprit_nodes", "outputs", "coverage"):
        assert body[field] == other[field]
    assert body["cost"]["builds"] == other["cost"]["builds"]


def test_an_interrupted_diagnosis_says_how_to_go_on(place: Path) -> None:
    allow(place, 1)
    running = start(place, command())
    until(place, 2, running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == ""
    assert "interrupted; run the same command again to continue" in err.splitlines()[-1]
    assert "Traceback" not in err
    left = {p.name for p in (place / "o").iterdir()}
    assert left == {"journal.jsonl", ".probes"}
    done = finished(place, command())
    assert done.returncode == 1
    assert "continued: 1 probes" in done.stderr


def test_two_at_once_in_one_folder_are_one_too_many(place: Path) -> None:
    allow(place, 1)
    running = start(place, command())
    until(place, 2, running)
    second = start(place, command())
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out) == (2, "")
    assert err.splitlines() == [
        "tapsect: o is being written by another tapsect; wait for it, or choose another --out."
    ]
    allow(place, 10_000)
    running.communicate(timeout=240)
    assert running.returncode == 1
    contract.check(place / "o")


PLAIN = ["bisect", "model.onnx", "--inputs", "inputs.npz", "--out", "o"]
BAD = [*PLAIN, "--engine", "planted", "--engine-option", "kind=value", "nodes=stage0/Conv"]


def test_a_finished_diagnosis_is_made_anew(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(BAD) == 1
        said = capsys.readouterr()
        assert "continued" not in said.err
        assert "begun anew" not in said.err
        body = contract.check(place / "o")
        assert body["cost"]["builds"] <= 5
        assert not [note for note in body["notes"] if "probes" in note]


def test_another_command_begins_anew_and_says_so(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(BAD) == 1
    assert (place / "o" / "case").is_dir()
    capsys.readouterr()
    assert main(PLAIN) == 0
    assert "begun anew: the folder held another diagnosis" in capsys.readouterr().err
    contract.check(place / "o")
    assert {p.name for p in (place / "o").iterdir()} == {
        "journal.jsonl", "result.json", "report.md",
    }  # fmt: skip


def test_a_finished_crash_is_looked_at_anew(place: Path) -> None:
    crash = [*PLAIN, "--engine", "planted", "--engine-option", "kind=build_error",
             "nodes=stage0/Conv"]  # fmt: skip
    assert main(crash) == 1
    first = (place / "o" / "journal.jsonl").read_text().count('"entry": "probe"')
    assert main(crash) == 1
    assert (place / "o" / "journal.jsonl").read_text().count('"entry": "probe"') == first


def test_a_bad_command_leaves_what_was_there(place: Path) -> None:
    assert main(BAD) == 1
    before = (place / "o" / "result.json").read_bytes()
    assert main([*PLAIN, "--engine", "no-such"]) == 2
    assert main([*PLAIN, "--precision", "fp12"]) == 2
    assert (place / "o" / "result.json").read_bytes() == before
    assert (place / "o" / "case" / "check.py").is_file()


def test_a_lock_that_nobody_holds_is_no_lock(place: Path) -> None:
    (place / "o").mkdir()
    (place / "o" / ".lock").touch()
    assert main(PLAIN) == 0
    contract.check(place / "o")
    (place / "o" / ".lock").touch()
    with (place / "o" / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(PLAIN) == 2
