"""``tapsect tactics``: from replays to the choice that is proved to be bad."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from debugtaps import parse_options
from support.repeating import BAD, GUILTY, chooses, given
from tapsect.axes.tactics import write_replay
from tapsect.cli import main

OTHER = "block7/Conv"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def replays(good: list[dict[str, str]], bad: list[dict[str, str]]) -> list[str]:
    for side, held in (("good", good), ("bad", bad)):
        Path("dir", side).mkdir(parents=True)
        for number, tactics in enumerate(held):
            write_replay(Path("dir", side, f"{number}.json"), tactics, {})
    return ["--dir", "dir"]


GOOD = {GUILTY: "direct", OTHER: "a"}
STRUCK = {GUILTY: BAD, OTHER: "b"}


@pytest.mark.parametrize(
    ("good", "bad", "code", "said"),
    [
        ([GOOD], [STRUCK, STRUCK], 0, f"'{GUILTY}': '{BAD}' in 2 of 2; good ones: 'direct'"),
        ([GOOD, GOOD], [], 3, "Loaded 2 good and 0 bad replays.\nNone is bad"),
        ([], [STRUCK], 3, "--until good"),
        ([GOOD], [{**GOOD, GUILTY: BAD}], 0, "\n1 choice was made by bad builds only:"),
        ([GOOD], [GOOD], 0, "the cause lies beyond the tactics"),
    ],
)
def test_diff(
    good: Any, bad: Any, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tactics", "diff", *replays(good, bad)]) == code
    assert said in capsys.readouterr().out


def test_the_bad_one_of_two_suspects_is_proved_and_what_cures_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*given(tmp_path), *replays([GOOD], [STRUCK]), *chooses(tmp_path / "s"), "--out", "o"]
    assert main(["tactics", "prove", *words]) == 0
    shown = capsys.readouterr().out
    assert f"bad whenever it chooses '{BAD}' for '{GUILTY}'; with 'direct' instead" in shown
    assert f"'{OTHER}'" not in shown
    body = json.loads(Path("o/result.json").read_text(encoding="utf-8"))
    (fix,) = body["fixes"]
    assert f"Avoid it with --engine-option {fix['setting']}" in shown
    assert parse_options(shlex.split(fix["setting"])) == {"tactics": {GUILTY: "direct"}}


def test_two_choices_that_are_bad_only_together_are_both_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {
        "kind": "value", "nodes": [GUILTY], "error": 0.05, "tactic": {GUILTY: BAD, OTHER: "b"},
    }  # fmt: skip
    # Unforced, the other choice is nearly always the bad one: the good one must be held.
    variants = {GUILTY: ["direct", BAD], OTHER: ["a", *["b"] * 99]}
    engine = chooses(tmp_path / "s", faults=[fault], variants=variants)
    words = [*given(tmp_path), *replays([GOOD], [STRUCK]), *engine]
    assert main(["tactics", "prove", *words, "--out", "o"]) == 0
    assert f"'{BAD}' for '{GUILTY}' together with 'b' for '{OTHER}'" in capsys.readouterr().out


def test_what_no_choice_explains_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"kind": "value", "nodes": ["block1/Conv"], "tactic": {OTHER: "elsewhere"}}
    words = [*given(tmp_path), *replays([GOOD], [STRUCK]), *chooses(tmp_path / "s", faults=[fault])]
    assert main(["tactics", "prove", *words, "--out", "o"]) == 3
    assert "the cause lies beyond them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("engine", "said"),
    [(["--engine", "ort"], "tactics"), (["--engine", "free.py:Free"], "does not force it")],
)
def test_an_engine_that_cannot_be_told_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: list[str], said: str
) -> None:
    Path("free.py").write_text(
        "from debugtaps.engines.planted import Planted\n"
        "class Free(Planted):\n"
        "    def __init__(self, tactics=None):\n"
        f"        super().__init__(variants={{{GUILTY!r}: ['direct']}})\n",
        encoding="utf-8",
    )
    assert main(["tactics", "prove", *given(tmp_path), *replays([GOOD], [STRUCK]), *engine]) == 2
    assert said in capsys.readouterr().err
