"""``reduce``, ``extract`` and ``inspect`` as commands: words in, files and exit status out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from support import zoo
from support.reducing_models import chain, saved
from tapsect.cli import main
from tapsect.cli.argv import expand_lists


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def grep(name: str) -> list[str]:
    return ["--fail-code", "0", "--check", "grep", "-qF", name, "{model}"]


def test_all_that_follows_check_is_the_command() -> None:
    words = ["reduce", "m.onnx", "--check", "tapsect", "inspect", "{model}", "--show", "nodes"]
    expanded = expand_lists(words)
    assert expanded[:3] == ["reduce", "m.onnx", "--check"]
    assert json.loads(expanded[3]) == ["tapsect", "inspect", "{model}", "--show", "nodes"]


def test_the_published_way_to_try_a_reducer_out(capsys: pytest.CaptureFixture[str]) -> None:
    saved(chain(["Relu", "Neg", "Mul", "Relu"]), Path())
    argv = [
        "reduce",
        "model.onnx",
        "--fail-regex",
        "Op: Mul",
        "--quiet",
        "--budget",
        "0",
        "--check",
    ]
    argv += [sys.executable, "-m", "tapsect", "inspect", "{model}", "--show", "nodes"]
    assert main(argv) == 0
    left = onnx.load("reduced.onnx").graph.node
    assert [n.op_type for n in left] == ["Mul"]
    assert "1 of 4 nodes" in capsys.readouterr().out


def test_exit_3_says_what_was_seen_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    saved(chain(["Relu"] * 3), Path())
    before = sorted(p.name for p in Path().iterdir())
    assert main(["reduce", "model.onnx", "--quiet", *grep("@n7@")]) == 3
    said = capsys.readouterr()
    assert "does not fail" in said.err
    assert {p.name for p in Path().iterdir()} - set(before) <= {"tapsect_candidate.onnx"}


def test_a_person_decides_when_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(chain(["Relu", "Neg"] * 2), Path())

    class Person:
        def readline(self) -> str:
            names = {n.name for n in onnx.load("tapsect_candidate.onnx").graph.node}
            return "bad\n" if "@n2@" in names else "good\n"

    monkeypatch.setattr(sys, "stdin", Person())
    assert main(["reduce", "model.onnx"]) == 0
    assert [n.name for n in onnx.load("reduced.onnx").graph.node] == ["@n2@"]
    said = capsys.readouterr().out
    assert "4 of 4 nodes" in said
    assert "if it is good, next:" in said


def test_nobody_there_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(chain(["Relu"]), Path())
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["reduce", "model.onnx"]) == 2
    assert "--check CMD" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--check", "/nowhere/prog", "{model}"], "cannot be started"),
        (["--check"], "needs a command"),
        (["--check", "false"], "empty model"),
        (["--fail-regex", "(", "--check", "true"], "regular expression"),
        (["--fail-code", "1", "--ignore-fail-code", "2", "--check", "true"], "exclude"),
        (["--fail-regex", "x"], "add --check"),
        (["--passes", "shrink-shape", "--check", "true"], "did you mean 'shrink-shapes'"),
        (["--mode", "fast", "--check", "true"], "bisect, linear, full"),
        (["--golden", "twice", "--check", "true"], "once, each"),
        (["--confirm", "3", "--check", "true"], "K/N"),
        (["--confirm", "4/3", "--check", "true"], "K/N"),
    ],
)
def test_wrong_words_are_named(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(chain(["Relu"] * 2), Path())
    assert main(["reduce", "model.onnx", "--quiet", *argv]) == 2
    assert said in capsys.readouterr().err
    assert not Path("reduced.onnx").exists()
    assert not Path("tapsect-reduce-model").exists()


def test_a_model_the_checker_rejects_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    model = chain(["Relu", "Neg"])
    model.graph.node[1].op_type = "NoSuchOp"
    saved(model, Path())
    assert main(["reduce", "model.onnx", "--check", "false"]) == 2
    assert "not valid ONNX" in capsys.readouterr().err


def test_the_passes_print_with_their_purposes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "--passes", "list"]) == 0
    said = capsys.readouterr().out
    for name in ("cut-outputs", "bypass-nodes", "shrink-shapes", "short-names", "walk-ends"):
        assert name in said


def test_named_passes_run_and_names_become_short() -> None:
    saved(chain(["Relu", "MatMul", "Neg"]), Path())
    argv = ["reduce", "model.onnx", "--quiet", "--passes", "cut-ends,short-names"]
    line = ["--check", sys.executable, "-c", _COUNT_MATMUL, "{model}"]
    assert main([*argv, *line]) == 0
    graph = onnx.load("reduced.onnx").graph
    assert [(n.op_type, n.name) for n in graph.node] == [("MatMul", "n0")]


_COUNT_MATMUL = "import sys; sys.exit(b'MatMul' in open(sys.argv[1], 'rb').read())"


def test_result_json_holds_the_command_and_the_minimum(capsys: pytest.CaptureFixture[str]) -> None:
    saved(chain(["Relu"] * 9), Path())
    assert main(["reduce", "model.onnx", "--json", "--out", "res", *grep("@n4@")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(Path("res/result.json").read_text())
    assert printed["minimal"]["nodes"] == ["@n4@"]
    assert printed["minimal"]["one_minimal"] is True
    assert printed["signature"]["kind"] == "exit status 0"


def test_artifacts_are_sorted() -> None:
    saved(chain(["Relu"] * 4), Path())
    argv = ["reduce", "model.onnx", "--quiet", "--budget", "0", "--artifacts",
            "tapsect_candidate.onnx", "--artifacts-dir", "kept"]  # fmt: skip
    assert main([*argv, *grep("@n2@")]) == 0
    assert any(Path("kept/bad").iterdir())
    assert any(Path("kept/good").iterdir())


def test_extract_and_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    built = zoo.chain_cnn(6)
    path, _ = built.save(Path())
    begin, end = built.model.graph.node[1].output[0], built.model.graph.node[3].output[0]
    argv = ["extract", str(path), "--inputs", f"{begin}:auto:auto", "--outputs", f"{end}:auto"]
    assert main([*argv, "-o", "sub.onnx", "--values", "y.npz"]) == 0
    assert Path("y.npz").exists()
    assert Path("y.expected.npz").exists()
    assert main(["inspect", "sub.onnx", "--show", "nodes,attrs", "weights"]) == 0
    said = capsys.readouterr().out
    assert "2 nodes" in said
    assert "[Op: Conv]" in said
    assert "kernel_shape = [3, 3]" in said
    with np.load("y.npz") as values:  # noqa: TID251
        assert list(values) == [begin]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["extract", "model.onnx", "--outputs", "t9"], "did you mean"),
        (["extract", "model.onnx", "--inputs", "t2:auto:auto", "--outputs", "t1"], "unfed"),
        (["extract", "model.onnx", "--inputs", "x:[a b]:float32"], "no dimension"),
        (["inspect", "model.onnx", "--show", "nodes,attr"], "attr"),
        (["inspect", "nowhere.onnx"], "no such file"),
    ],
)
def test_wrong_names_by_hand(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(chain(["Relu", "Neg", "Relu"]), Path())
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_it_runs_as_a_program() -> None:
    saved(chain(["Relu"] * 5), Path())
    command = [sys.executable, "-m", "tapsect", "reduce", "model.onnx", *grep("@n3@")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "nodes left" in done.stderr
    assert "Written: reduced.onnx" in done.stdout


STOPS = """
import os, signal, sys
calls = open("calls", "a+")
calls.write("x"), calls.flush()
if calls.tell() == 6 and os.path.exists("stop"):
    os.kill(os.getppid(), signal.SIGINT)
sys.exit(b"n2" in open(sys.argv[1], "rb").read())
"""


def test_what_was_asked_outlives_an_interruption_and_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved(chain(["Relu", "Neg", "Mul", "Relu", "Neg", "Relu"]), Path())
    Path("check.py").write_text(STOPS)
    Path("stop").touch()
    command = ["--check", sys.executable, "check.py", "{model}"]
    argv = ["reduce", "model.onnx", "--quiet", "--out", "o", "--budget", "0"]
    assert main([*argv, *command]) == 130
    said = capsys.readouterr().err.strip()
    assert "interrupted: the best so far" in said
    assert len(said.splitlines()) == 1
    journal = Path("o/journal.jsonl").read_bytes()
    assert main([*argv, "--inputs", "gone.npz", *command]) == 2
    assert Path("o/journal.jsonl").read_bytes() == journal
    before = Path("calls").stat().st_size
    Path("stop").unlink()
    assert main([*argv, *command]) == 0
    continued = Path("calls").stat().st_size - before
    Path("calls").write_text("")
    assert main([*argv[:-4], "--out", "fresh", "--budget", "0", *command]) == 0
    assert continued < Path("calls").stat().st_size


@pytest.mark.parametrize("flag", ["-o", "--min-good"])
def test_a_file_that_cannot_be_written_is_told_before_any_check(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(chain(["Relu", "Neg"]), Path())
    Path("file").touch()
    Path("folder").mkdir()
    for place, why in (("file/a.onnx", "takes files"), ("folder", "is a folder")):
        argv = ["reduce", "model.onnx", "--quiet", flag, place, "--out", "o"]
        assert main([*argv, "--check", sys.executable, "-c", "open('asked', 'w')"]) == 2
        assert why in capsys.readouterr().err
    assert not Path("asked").exists()
    assert not Path("o").exists()
