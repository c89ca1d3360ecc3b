"""Builders that take long: several builds at a time, and as many taps a build as are worth it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import tapsect
from support import slow_engine, zoo
from support.diagnosing import Diagnosed, diagnose
from tapsect.axes.repeat import Until
from tapsect.cli import main
from tapsect.diagnose.given import Options
from tapsect.finding import Finding
from tapsect.steady import Check, Plan, repeat_builds

ENGINE = f"{Path(slow_engine.__file__)}:Slow"
REFUSED = [{"kind": "build_error", "nodes": ["block5/Conv"], "message": "no tactic"}]
HEALED = [{"kind": "fusion", "nodes": ["block3/Conv", "block3/Relu", "block4/Conv"]}]


@pytest.fixture(autouse=True)
def _begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapsect.probe.Prober._worth_it", lambda _: True)


def found(folder: Path, faults: list[dict[str, Any]], jobs: int, **more: Any) -> Diagnosed:
    folder.mkdir()
    options = {"log": str(folder / "log"), "seconds": 0.05, **more.pop("options", {})}
    return diagnose(
        zoo.chain_cnn(), faults, folder, engine=ENGINE, jobs=jobs, budget=5.0,
        engine_options={"faults": faults, **options}, **more,
    )  # fmt: skip


def builds(folder: Path) -> list[tuple[str, float, float, int]]:
    """Returns process, beginning, end and count of taps of each build."""
    lines = (line.split() for line in (folder / "log").read_text().splitlines())
    return [(pid, float(began), float(ended), int(taps)) for pid, began, ended, taps in lines]


def overlap(made: list[tuple[str, float, float, int]]) -> bool:
    """Returns whether two builds went on at the same time."""
    spans = sorted((began, ended) for _, began, ended, _ in made)
    return any(later[0] < sooner[1] for sooner, later in zip(spans, spans[1:], strict=False))


def told(finding: Finding) -> dict[str, Any]:
    """Returns what a finding says, less the time it took and what was begun early."""
    body = finding.to_json()
    cost = {k: v for k, v in body["cost"].items() if k != "seconds"}
    kept = ("status", "failure", "cause", "culprit_nodes", "first_divergence", "minimal")
    trail = [(s["step"], s["decision"], s["builds"]) for s in body["trail"]]
    return {**{key: body[key] for key in kept}, "cost": cost, "trail": trail}


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(REFUSED, id="refused"),
        pytest.param(HEALED, id="healed", marks=pytest.mark.slow),
    ],
)
def test_three_at_a_time_say_what_one_says(tmp_path: Path, faults: list[dict[str, Any]]) -> None:
    one = found(tmp_path / "one", faults, 1)
    three = found(tmp_path / "three", faults, 3)
    assert told(one.finding) == told(three.finding)
    assert not overlap(builds(tmp_path / "one"))
    assert overlap(builds(tmp_path / "three"))
    early = [note for note in three.finding.notes if "begun early" in note]
    made, cost = builds(tmp_path / "three"), three.finding.cost
    idle = int(early[0].split()[0]) if early else 0
    asked = cost.builds + cost.reduce_builds + cost.fix_builds
    assert len(made) <= asked + idle <= len(made) + 3  # what was cut off at the end wrote no line
    assert three.finding.notes == (*one.finding.notes, *early)


def test_what_runs_out_of_memory_beside_others_is_built_alone(tmp_path: Path) -> None:
    one = found(tmp_path / "one", REFUSED, 1)
    held = {"alone": str(tmp_path / "held")}
    three = found(tmp_path / "three", REFUSED, 3, options=held)
    assert told(one.finding) == told(three.finding)
    assert not overlap(builds(tmp_path / "three"))
    assert any("one build at a time fits" in note for note in three.finding.notes)


class Stops:
    """Interrupts at a step, as Ctrl-C does."""

    def __init__(self, name: str, after: int) -> None:
        self.name, self.left = name, after

    def step(self, name: str, detail: str) -> None:
        self.left -= name == self.name
        if not self.left:
            raise KeyboardInterrupt


def test_what_ctrl_c_cuts_off_is_not_written_down_as_a_crash(tmp_path: Path) -> None:
    model, inputs = zoo.chain_cnn().save(tmp_path / "given")
    options = {"faults": HEALED, "log": str(tmp_path / "log"), "seconds": 0.2}
    more: dict[str, Any] = {
        "inputs": [inputs], "engine": ENGINE, "engine_options": options, "jobs": 3,
        "out": tmp_path / "out",
    }  # fmt: skip
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tapsect.bisect(model, progress=Stops("locate", 4), **more)
    assert time.monotonic() - began < 60
    lines = (tmp_path / "out" / "journal.jsonl").read_text().splitlines()
    probes = [entry for entry in map(json.loads, lines) if entry["entry"] == "probe"]
    assert probes
    assert all(entry["failure"] is None for entry in probes)
    finding = tapsect.bisect(model, budget=0.0, **more)
    assert finding.culprit_nodes == ("block3/Conv", "block3/Relu", "block4/Conv")
    assert any("probes are known" in note for note in finding.notes)


def test_repeated_builds_go_side_by_side(tmp_path: Path) -> None:
    model, inputs = zoo.chain_cnn().save(tmp_path / "given")
    spec = {"faults": [], "log": str(tmp_path / "log"), "seconds": 0.2}
    options = Options(model, (inputs,), engine=ENGINE, engine_options=spec, out=tmp_path / "out")
    made = repeat_builds(Plan(options, Check(runs=1), Until(count=6), jobs=3))
    assert [a.number for a in made.tally.attempts] == list(range(6))
    assert (made.tally.good, made.tally.bad) == (6, 0)
    assert overlap(builds(tmp_path))


def test_repeated_builds_that_do_not_fit_beside_each_other_are_not_called_bad(
    tmp_path: Path,
) -> None:
    model, inputs = zoo.chain_cnn().save(tmp_path / "given")
    held = str(tmp_path / "held")
    spec = {"faults": [], "log": str(tmp_path / "log"), "seconds": 0.2, "alone": held}
    options = Options(model, (inputs,), engine=ENGINE, engine_options=spec, out=tmp_path / "out")
    made = repeat_builds(Plan(options, Check(runs=1), Until(count=4), jobs=2))
    assert (made.tally.good, made.tally.bad) == (4, 0)


def test_builds_that_are_looked_at_in_one_place_are_made_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, _ = zoo.chain_cnn().save(tmp_path / "given")
    assert main(["repeat", str(model), "--jobs", "2", "--check", "true", "{engine}"]) == 2
    assert "leave --check" in capsys.readouterr().err
    assert not list(tmp_path.glob("tapsect-*/journal.jsonl"))


def test_a_builder_that_chokes_on_many_taps_gets_few(tmp_path: Path) -> None:
    fault = [{"kind": "value", "nodes": ["block3/Conv"], "scale": 1.1}]
    late = found(tmp_path / "late", fault, 1, options={"each": 0.12}, timeout=2.0)
    assert late.finding.culprit_nodes == ("block3/Conv",)
    tapped = [taps for *_, taps in builds(tmp_path / "late") if taps]
    assert tapped
    assert max(tapped) <= 8
    assert len(tapped) <= 6
    steps = [(s.decision, s.why) for s in late.finding.trail if s.step == "taps"]
    assert "2 s" in steps[0][1]
    assert late.finding.coverage.untappable == 0


def test_what_follows_a_late_build_is_begun_early_as_it_is_asked(tmp_path: Path) -> None:
    fault = [{"kind": "value", "nodes": ["block3/Conv"], "scale": 1.1}]
    two = found(tmp_path / "two", fault, 2, options={"each": 0.12}, timeout=2.0)
    _, *after = (s.decision.split()[0] for s in two.finding.trail if s.step == "taps")
    assert max(taps for *_, taps in builds(tmp_path / "two")) <= max(map(int, after))


def test_no_worker_is_started_where_builds_are_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    fast = found(tmp_path / "fast", REFUSED, 3, options={"seconds": 0.0})
    assert not any("begun early" in note for note in fast.finding.notes)
    assert len({pid for pid, *_ in builds(tmp_path / "fast")}) == 1
