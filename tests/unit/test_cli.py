"""The command line: words to values, one sentence for every error, the right exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tapsect
from debugtaps import (
    EnvironmentFailure,
    InputError,
    Interrupted,
    ModelError,
    OutputError,
    TapsError,
    Tolerance,
    UsageError,
)
from tapsect.cli import _workers, main
from tapsect.cli.argv import expand_lists
from tapsect.cli.values import parse_memory
from tapsect.finding import Finding, Status
from tapsect.folder import check_folder, make_folder


class Called:
    """Stands in for the diagnosis: remembers what it was given, answers what it is told."""

    def __init__(self, answer: Finding | BaseException) -> None:
        self.answer = answer
        self.model: Any = None
        self.options: dict[str, Any] = {}

    @contextmanager
    def begun(self, *given: Any) -> Iterator[Any]:
        """Begins no worker, and remembers which would have begun."""
        yield given

    def __call__(self, model: Any, **options: Any) -> Finding:
        self.model, self.options = model, options
        options["progress"].step("building", "untapped")
        options["progress"].step("building", "again")
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def answer(status: Status = "agrees") -> Finding:
    return Finding("It is so.", status, "0.1.0")


@pytest.fixture
def diagnosis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Called:
    called = Called(answer())
    monkeypatch.setitem(vars(tapsect), "bisect", called)
    monkeypatch.setattr("tapsect.diagnose.workers.begun", called.begun)
    monkeypatch.chdir(tmp_path)
    return called


# --------------------------------------------------------------------------- words to values


def test_every_option_reaches_the_diagnosis(diagnosis: Called) -> None:
    words = """bisect m.onnx --inputs a.npz b.json --inputs c.py --input-shapes x:[1,2] y:[]
        --engine onnx --engine-option a=1 b=x,y --engine-python py --reference g.npz
        --reference-model r.onnx --precision fp16 --atol 1e-3 y:0.5 --rtol 1e-2
        --check-error-stat max --max-mape 3 --judge j.py:f --tap-memory 512MiB
        --timeout 5 --budget 7 --jobs 3 --out o --seed 3 --tap-mode border --engine-file p.plan"""
    assert main(words.split()) == 0
    progress = diagnosis.options.pop("progress")
    assert callable(progress.step)
    assert diagnosis.model == Path("m.onnx")
    assert diagnosis.options.pop("command")[0] == "tapsect"
    workers = ("onnx", {"a": 1, "b": "x,y"}, Path("py"), "g.npz", 5.0)
    assert diagnosis.options.pop("begun") == workers
    assert diagnosis.options == {
        "inputs": ["a.npz", "b.json", "c.py"],
        "input_shapes": {"x": (1, 2), "y": ()},
        "engine": "onnx",
        "engine_options": {"a": 1, "b": "x,y"},
        "engine_python": Path("py"),
        "reference": "g.npz",
        "reference_model": Path("r.onnx"),
        "precision": "fp16",
        "tolerance": Tolerance.parse(
            atol=["1e-3", "y:0.5"], rtol=["1e-2"], check_error_stat=["max"], max_mape=["3"]
        ),
        "judge": "j.py:f",
        "tap_memory": 512 << 20,
        "tap_mode": "border",
        "engine_file": Path("p.plan"),
        "timeout": 5.0,
        "budget": 7.0,
        "jobs": 3,
        "out": Path("o"),
        "seed": 3,
    }


def test_the_defaults(diagnosis: Called) -> None:
    assert main(["bisect", "some/net.onnx"]) == 0
    assert diagnosis.options["out"] == Path("tapsect-net")
    assert diagnosis.options["tolerance"] is None
    assert diagnosis.options["tap_memory"] == 1 << 30
    assert sorted(p.name for p in Path("tapsect-net").iterdir()) == ["report.md", "result.json"]


@pytest.mark.parametrize(
    "words",
    [
        "m.onnx --inputs a b",
        "--inputs a b m.onnx",
        "--inputs a --inputs b m.onnx",
        "--inputs=a b m.onnx",
        "--inputs a b -- m.onnx",
    ],
)
def test_the_model_may_stand_on_either_side_of_a_list(diagnosis: Called, words: str) -> None:
    assert main(["bisect", *words.split()]) == 0
    assert (str(diagnosis.model), diagnosis.options["inputs"]) == ("m.onnx", ["a", "b"])


def test_a_list_of_numbers_ends_at_the_model() -> None:
    words = ["--atol", "1e-3", "a:b:.5", "model.onnx"]
    assert expand_lists(words) == ["--atol", "1e-3", "--atol", "a:b:.5", "model.onnx"]


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("1.5 KiB", 1536), ("3g", 3 * 10**9)])
def test_sizes(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "5 apples"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is no size"):
        parse_memory(text)


# ------------------------------------------------------------------------------ what is printed


def test_json_is_all_there_is(diagnosis: Called, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bisect", "m.onnx", "--json"])
    assert json.loads(capsys.readouterr().out)["message"] == "It is so."


def test_quiet_is_one_sentence(diagnosis: Called, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bisect", "m.onnx", "--quiet"])
    said = capsys.readouterr()
    assert (said.out, said.err) == ("It is so.\n", "")


def test_progress_is_one_line_a_step(diagnosis: Called, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bisect", "m.onnx"])
    said = capsys.readouterr()
    assert said.err == "building: untapped\n"
    assert said.out.startswith("AGREES  It is so.\n")


def test_report_prints_it_again(diagnosis: Called, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bisect", "m.onnx", "--out", "o"])
    first = capsys.readouterr().out
    assert main(["report", "o"]) == 0
    assert capsys.readouterr().out == first
    assert main(["report", "o", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Agrees")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tapsect {tapsect.__version__}\n"
    assert main([]) == 2
    assert "bisect" in capsys.readouterr().out
    for command in ("bisect", "report", "demo"):
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert f"tapsect {command}" in text
        assert "Example" in text


# ---------------------------------------------------------------------- exit statuses and errors


@pytest.mark.parametrize(("status", "code"), [("agrees", 0), ("diverges", 1), ("inconclusive", 3)])
def test_exit_statuses(diagnosis: Called, status: Status, code: int) -> None:
    diagnosis.answer = answer(status)
    assert main(["bisect", "m.onnx"]) == code


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ModelError("m.onnx does not exist."), 2, "tapsect: m.onnx does not exist."),
        (InputError("a\nb\x1b"), 2, "tapsect: a b\\x1b"),
        (EnvironmentFailure("no memory"), 4, "tapsect: no memory"),
        (Interrupted("stopped"), 130, "tapsect: stopped"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to continue"),
    ],
)
def test_errors_are_one_sentence(
    diagnosis: Called,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    diagnosis.answer = error
    assert main(["bisect", "m.onnx", "--quiet"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert not Path("tapsect-m").exists()


def test_an_unforeseen_error_is_logged_and_not_shown(
    diagnosis: Called, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis.answer = ZeroDivisionError("by zero")
    Path("o").mkdir()
    assert main(["bisect", "m.onnx", "--out", "o", "--quiet"]) == 4
    said = capsys.readouterr().err
    log = Path("o") / "error.log"
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert f"please report this and attach {log}" in said
    assert "ZeroDivisionError: by zero" in log.read_text()
    diagnosis.answer = answer()
    assert main(["bisect", "m.onnx", "--out", "o"]) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bisect"], "Missing argument 'MODEL'"),
        (["bisec", "m"], "No such command 'bisec'"),
        (["bisect", "m.onnx", "--no-such"], "No such option"),
        (["bisect", "m.onnx", "--seed", "x"], "valid integer"),
        (["bisect", "m.onnx", "--tap-memory", "x"], "--tap-memory 'x' is no size"),
        (["bisect", "m.onnx", "--input-shapes", "x=1"], "--input-shapes 'x=1'"),
        (["bisect", "m.onnx", "--engine-option", "x"], "engine option 'x'"),
        (["bisect", "m.onnx", "--atol", "x"], "--atol 'x' is no number"),
        (["report", "nowhere"], "nowhere holds no result.json"),
    ],
)
def test_wrong_usage_is_one_sentence(
    diagnosis: Called, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert diagnosis.model is None


def test_every_error_has_an_exit_status_of_the_contract() -> None:
    def tree(kind: type[TapsError]) -> list[type[TapsError]]:
        return [kind, *(each for sub in kind.__subclasses__() for each in tree(sub))]

    assert {kind.exit_code for kind in tree(TapsError)} == {1, 2, 4, 130}


# ------------------------------------------------------------------------------ the out folder


def test_folders_that_may_be_used(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()
    made = make_folder(tmp_path / "a" / "b")
    check_folder(made)
    (made / "journal.jsonl").write_text("")
    (made / "anything").write_text("")
    check_folder(made)


def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(OutputError, match=r"holds 'thesis\.tex' and no journal"):
        check_folder(tmp_path)
    for place in (tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "o"):
        with pytest.raises(OutputError, match="is a file"):
            check_folder(place)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that refuses")
def test_folders_that_refuse() -> None:
    with pytest.raises(OutputError, match=r"cannot be (made|written)"):
        make_folder(Path("/proc/self/tapsect/out"))


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    from tapsect.report import write_reports

    write_reports(tmp_path, Finding("long " * 50_000, "agrees", "0.1.0"))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tapsect", "report", str(tmp_path), "--format", "markdown"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("bisect m.onnx", 2),
        ("fix m.onnx --knob=disabled_optimizers", 2),
        ("bisect m.onnx --engine-python old/python", 1),
        ("reduce m.onnx --engine ort", 2),
        ("reduce m.onnx --check tapsect bisect {model} --engine ort", 1),
        ("fix --help", 0),
        ("bisect m.onnx -h", 0),
        ("bisect", 0),
        ("report folder", 0),
    ],
)
def test_as_many_workers_begin_early_as_are_sure_to_be_needed(line: str, count: int) -> None:
    assert _workers(line.split()) == count
