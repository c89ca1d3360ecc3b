"""``tapsect doctor``: an engine that is right passes, one that is wrong or absent does not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from debugtaps import CheckResult, SpecError
from tapsect.cli.doctor import _lines, _row
from tapsect.doctor import Health, Proof, engines, examine


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tapsect", "doctor", "--quiet", *words],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_the_engine_that_comes_with_it_passes() -> None:
    done = doctor("--engine", "ort", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [health] = json.loads(done.stdout)["engines"]
    assert (health["engine"], health["state"]) == ("ort", "works")
    assert [test["passed"] for test in health["tests"]] == [True] * 4
    assert "onnxruntime" in health["says"]


@pytest.mark.slow
def test_an_engine_that_computes_wrong_values_fails() -> None:
    fault = ["kind=value", "nodes=second", "scale=1.5"]
    done = doctor("--engine", "planted", "--engine-option", *fault)
    assert done.returncode == 4, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("planted"))
    assert row.split()[1] == "fails"
    assert "agrees where nothing is wrong: NO." in done.stdout
    assert "'second'" in done.stdout


@pytest.mark.slow
def test_an_engine_that_dies_on_everything_fails_with_what_was_seen() -> None:
    health = examine("planted", {"kind": "crash", "nodes": "second"})
    assert health.state == "fails"
    assert {test.name for test in health.tests if test.passed is False} >= {
        "agrees where nothing is wrong", "notices taps that heal a fault",
    }  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("openvino") is not None, reason="it is installed")
def test_an_engine_that_is_not_installed_shows_the_install_line() -> None:
    done = doctor("--engine", "openvino")
    assert done.returncode == 4
    assert "not installed" in done.stdout
    assert "pip install 'tapsect[openvino]'" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "openvinos"], "did you mean openvino"),
        (["--engine-option", "a=1"], "name that one with --engine"),
    ],
)
def test_bad_words_are_usage_errors(words: list[str], said: str) -> None:
    done = doctor(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_an_option_the_engine_does_not_have_is_a_usage_error() -> None:
    with pytest.raises(SpecError, match="does not take these options"):
        examine("ort", {"no_such_option": 1})


def test_neither_the_reference_nor_the_planted_engine_is_examined_unasked() -> None:
    assert {"ort", "onnx", "openvino", "tensorrt"} <= set(engines())
    assert not {"ort-reference", "planted"} & set(engines())


def test_a_row_shows_what_failed_and_what_could_not_be_asked() -> None:
    suite = (CheckResult("takes int64", "failed", "output 'y' is wrong\nmore"),)
    tests = (Proof("keeps the contract", passed=True), Proof("agrees", passed=None),
             Proof("finds a planted fault", passed=False, detail="nothing was found"))  # fmt: skip
    health = Health("rtx", "builds only", "rtx 1.7", suite, tests, 2.0)
    assert _row(health) == ("rtx", "builds only", "0 of 1", "-", "NO", "-", "2.0")
    assert _lines(health) == [
        "rtx: rtx 1.7",
        "rtx: it builds here and runs nothing; values need its device",
        "rtx: takes int64: output 'y' is wrong",
        "rtx: finds a planted fault: NO. nothing was found",
    ]
