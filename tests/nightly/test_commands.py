"""The commands that look back, and how a run is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from support.nights import FIRST, Suite, value_at
from tapsect.cli import main
from tapsect.triage.answers.junit import render_junit
from tapsect.triage.answers.page import render_page
from tapsect.triage.answers.terminal import render_text
from tapsect.triage.database import Database
from tapsect.triage.history import History
from tapsect.triage.records import Found, Observation
from tapsect.triage.signatures import Signature
from tapsect.triage.states import Verdict
from tapsect.triage.summary import Summary, summarise


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights of two models; in the second one is new."""
    folder = tmp_path_factory.mktemp("zoo")
    suite = Suite(folder)
    suite.models("m0", "m1")
    for number, faults in enumerate([[], [value_at("m0/Tanh")]], 1):
        suite.write({"e": faults}, ["m0", "m1"])
        suite.night(number)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["triage", *words]) == 0
    return capsys.readouterr().out


def test_looking_back(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = str(home / "suite.yaml")
    first, second = said(capsys, "history", suite).splitlines()
    assert "2030-01-01 02:00  zoo: nothing new; 2 agree, of 2 entries" in first
    assert "2030-01-02 02:00  zoo: 1 new; 1 agree, of 2 entries" in second
    assert said(capsys, "history", suite, "--since", "2030-01-02").splitlines() == [second]
    shown = said(capsys, "show", suite)
    assert "new: engine defect in Tanh float on planted on ort: accuracy, scaled" in shown
    assert "engine.options.faults: [] -> " in shown
    entry = said(capsys, "show", suite, "m0/e").splitlines()
    assert [line.split()[3] for line in entry[1:]] == ["agrees", "new"]
    body = json.loads(said(capsys, "show", suite, "--json"))
    digest = body["groups"][0]["digest"]
    assert body["groups"][0]["entries"] == ["m0/e"]
    assert "Tanh() floatr2 -> floatr2" in said(capsys, "show", suite, digest)
    assert said(capsys, "flaky", suite) == "no entry is flaky\n"
    assert main(["triage", "show", suite, "nothing"]) == 2


def test_the_exit_status_and_quiet(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = str(home / "suite.yaml")
    assert said(capsys, "run", suite, "--quiet", "--only", "m0/*") == (
        "zoo: 1 known; 0 agree, of 1 entry\n"
    )  # fmt: skip


def test_forgetting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = Suite(tmp_path)
    suite.models("m0")
    for number, faults in enumerate([[], [value_at("m0/Relu", scale=1.0)]], 1):
        suite.write({"e": faults}, ["m0"])
        suite.night(number)
    path = str(suite.path)
    assert main(["triage", "prune", path]) == 2
    assert "1 runs forgotten, 1 folders" in said(capsys, "prune", path, "--keep", "1")
    assert len(said(capsys, "history", path).splitlines()) == 1
    assert len(list((tmp_path / "out/findings").glob("*/result.json"))) == 1
    assert len(list((tmp_path / "out/runs").iterdir())) == 1


NASTY = "a\x1b[31m<script>alert(1)</script>\u202e/ort"


@pytest.fixture
def nasty(tmp_path: Path) -> Summary:
    with Database("h.sqlite", tmp_path) as database:
        history = History(database)
        when = FIRST
        run = history.begin("zoo", "p", "h:/o", when, {})
        found = Found("k", when, "", NASTY, {}, Signature("engine_defect", NASTY, (), "ort"))
        history.record(run, [Observation(NASTY, found, Verdict("new"), when, bad=run.id)])
        return summarise(history, run)


def test_names_of_models_obey_nobody(nasty: Summary) -> None:
    page = render_page(nasty, {}, root="")
    for text in (page, render_text(nasty), render_junit(nasty)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>" not in page + render_junit(nasty)
