"""Runs that are killed, that overlap, and whose entries misbehave."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import onnx

from debugtaps import OutputError
from support import gated_engine
from support.nights import Suite, states, value_at
from tapsect.triage.content import Contents, told_engines
from tapsect.triage.database import Database
from tapsect.triage.history import History
from tapsect.triage.job import Done, Job, Stopped
from tapsect.triage.local import Local
from tapsect.triage.nightly import Night
from tapsect.triage.plan import read_plan
from tapsect.triage.whole import open_history

ENGINES = Path(gated_engine.__file__)


class Zoo(Suite):
    """Models whose engine waits at a gate."""

    def gated(self, *models: str, **more: Any) -> None:
        """Writes the suite."""
        self.models(*models)
        self.engine("Gated", models, {"folder": str(self.folder)}, **more)

    def engine(
        self, name: str, models: Any, options: dict[str, Any] | None = None, **more: Any
    ) -> None:
        """Writes a suite of one engine of this project's tests."""
        self.write({"e": []}, models, **more)
        body = json.loads(self.path.read_text("utf-8"))
        body["engines"][0] |= {"spec": f"{ENGINES}:{name}", "options": options or {}}
        self.path.write_text(json.dumps(body), encoding="utf-8")

    def open(self, *models: str) -> None:
        """Lets models pass; all, when none is named."""
        for name in models or ("",):
            (self.folder / (f"open-{name}" if name else "open")).touch()

    @property
    def built(self) -> Counter[str]:
        """How often each model was built."""
        log = self.folder / "log"
        return Counter(log.read_text("utf-8").split() if log.exists() else ())

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Starts a run as a process."""
        return subprocess.Popen(
            [sys.executable, "-m", "tapsect", "triage", "run", str(self.path), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
        )  # fmt: skip


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    return Zoo(tmp_path)


def until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not reached():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_repeats_no_finished_model(how: signal.Signals, zoo: Zoo) -> None:
    zoo.gated("m0", "m1", "m2", "m3")
    zoo.open("m0", "m1")
    first = zoo.start()
    until(lambda: "m2" in zoo.built, first)
    first.send_signal(how)
    _, said = first.communicate()
    if how is signal.SIGINT:
        assert first.returncode == 130
        assert said.splitlines()[-1].startswith("tapsect: interrupted")
    zoo.open()
    second = zoo.start()
    out, said = second.communicate()
    assert second.returncode == 0, said
    assert "which did not end" in said
    assert "4 agree, of 4 entries" in out
    assert zoo.built == {"m0": 1, "m1": 1, "m2": 2, "m3": 1}
    with open_history(str(zoo.path)) as history:
        (run,) = history.runs()
        assert run.finished
        assert sorted(row.entry for row in history.observed()) == ["m0/e", "m1/e", "m2/e", "m3/e"]


class Late:
    """Says of every job that it was late; is stopped after some."""

    def __init__(self, most: int) -> None:
        self.most, self.asked = most, list[str]()

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        for job in jobs:
            if len(self.asked) == self.most:
                raise KeyboardInterrupt
            self.asked.append(job.entry)
            yield Done(job.key, None, Stopped("time", "late"))

    def close(self) -> None:
        pass


def test_what_could_not_be_judged_is_not_tried_again_by_the_same_run(zoo: Zoo) -> None:
    zoo.gated("m0", "m1")
    plan = read_plan(zoo.path)
    with Database("history.sqlite", zoo.folder) as database:
        history = History(database)
        night = Night(plan, history, zoo.folder / "out")
        with pytest.raises(KeyboardInterrupt):
            night.run(plan.entries, Late(1))
        second = Late(9)
        night.run(plan.entries, second)
        assert second.asked == ["m1/e"]
        third = Late(9)  # another run tries both
        night.run(plan.entries, third)
        assert third.asked == ["m0/e", "m1/e"]
        assert len(history.runs()) == 2


def test_a_finding_that_was_not_written_down_is_not_made_again(zoo: Zoo) -> None:
    """The process may die after a diagnosis ended and before the history heard of it."""
    zoo.gated("m0")
    zoo.open()
    zoo.night(1)
    (zoo.folder / "history.sqlite").unlink()
    assert states(zoo.night(2)) == {"m0/e": "agrees"}
    assert zoo.built == {"m0": 1}


def test_two_runs_at_once_share_history_and_work(zoo: Zoo) -> None:
    zoo.gated("m0", "m1")
    runs = [zoo.start(), zoo.start()]
    for process in runs:
        until(lambda: "m0" in zoo.built, process)
    until(_both_begun(zoo), runs[0])
    zoo.open()
    for process in runs:
        out, said = process.communicate()
        assert process.returncode == 0, said
        assert "2 agree, of 2 entries" in out
    assert zoo.built == {"m0": 1, "m1": 1}
    with open_history(str(zoo.path)) as history:
        assert [bool(run.finished) for run in history.runs()] == [True, True]
        assert len(history.observed()) == 4


def _both_begun(zoo: Zoo) -> Callable[[], bool]:
    def begun() -> bool:
        with open_history(str(zoo.path)) as history:
            return len(history.runs()) == 2

    return begun


def test_nothing_changed_costs_nothing_and_fresh_looks_again(zoo: Zoo) -> None:
    zoo.gated("m0", "m1")
    zoo.open()
    zoo.night(1)
    second = zoo.night(2)
    assert [row.cached for row in second.rows] == [True, True]
    assert zoo.built == {"m0": 1, "m1": 1}
    assert [row.cached for row in zoo.night(3, fresh=True, only=["m0/*"]).rows] == [False]
    assert zoo.built == {"m0": 2, "m1": 1}


def test_since_leaves_out_what_is_as_it_was(zoo: Zoo) -> None:
    zoo.gated("m0", "m1")
    zoo.open()
    first = zoo.night(1)
    (zoo.folder / "m1/inputs.npz").write_bytes((zoo.folder / "m0/inputs.npz").read_bytes())
    for since in ("2030-01-02", first.run.id):
        assert [row.entry for row in zoo.night(2, since=since).rows] == ["m1/e"]


@pytest.mark.parametrize(
    ("engine", "limits", "signature", "message"),
    [
        ("Gated", {"time": 4.0}, "over its limit of time", "stopped after 4 s"),
        ("Hungry", {"memory": "800MiB"}, "over its limit of memory", "its limit is 800 MiB"),
        ("Killer", {}, "died: ", "ended by itself, with signal 9"),
    ],
)
def test_a_model_that_misbehaves_costs_only_its_own_slot(
    engine: str, limits: dict[str, Any], signature: str, message: str, zoo: Zoo
) -> None:
    zoo.models("m0", "m1")
    options = {"folder": str(zoo.folder)} if engine == "Gated" else {}
    zoo.engine(engine, ["m0", "m1"], options)
    body = json.loads(zoo.path.read_text("utf-8"))
    body["engines"][0]["limits"] = limits  # the others have all the time they need
    body["engines"].append({"name": "good", "spec": "ort"})
    body["models"][0]["engines"] = ["good"]
    zoo.path.write_text(json.dumps(body), encoding="utf-8")
    summary = zoo.night(1)
    assert states(summary) == {
        "m0/good": "agrees", "m1/good": "agrees", "m1/e": "new",
    }  # fmt: skip
    row = next(r for r in summary.rows if r.entry == "m1/e")
    assert message in row.message
    (group,) = summary.groups
    assert signature in group.words
    assert summary.exit_code == 1


def test_a_model_that_is_none_costs_only_its_own_slot(zoo: Zoo) -> None:
    zoo.models("m0", "m1", "m2")
    (zoo.folder / "m1/model.onnx").write_bytes(b"not a model")
    shell = onnx.load(zoo.folder / "m2/model.onnx")
    onnx.save(
        shell, zoo.folder / "m2/model.onnx", save_as_external_data=True, location="w",
        size_threshold=0,
    )  # fmt: skip
    (zoo.folder / "m2/w").unlink()
    zoo.write({"e": []}, ["m0", "m1", "m2"])
    summary = zoo.night(1)
    assert states(summary) == {"m0/e": "agrees", "m1/e": "new", "m2/e": "new"}
    said = {row.entry: row.message for row in summary.rows}
    assert "model.onnx" in said["m1/e"]
    assert "w" in said["m2/e"]


def test_a_folder_that_cannot_be_made_is_said_before_any_work(zoo: Zoo) -> None:
    zoo.gated("m0")
    (zoo.folder / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        zoo.night(1, out=zoo.folder / "file/out")
    assert zoo.built == {}


def test_a_fault_is_gone_when_no_entry_has_it_any_more(zoo: Zoo) -> None:
    """What a run leaves out is not fixed by it."""
    zoo.models("m0", "m1")
    both = [value_at("m0/Tanh"), value_at("m1/Tanh")]
    gone = []
    for number, (faults, only) in enumerate([(both, ()), (both[:1], ["m1/*"]), ([], ())], 1):
        zoo.write({"e": faults}, ["m0", "m1"])
        summary = zoo.night(number, only=only)
        gone.append([group.words for group in summary.groups if not group.rows])
    assert gone == [[], [], ["engine defect in Tanh float on planted on ort: accuracy, scaled"]]


def test_each_gpu_has_one_job_at_a_time(zoo: Zoo) -> None:
    """No GPU is needed: what is looked at is which one a job was told to see."""
    zoo.gated("m0", "m1", "m2")
    plan = read_plan(zoo.path)
    contents = Contents(told_engines(e.engine for e in plan.entries), {})
    jobs = [replace(contents.of(entry).job, gpus=1.0) for entry in plan.entries]
    local = Local(zoo.folder / "findings", jobs=3, gpus=["4", "7"])
    done: list[Done] = []
    thread = threading.Thread(target=lambda: done.extend(local.run(jobs)))
    thread.start()
    while len(zoo.built) < 2:
        assert thread.is_alive()
        time.sleep(0.05)
    first = {name.partition("@")[2] for name in zoo.built}
    assert len(zoo.built) == 2
    zoo.open()
    thread.join()
    assert first == {"4", "7"}
    assert len(done) == len(zoo.built) == 3


def test_too_many_builds_end_an_entry(zoo: Zoo) -> None:
    zoo.models("m0")
    fault = {"kind": "fusion", "nodes": ["m0/MatMul", "m0/Add", "m0/Relu"]}
    zoo.write({"e": [fault]}, ["m0"], limits={"builds": 3})
    (row,) = zoo.night(1).rows
    assert row.message == "stopped after 3 builds, as many as were allowed"


def test_an_engine_that_does_not_load_is_said_of_its_entries_alone(zoo: Zoo) -> None:
    zoo.models("m0")
    (zoo.folder / "broken.py").write_text("raise RuntimeError('no licence')\n")
    zoo.write({"e": []}, ["m0"])
    body = json.loads(zoo.path.read_text("utf-8"))
    body["engines"].append({"name": "broken", "spec": "broken.py:Engine"})
    zoo.path.write_text(json.dumps(body), encoding="utf-8")
    summary = zoo.night(1)
    assert states(summary) == {"m0/e": "agrees", "m0/broken": "new"}
    assert "no licence" in summary.rows[0].message


def test_an_unreachable_history_is_said_before_any_work(zoo: Zoo) -> None:
    zoo.gated("m0")
    process = zoo.start("--history", "postgresql://u:secret@127.0.0.1:1/x")
    _, said = process.communicate()
    assert process.returncode == 4
    assert "secret" not in said
    assert said.count("\n") == 1
    assert zoo.built == {}
    assert not (zoo.folder / "out").exists()
