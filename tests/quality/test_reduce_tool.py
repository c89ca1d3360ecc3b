"""What the reducer makes of whole models: exactly what is needed, and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tapsect
from debugtaps import UsageError, read_npz, read_polygraphy, write_npz
from support import zoo
from support.reducing_models import chain, grep, names_left, reduce_by, saved
from tapsect.minimal import CommandLine, Rule
from tapsect.reduction import Confirm

NO_BUDGET = {"budget": 0.0}


def node_named(built: zoo.Built, op: str, at: int = 0) -> str:
    return str([n.name for n in built.model.graph.node if n.op_type == op][at])


def planted(*faults: dict[str, Any]) -> dict[str, Any]:
    return {"engine": "planted", "engine_options": {"faults": list(faults)}}


# -- a command -----------------------------------------------------------------------------------


def test_one_culprit_is_left_alone_and_calls_are_bounded(tmp_path: Path) -> None:
    path = saved(chain(["Relu"] * 64), tmp_path)
    done = reduce_by(path, grep("@n40@"), tmp_path, options=NO_BUDGET)
    assert done.exit_code == 0
    assert names_left(tmp_path) == ["@n40@"]
    assert done.finding is not None
    # Twice the start, six halvings, one suffix, the empty model, the end.
    assert done.finding.cost.reduce_builds <= 12
    assert done.finding.minimal is not None
    assert done.finding.minimal.one_minimal


def test_two_joint_culprits_50_nodes_apart_need_nothing_between(tmp_path: Path) -> None:
    path = saved(chain(["Relu", "Neg"] * 32), tmp_path)
    done = reduce_by(path, grep("@n6@", "@n56@"), tmp_path, options=NO_BUDGET)
    assert names_left(tmp_path) == ["@n6@", "@n56@"]
    assert done.finding is not None
    assert done.finding.cost.reduce_builds <= 80


@pytest.mark.parametrize("mode", ["bisect", "linear"])
def test_the_other_modes_leave_a_contiguous_part(tmp_path: Path, mode: str) -> None:
    path = saved(chain(["Relu", "Neg"] * 8), tmp_path)
    done = reduce_by(path, grep("@n6@", "@n9@"), tmp_path, options=NO_BUDGET, mode=mode)
    assert names_left(tmp_path) == ["@n6@", "@n7@", "@n8@", "@n9@"]
    assert done.finding is not None
    calls = done.finding.cost.reduce_builds
    assert calls <= 14 if mode == "bisect" else 25 <= calls <= 32


def test_a_start_that_does_not_fail_writes_nothing(tmp_path: Path) -> None:
    path = saved(chain(["Relu"] * 4), tmp_path)
    done = reduce_by(path, grep("@n9@"), tmp_path)
    assert done.exit_code == 3
    assert "does not fail" in done.message
    assert "passes" in done.message
    assert not (tmp_path / "reduced.onnx").exists()
    assert not (tmp_path / "result").exists()


def test_a_check_that_always_fails_is_refused(tmp_path: Path) -> None:
    path = saved(chain(["Relu"] * 4), tmp_path)
    with pytest.raises(UsageError, match="empty model"):
        reduce_by(path, CommandLine(("false",)), tmp_path)
    assert not (tmp_path / "reduced.onnx").exists()


def test_slippage_to_another_failure_is_refused_and_listed(tmp_path: Path) -> None:
    script = (
        "grep -qF @n20@ $0 && { echo 'ValueError: wrong answer'; exit 1; };"
        "grep -qF @n3@ $0 && { echo 'KeyError: missing'; exit 1; }; exit 0"
    )
    line = CommandLine(("sh", "-c", script, "{model}"))
    path = saved(chain(["Relu"] * 32), tmp_path)
    done = reduce_by(path, line, tmp_path, options=NO_BUDGET)
    assert names_left(tmp_path) == ["@n20@"]
    assert done.finding is not None
    assert any("KeyError" in note for note in done.finding.notes)


def test_what_the_check_skips_is_neither_good_nor_bad(tmp_path: Path) -> None:
    script = "grep -qF @n20@ $0 || exit 0; grep -qF @n19@ $0 || exit 125; exit 1"
    path = saved(chain(["Relu"] * 32), tmp_path)
    done = reduce_by(path, CommandLine(("sh", "-c", script, "{model}")), tmp_path)
    assert done.exit_code == 0
    assert names_left(tmp_path) == ["@n19@", "@n20@"]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_minimum_is_the_same_for_any_number_of_jobs(tmp_path: Path, seed: int) -> None:
    names = ("@n6@", "@n21@") if seed else ("@n11@",)
    path = saved(chain(["Relu", "Neg"] * 16), tmp_path)
    found = []
    for jobs in (1, 2, 4):
        out = tmp_path / str(jobs)
        done = reduce_by(path, grep(*names), out, jobs=jobs)
        assert done.finding is not None
        found.append(((out / "reduced.onnx").read_bytes(), done.finding.cost.reduce_builds))
    assert found[0] == found[1] == found[2]


def test_the_nearest_passing_model_is_written_with_the_difference(tmp_path: Path) -> None:
    path = saved(chain(["Relu", "Neg"] * 4), tmp_path)
    good = tmp_path / "good.onnx"
    done = reduce_by(path, grep("@n2@", "@n5@"), tmp_path, options=NO_BUDGET, min_good=good)
    kept = {n.name for n in onnx.load(good).graph.node}
    assert not {"@n2@", "@n5@"} <= kept
    assert done.folder is not None
    readme = (done.folder / "case" / "README.md").read_text()
    assert "it passes without" in readme
    assert (done.folder / "case" / "min_good.onnx").exists()


def test_the_case_of_a_command_reproduces_alone(tmp_path: Path) -> None:
    path = saved(chain(["Relu"] * 8), tmp_path)
    done = reduce_by(path, grep("@n5@"), tmp_path)
    assert done.folder is not None
    check = [sys.executable, str(done.folder / "case" / "check.py")]
    assert subprocess.run(check, capture_output=True).returncode == 1
    chain_model = chain(["Relu"])
    (done.folder / "case" / "model.onnx").write_bytes(chain_model.SerializeToString())
    assert subprocess.run(check, capture_output=True).returncode == 0


@pytest.mark.parametrize("golden", ["once", "each"])
def test_parts_are_fed_with_recorded_or_with_drawn_values(tmp_path: Path, golden: str) -> None:
    built = zoo.chain_cnn(12)
    path, inputs = built.save(tmp_path)
    fed = {"inputs": (str(inputs),), **NO_BUDGET}
    name = built.names[6]
    script = f"test -s $1 && grep -qF {name} $0"
    line = CommandLine(("sh", "-c", script, "{model}", "{inputs}"), Rule(codes=(0,)))
    done = reduce_by(path, line, tmp_path / "out", options=fed, golden=golden)
    assert done.exit_code == 0
    assert done.folder is not None
    (left,) = read_npz(done.folder / "case" / "inputs.npz").values()
    # Behind a Relu nothing is negative; drawn values do not know that.
    assert bool(np.all(left >= 0)) is (golden == "once")


def test_a_command_may_read_its_inputs_as_polygraphy_writes_them(tmp_path: Path) -> None:
    feeds = {"x": np.array([[1, -2, 3, -4]], np.float32)}
    path = saved(chain(["Relu", "Neg", "Relu", "Neg"]), tmp_path, feeds)
    script = tmp_path / "check.py"
    script.write_text(
        "import base64, io, json, sys, numpy as np\n"
        "(sample,) = json.load(open(sys.argv[2]))\n"
        "arrays = [np.load(io.BytesIO(base64.b64decode(v['array']))) for v in sample.values()]\n"
        "there = b'@n2@' in open(sys.argv[1], 'rb').read()\n"
        "sys.exit(there and all(a.dtype == np.float32 and a.size == 4 for a in arrays))\n"
    )
    line = CommandLine((sys.executable, str(script), "{model}", "{inputs_json}"))
    options = {"inputs": (str(tmp_path / "inputs.npz"),), **NO_BUDGET}
    done = reduce_by(path, line, tmp_path / "out", options=options)
    assert names_left(tmp_path / "out") == ["@n2@"]
    assert done.folder is not None
    case = done.folder / "case"
    (sample,) = read_polygraphy(case / "inputs.json")
    np.testing.assert_array_equal(sample["t1"], read_npz(case / "inputs.npz")["t1"])
    assert subprocess.run([sys.executable, case / "check.py"]).returncode == 1


def test_inputs_and_outputs_can_be_kept(tmp_path: Path) -> None:
    path = saved(chain(["Relu", "Neg"] * 5), tmp_path)
    reduce_by(path, grep("@n4@"), tmp_path, keep_inputs=True, passes=("nodes",))
    left = onnx.load(tmp_path / "reduced.onnx").graph
    assert [v.name for v in left.input] == ["x"]
    reduce_by(path, grep("@n4@"), tmp_path / "o", keep_outputs=True, passes=("nodes",))
    left = onnx.load(tmp_path / "o" / "reduced.onnx").graph
    assert [v.name for v in left.output] == ["t9"]


@pytest.mark.parametrize("name", ["omitted_optional", "control_flow", "u_shaped", "no_value_info"])
def test_odd_operators_reduce_to_the_one_that_is_wanted(tmp_path: Path, name: str) -> None:
    """Omitted optional inputs, Resize, Clip, If, Loop."""
    built = getattr(zoo, name)()
    path, inputs = built.save(tmp_path)
    wanted = {"Resize", "Clip", "If", "Loop", "Scan"}
    ops = [n.op_type for n in built.model.graph.node if n.op_type in wanted] or [
        built.model.graph.node[-1].op_type
    ]
    for op in dict.fromkeys(ops):
        line = CommandLine(
            (sys.executable, "-c", "import sys; sys.exit(open(sys.argv[1],'rb').read()"
             f".count(b'\"\\x0{len(op):x}{op}') > 0)" if len(op) < 10 else "", "{model}"),
        )  # fmt: skip
        done = reduce_by(path, line, tmp_path / op, options={"inputs": (str(inputs),), **NO_BUDGET})
        assert done.exit_code == 0, done.message
        left = onnx.load(tmp_path / op / "reduced.onnx").graph.node
        assert [n.op_type for n in left] == [op]
        onnx.checker.check_model(str(tmp_path / op / "reduced.onnx"))


def test_ctrl_c_keeps_the_best_so_far_and_the_same_command_goes_on(tmp_path: Path) -> None:
    path = saved(chain(["Relu", "Neg"] * 32), tmp_path)
    script = tmp_path / "check.sh"
    log = tmp_path / "log"
    script.write_text(
        f"#!/bin/sh\necho . >> {log}\nsleep 0.05\n"
        "if grep -qF @n6@ $1 && grep -qF @n56@ $1; then exit 1; fi\nexit 0\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    command = [
        sys.executable, "-m", "tapsect", "reduce", str(path), "-o", "r.onnx", "--out", "res",
        "--budget", "0", "--check", str(script), "{model}",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not log.exists() or len(log.read_text().split()) < 12:
        time.sleep(0.02)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "best so far" in said
    assert len(onnx.load(tmp_path / "r.onnx").graph.node) < 64
    before = len(log.read_text().split())
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {n.name for n in onnx.load(tmp_path / "r.onnx").graph.node} == {"@n6@", "@n56@"}
    calls = json.loads((tmp_path / "res" / "result.json").read_text())["cost"]["reduce_builds"]
    assert len(log.read_text().split()) - before <= calls - 10


# -- the built-in check --------------------------------------------------------------------------


def test_the_built_in_check_names_the_node_and_writes_a_case(tmp_path: Path) -> None:
    built = zoo.transformer()
    path, inputs = built.save(tmp_path)
    name = node_named(built, "MatMul", 3)
    options = {"inputs": (str(inputs),), **planted({"kind": "value", "nodes": [name]})}
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert done.exit_code == 0, done.message
    assert names_left(tmp_path / "out") == [name]
    left = onnx.load(tmp_path / "out" / "reduced.onnx")
    assert all(d.dim_value == 1 for v in left.graph.input for d in v.type.tensor_type.shape.dim)
    assert done.folder is not None
    check = [sys.executable, str(done.folder / "case" / "check.py")]
    assert subprocess.run(check, capture_output=True).returncode == 1
    result = json.loads((done.folder / "result.json").read_text())
    assert result["command"] == [] or "reduce" in result["command"]
    assert result["failure"] == "accuracy"


def test_a_smaller_wrong_answer_on_the_way_is_another_failure(tmp_path: Path) -> None:
    """An error of a thousandth stands before the one of a half, and fails by itself, too."""
    path = saved(chain(["MatMul"] * 8), tmp_path, {"x": np.ones((1, 4), np.float32)})
    options = {
        "inputs": (str(tmp_path / "inputs.npz"),), **NO_BUDGET,
        **planted(
            {"kind": "value", "nodes": ["@n2@"], "error": 1e-3},
            {"kind": "value", "nodes": ["@n5@"], "error": 0.5},
        ),
    }  # fmt: skip
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert names_left(tmp_path / "out") == ["@n5@"]
    assert done.finding is not None
    assert any("error about 1e-3 (" in note and "@n2@" in note for note in done.finding.notes)
    assert done.finding.signature["magnitude"] == 0


def test_an_error_that_the_whole_dilutes_is_the_same_failure(tmp_path: Path) -> None:
    """Five hundredths of a small branch are 1e-6 of the sum; alone they are what they are."""
    model = chain(["Relu", "MatMul", "Relu"])
    graph = model.graph
    graph.node.add(op_type="Add", input=["t2", "big"], output=["sum"], name="@sum@")
    graph.initializer.append(onnx.numpy_helper.from_array(np.full(4, 3e4, np.float32), "big"))
    graph.output[0].name = "sum"
    path = saved(model, tmp_path, {"x": np.ones((1, 4), np.float32)})
    fault = {"kind": "value", "nodes": ["@n1@"], "error": 0.05}
    options = {"inputs": (str(tmp_path / "inputs.npz"),), **NO_BUDGET, **planted(fault)}
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert done.exit_code == 0, done.message
    assert names_left(tmp_path / "out") == ["@n1@"]
    assert done.finding is not None
    assert done.finding.signature["magnitude"] <= -5


def test_a_correct_engine_is_not_reduced(tmp_path: Path) -> None:
    path, inputs = zoo.chain_cnn(8).save(tmp_path)
    done = reduce_by(path, None, tmp_path / "out", options={"inputs": (str(inputs),)})
    assert done.exit_code == 3
    assert not (tmp_path / "out" / "reduced.onnx").exists()


def whole_values(path: Path) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(path)
    names = [value.name for value in session.get_outputs()]
    feeds = read_npz(path.with_name("inputs.npz"))
    return dict(zip(names, session.run(names, feeds), strict=True))


def test_golden_values_decide_whether_the_whole_fails(tmp_path: Path) -> None:
    """Right ones: reduced.  Wrong ones, of an engine that is right: nothing to reduce."""
    path = saved(chain(["MatMul"] * 6), tmp_path, {"x": np.ones((1, 4), np.float32)})
    golden = whole_values(path)
    write_npz(tmp_path / "golden.npz", golden)
    write_npz(tmp_path / "wrong.npz", {name: value * 2 for name, value in golden.items()})
    options = {"inputs": (str(tmp_path / "inputs.npz"),), **NO_BUDGET}
    faulty = planted({"kind": "value", "nodes": ["@n3@"]})
    given = {**options, **faulty, "reference": tmp_path / "golden.npz"}
    done = reduce_by(path, None, tmp_path / "a", options=given)
    assert names_left(tmp_path / "a") == ["@n3@"]
    given = {**options, "reference": tmp_path / "wrong.npz"}
    done = reduce_by(path, None, tmp_path / "b", options=given)
    assert done.exit_code == 3
    assert "golden values find it wrong, but the engine answers as the reference" in done.message
    assert not (tmp_path / "b" / "reduced.onnx").exists()


@pytest.mark.parametrize(("verdict", "code"), [("'boxes moved'", 0), ("None", 3)])
def test_a_judge_decides_whether_the_whole_fails(tmp_path: Path, verdict: str, code: int) -> None:
    path = saved(chain(["MatMul"] * 6), tmp_path, {"x": np.ones((1, 4), np.float32)})
    judge = tmp_path / "judge.py"
    judge.write_text(f"def differ(ours, theirs):\n    return {verdict}\n")
    options = {
        "inputs": (str(tmp_path / "inputs.npz"),), "judge": f"{judge}:differ", **NO_BUDGET,
        **planted({"kind": "value", "nodes": ["@n3@"]}),
    }  # fmt: skip
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert done.exit_code == code, done.message
    assert code == 0 or "the judge find" in done.message
    assert (tmp_path / "out" / "reduced.onnx").exists() is (code == 0)


def test_the_original_of_a_converted_model_is_the_truth_of_the_whole(tmp_path: Path) -> None:
    original = saved(chain(["MatMul"] * 6), tmp_path / "a", {"x": np.ones((1, 4), np.float32)})
    other = chain(["MatMul"] * 6)
    other.graph.initializer[2].CopyFrom(
        onnx.numpy_helper.from_array(
            2 * onnx.numpy_helper.to_array(other.graph.initializer[2]), "w2"
        )
    )
    path = saved(other, tmp_path / "b")
    options = {
        "inputs": (str(tmp_path / "a" / "inputs.npz"),), "reference_model": original, **NO_BUDGET
    }  # fmt: skip
    done = reduce_by(path, None, tmp_path / "c", options=options)
    assert done.exit_code == 3
    assert "the original model" in done.message
    faulty = {**options, **planted({"kind": "value", "nodes": ["@n3@"], "scale": 3})}
    assert reduce_by(path, None, tmp_path / "d", options=faulty).exit_code == 0
    assert names_left(tmp_path / "d") == ["@n3@"]


@pytest.mark.parametrize("command", [True, False])
def test_weights_that_do_not_fit_into_the_file_stand_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: bool
) -> None:
    """The limit of 2 GB is lowered; all else is as with weights that are as large."""
    for module in ("tapsect.simplify.specimen", "tapsect.onefile"):
        monkeypatch.setattr(importlib.import_module(module), "LARGEST", 1 << 20)
    width = 600
    feeds = {"x": np.ones((1, width), np.float32)}
    path = saved(chain(["MatMul", "Relu", "MatMul"], shape=(1, width)), tmp_path, feeds)
    options = {"inputs": (str(tmp_path / "inputs.npz"),)}
    if not command:
        options |= planted({"kind": "value", "nodes": ["@n2@"]})
    out = tmp_path / "out"
    done = reduce_by(path, grep("@n2@") if command else None, out, options=options)
    assert done.exit_code == 0, done.message
    assert done.finding is not None
    assert any("reduced.onnx.data" in note for note in done.finding.notes)
    for folder, name in ((out, "reduced.onnx"), (out / "result" / "case", "model.onnx")):
        assert (folder / f"{name}.data").stat().st_size >= 4 * width * width
        assert (folder / name).stat().st_size < 10_000
        session = ort.InferenceSession(folder / name)
        assert session.get_inputs()[0].shape == [1, width]
    assert not list(out.glob(".*"))
    if not command:
        check = [sys.executable, str(out / "result" / "case" / "check.py")]
        assert subprocess.run(check, capture_output=True).returncode == 1


def test_what_judges_an_engine_is_refused_beside_a_command(tmp_path: Path) -> None:
    path = saved(chain(["Relu"] * 4), tmp_path)
    with pytest.raises(UsageError, match="drop them"):
        reduce_by(path, grep("@n2@"), tmp_path, options={"judge": "file.py:differ"})


def test_it_is_called_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(chain(["Relu"] * 8), tmp_path)
    check = [*grep("@n5@").words[:2], f"! {{ {grep('@n5@').words[2]}; }}", "{model}"]
    done = tapsect.reduce("model.onnx", check=check, budget=0, output="small.onnx", out=Path("res"))
    assert done.exit_code == 0, done.message
    assert [n.name for n in onnx.load("small.onnx").graph.node] == ["@n5@"]
    assert done.finding is not None
    assert done.finding.culprit_nodes == ("@n5@",)


def test_a_crash_is_reduced_by_its_message(tmp_path: Path) -> None:
    built = zoo.residual()
    path, inputs = built.save(tmp_path)
    name = node_named(built, "Conv", 2)
    options = {"inputs": (str(inputs),), **planted({"kind": "build_error", "nodes": [name]})}
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert done.exit_code == 0, done.message
    assert names_left(tmp_path / "out") == [name]
    assert done.finding is not None
    assert done.finding.failure == "build_error"


def test_a_fault_that_only_the_second_sample_shows(tmp_path: Path) -> None:
    built = zoo.chain_cnn(10)
    path, inputs = built.save(tmp_path / "a")
    big = {name: value * 50 for name, value in built.feeds.items()}
    other = saved(built.model, tmp_path / "b", big).with_name("inputs.npz")
    name = node_named(built, "Conv", 3)
    fault = {"kind": "value", "nodes": [name], "when": {"above": 30.0}}
    options = {"inputs": (str(inputs), str(other)), **planted(fault)}
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert done.exit_code == 0, done.message
    assert names_left(tmp_path / "out") == [name]
    assert done.finding is not None
    assert any("sample 1 is kept" in note for note in done.finding.notes)


@pytest.mark.parametrize(
    "name", ["wide", pytest.param("attention", marks=pytest.mark.slow)]
)  # fmt: skip
def test_several_jobs_of_the_built_in_check_come_to_the_same(tmp_path: Path, name: str) -> None:
    """The wide one has weights that lie in a file of their own, which all lanes read."""
    if name == "wide":
        feeds = {"x": np.ones((1, 600), np.float32)}
        path = saved(chain(["MatMul", "Relu"] * 3, shape=(1, 600)), tmp_path, feeds)
        inputs, node, more = tmp_path / "inputs.npz", "@n2@", NO_BUDGET
    else:
        built = zoo.attention()
        path, inputs = built.save(tmp_path)
        node, more = node_named(built, "Softmax"), {}
    options = {"inputs": (str(inputs),), **more, **planted({"kind": "value", "nodes": [node]})}
    found = []
    for jobs in (1, 2):
        done = reduce_by(path, None, tmp_path / str(jobs), options=options, jobs=jobs)
        assert done.exit_code == 0
        found.append((tmp_path / str(jobs) / "reduced.onnx").read_bytes())
    assert found[0] == found[1]


# -- a check that fails now and then -------------------------------------------------------------


def flaky(tmp_path: Path, names: tuple[str, ...], percent: int) -> CommandLine:
    """Returns a check that fails so often while ``names`` are there; seeded by its own count."""
    script = tmp_path / "flaky.py"
    script.write_text(
        "import pathlib, random, sys\n"
        "count = pathlib.Path(sys.argv[2]); n = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('.' * (n + 1))\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        f"there = all(name.encode() in data for name in {names!r})\n"
        f"sys.exit(there and random.Random(n).random() < {percent / 100})\n"
    )
    count = tmp_path / "count"
    return CommandLine((sys.executable, "-S", str(script), "{model}", str(count)))


@pytest.mark.parametrize("percent", [70, pytest.param(50, marks=pytest.mark.slow)])
def test_a_flaky_check_is_measured_and_searched_with_confidence(
    tmp_path: Path, percent: int
) -> None:
    path = saved(chain(["Relu"] * 40), tmp_path)
    line = flaky(tmp_path, ("@n23@",), percent)
    done = reduce_by(path, line, tmp_path, options=NO_BUDGET, confirm=Confirm(1, 5))
    assert done.exit_code == 0, done.message
    assert names_left(tmp_path) == ["@n23@"]
    assert "confidence" in done.message
    assert done.finding is not None
    assert any(step.step == "noisy search" for step in done.finding.trail)


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_fails_now_and_then_is_made_plain_as_well(tmp_path: Path, jobs: int) -> None:
    """Chance is drawn from the model and the count of its looks, so that jobs do not change it."""
    script = tmp_path / "rare.py"
    script.write_text(
        "import hashlib, sys\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        f"log = open({str(tmp_path / 'log')!r}, 'a')\n"
        "name = hashlib.sha256(data).hexdigest()\n"
        "print(name, file=log, flush=True)\n"
        "look = f'{name} {open(log.name).read().count(name)}'\n"
        "lucky = hashlib.sha256(look.encode()).digest()[0] % 10 < 6\n"
        "sys.exit(b'@n7@' in data and lucky)\n"
    )
    path = saved(chain(["Relu", "Add"] * 6, shape=(3, 8)), tmp_path)
    line = CommandLine((sys.executable, "-S", str(script), "{model}"))
    done = reduce_by(path, line, tmp_path / "out", confirm=Confirm(2, 6), jobs=jobs)
    assert done.exit_code == 0, done.message
    left = onnx.load(tmp_path / "out" / "reduced.onnx").graph
    assert [n.name for n in left.node] == ["@n7@"]
    assert [d.dim_value for d in left.input[0].type.tensor_type.shape.dim] == [1, 1]
    assert not any(np.any(onnx.numpy_helper.to_array(t)) for t in left.initializer)
    assert done.finding is not None
    assert not any("one check at a time" in note for note in done.finding.notes)


def test_an_unstable_start_is_refused_unless_confirmation_is_asked_for(tmp_path: Path) -> None:
    path = saved(chain(["Relu"] * 8), tmp_path)
    # Fails once, passes after that.
    script = f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; exit 1; }}"
    done = reduce_by(path, CommandLine(("sh", "-c", script, "{model}")), tmp_path)
    assert done.exit_code == 3
    assert "unstable" in done.message
    assert "--confirm" in done.message
    assert not (tmp_path / "reduced.onnx").exists()


def test_a_glance_at_all_tensors_saves_most_calls(tmp_path: Path) -> None:
    built = zoo.transformer_nodes(100)
    path, inputs = built.save(tmp_path)
    name = node_named(built, "MatMul", 9)
    options = {"inputs": (str(inputs),), **NO_BUDGET, **planted({"kind": "value", "nodes": [name]})}
    done = reduce_by(path, None, tmp_path / "out", options=options)
    assert names_left(tmp_path / "out") == [name]
    assert done.finding is not None
    assert done.finding.cost.reduce_builds <= 6


@pytest.mark.slow
def test_nodes_that_plain_values_no_longer_need_are_removed_and_proved(tmp_path: Path) -> None:
    """While the input is large two nodes are needed; a plain input needs one."""
    script = tmp_path / "check.py"
    script.write_text(
        "import sys, numpy as np\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "feeds = list(np.load(sys.argv[2]).values())\n"
        "plain = all((v == v.round()).all() for v in feeds)\n"
        "sys.exit(b'@n2@' in data and (plain or b'@n4@' in data))\n"
    )
    path = saved(chain(["Relu", "Add", "Neg", "Relu", "Neg", "Relu"]), tmp_path)
    line = CommandLine((sys.executable, str(script), "{model}", "{inputs}"))
    done = reduce_by(path, line, tmp_path / "out")
    assert names_left(tmp_path / "out") == ["@n2@"]
    assert done.finding is not None
    assert done.finding.culprit_nodes == ("@n2@",)
    assert done.finding.minimal is not None
    assert done.finding.minimal.one_minimal
