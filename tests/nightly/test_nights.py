"""Thirty entries, four nights, every way a state can change; on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from support.nights import Suite, states, value_at
from support.postgres import Postgres
from tapsect.triage.summary import Summary

MODELS = [f"m{n}" for n in range(10)]
EXPECT = [{"entries": "m1/nightly", "answer": "engine_defect", "until": "2030-01-02", "why": "#7"}]

norm0, norm2 = value_at("m0/LayerNormalization"), value_at("m2/LayerNormalization")
relu1, tanh3 = value_at("m1/Relu"), value_at("m3/Tanh")
NIGHTLY: Sequence[Sequence[dict[str, Any]]] = (
    (norm0, relu1, tanh3),
    (norm0, relu1, norm2),
    (norm0, relu1, norm2, tanh3),
    (relu1, norm2, tanh3),
)
EXPECTED = (
    {"m0/nightly": "new", "m1/nightly": "expected", "m3/nightly": "new"},
    {"m0/nightly": "known", "m1/nightly": "expected", "m2/nightly": "new", "m3/nightly": "fixed"},
    {"m0/nightly": "known", "m1/nightly": "new", "m2/nightly": "known", "m3/nightly": "regressed"},
    {"m0/nightly": "fixed", "m1/nightly": "known", "m2/nightly": "known", "m3/nightly": "known"},
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and findings: the second database finds what the first one had made."""
    folder = tmp_path_factory.mktemp("zoo")
    Suite(folder).models(*MODELS)
    return folder


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def nights(request: pytest.FixtureRequest, home: Path) -> list[Summary]:
    history = f"{request.param}.sqlite"
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        history = server.empty_database()
    suite, found = Suite(home, history), []
    shaky = {"kind": "flaky_build", "nodes": ["m4/Tanh"], "rate": 0.7, "seed": 3}
    for number, faults in enumerate(NIGHTLY, 1):
        engines = {"steady": [value_at("m5/MatMul")], "nightly": faults, "shaky": [shaky]}
        suite.write(engines, MODELS, expect=EXPECT)
        found.append(suite.night(number))
    return found


def test_every_state_changes_as_it_should(nights: list[Summary]) -> None:
    for number, (summary, told) in enumerate(zip(nights, EXPECTED, strict=True)):
        assert len(summary.rows) == 30
        always = {
            "m5/steady": "known" if number else "new",
            "m4/shaky": "flaky" if number else "new",
        }  # fmt: skip
        shown = {entry: state for entry, state in states(summary).items() if state != "agrees"}
        assert shown == {**told, **always}, f"night {number + 1}"
    assert [s.exit_code for s in nights] == [1, 1, 1, 0]


def test_only_what_changed_or_is_flaky_is_looked_at(nights: list[Summary]) -> None:
    looked = [{r.entry for r in s.rows if not r.cached} for s in nights]
    again = {f"{m}/nightly" for m in MODELS} | {"m4/shaky"}
    assert looked == [{r.entry for r in nights[0].rows}, again, again, again]
    shaky = {r.folder for s in nights for r in s.rows if r.entry == "m4/shaky"}
    assert len(shaky) == 4  # each look is one of its own


def test_one_fault_of_two_models_is_one_group(nights: list[Summary]) -> None:
    group = next(g for g in nights[2].groups if "LayerNormalization" in g.words)
    assert [row.entry for row in group.rows] == ["m0/nightly", "m2/nightly"]
    assert group.hits == (1, 2, 2)
    assert not group.fresh
    assert len({g.digest for g in nights[2].groups}) == len(nights[2].groups) == 5


def test_since_when_and_what_differs(nights: list[Summary]) -> None:
    row = next(r for r in nights[3].rows if r.entry == "m2/nightly")
    assert row.since is not None
    assert row.since.good is not None
    assert row.since.bad is not None
    assert (row.since.good.run, row.since.bad.run) == (nights[0].run.id, nights[1].run.id)
    assert [line.split(":")[0] for line in row.since.differs] == [
        "engine.options.faults", "engine.describe.faults",
    ]  # fmt: skip


def test_the_rate_of_the_flaky_entry(nights: list[Summary]) -> None:
    row = next(r for r in nights[3].rows if r.entry == "m4/shaky")
    assert row.rate is not None
    assert 0 < row.rate <= 1


def test_the_answers(nights: list[Summary], home: Path) -> None:
    out, first = home / "out", nights[0]
    folder = out / "runs" / first.run.id
    body = json.loads((folder / "summary.json").read_text("utf-8"))
    assert Counter(row["state"] for row in body["rows"]) == body["counts"] == first.counts
    suite = ET.fromstring((folder / "junit.xml").read_text("utf-8")).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("30", "4", "1")
    failing = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failing == ["m0/nightly", "m3/nightly", "m4/shaky", "m5/steady"]
    assert "4 new, 1 expected; 25 agree, of 30 entries" in (folder / "digest.md").read_text("utf-8")
    bugs = sorted((folder / "bugs").iterdir())
    assert [bug.stem for bug in bugs] == sorted(g.digest for g in first.groups if g.fresh)
    assert not (out / "runs" / nights[3].run.id / "bugs").exists()


def test_the_index_is_offline_and_its_links_lead_to_the_findings(
    nights: list[Summary], home: Path
) -> None:
    for page in (
        home / "out" / "index.html",
        home / "out" / "runs" / nights[3].run.id / "index.html",
    ):
        text = page.read_text("utf-8")
        assert "<script" not in text
        assert not re.search(r"(src|href)=\"(https?:)?//", text)
        links = re.findall(r'href="([^"]+\.(?:md|html))"', text)
        assert len(links) >= 30
        assert [link for link in links if not (page.parent / link).is_file()] == []
        assert text.count("<g ") == 4  # one bar a night
