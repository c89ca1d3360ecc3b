"""``tapsect repeat`` on builds that choose: rates, files, judges, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tapsect
from debugtaps import UsageError, parse_options
from support.repeating import BAD, GUILTY, chooses, given
from tapsect.cli import main
from tapsect.finding import Finding
from tapsect.verdict import Verdict

CHECK = f"""
import json, sys
kept = json.load(open(sys.argv[1] + "/planted.json"))
sys.exit(kept["tactics"][{GUILTY!r}] == {BAD!r})
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def result(folder: str = "out") -> Finding:
    return Finding.from_json(json.loads(Path(folder, "result.json").read_text(encoding="utf-8")))


def test_builds_that_disagree_get_a_rate_and_the_choice_that_only_bad_ones_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--save-tactics", "t.json", "--artifacts-dir", "arts", "--out", "out"]
    code = main(["repeat", *given(tmp_path), *chooses(tmp_path / "state"), *told, "--runs", "2"])
    finding = result()
    seen = finding.repeats
    assert (code, finding.cause, finding.status) == (1, "flaky_build", "diverges")
    assert seen is not None
    assert (seen.unit, seen.mixed, seen.of) == ("build", 0, seen.builds)
    assert seen.low < 0.5 < seen.high
    bad = [json.loads(p.read_text(encoding="utf-8")) for p in Path("arts/bad").iterdir()]
    good = [json.loads(p.read_text(encoding="utf-8")) for p in Path("arts/good").iterdir()]
    assert (len(bad), len(good)) == (seen.bad, seen.builds - seen.bad)
    assert {b["tactics"][GUILTY] for b in bad} == {BAD}
    assert {g["tactics"][GUILTY] for g in good} == {"direct"}
    shown = capsys.readouterr().out
    assert f"only bad builds chose '{BAD}' for '{GUILTY}'" in shown
    assert "block7" not in shown


def test_runs_of_one_build_that_disagree_are_told_apart(tmp_path: Path) -> None:
    words = [
        "--engine", "planted", "--engine-option", "kind=flaky_run", f"nodes={GUILTY}",
        "error=0.05", "rate=0.4", "seed=2", "--until", "6", "--out", "out",
    ]  # fmt: skip
    assert main(["repeat", *given(tmp_path), *words]) == 1
    finding = result()
    assert finding.cause == "flaky_run"
    assert finding.repeats is not None
    assert (finding.repeats.unit, finding.repeats.of) == ("run", 18)
    assert finding.repeats.mixed > 1


def test_all_good_is_0_and_says_how_rare_bad_ones_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repeat", *given(tmp_path), "--until", "4", "--out", "out", "-q"]) == 0
    assert capsys.readouterr().out.startswith("All 4 builds by ort are good: fewer than 49% are")


def test_a_crash_in_some_builds_is_bad_and_is_named(tmp_path: Path) -> None:
    fault = {"kind": "flaky_build", "of": {"kind": "crash", "nodes": [GUILTY]}, "rate": 0.5}
    words = [f"faults={json.dumps([fault])}", f"state={json.dumps(str(tmp_path / 's'))}"]
    words = ["--engine", "planted", "--engine-option", *words, "--until", "bad", "--out", "out"]
    assert main(["repeat", *given(tmp_path), *words]) == 1
    assert any("crash: " in note for note in result().notes)


def test_a_command_judges_the_saved_build_and_its_files_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(CHECK, encoding="utf-8")
    words = [
        "--until", "6", "--artifacts", "tapsect_candidate.engine", "--artifacts-dir", "arts",
        "--out", "out", "--check", sys.executable, "check.py", "{engine}",
    ]  # fmt: skip
    assert main(["repeat", *given(tmp_path), *chooses(tmp_path / "state"), *words]) == 1
    for side, choice in (("bad", BAD), ("good", "direct")):
        kept = list(Path("arts", side).glob("tapsect_candidate_*.engine/planted.json"))
        assert kept
        assert {json.loads(p.read_text())["tactics"][GUILTY] for p in kept} == {choice}
    assert result().repeats.of == 6  # type: ignore[union-attr]


def test_a_person_judges_until_the_first_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["bad\n", "skip\n", "good\n"])
    monkeypatch.setattr("sys.stdin", type("In", (), {"readline": lambda _: next(answers)})())
    words = ["--ask", "--until", "good", "--out", "out"]
    assert main(["repeat", *given(tmp_path), *chooses(tmp_path / "state"), *words]) == 1
    seen = result().repeats
    assert seen is not None
    assert (seen.bad, seen.of, seen.builds) == (1, 2, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until", "soon"], "neither a number"),
        (["--check", "true", "{engine}"], "cannot save what it builds"),
        (["--ask"], "tapsect_candidate.engine; leave out --ask"),
        (["--artifacts", "tapsect_candidate.engine"], "; leave tapsect_candidate.engine out"),
        (["--ask", "--check", "true"], "exclude each other"),
        (["--save-tactics", "t.json"], "does not tell what it chose"),
        (["--until", "2", "--check", "sh", "-c", "exit 125", "{model}"], "none of 2 builds"),
        (["--fail-code", "3"], "add --check"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["repeat", *given(tmp_path), "--out", "out", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("out").exists()


def test_an_interrupted_one_continues_where_it_was(tmp_path: Path) -> None:
    script = "echo x >> log; sleep 0.3; exit $(($(wc -l < log) % 2))"
    words: list[Any] = [
        sys.executable, "-m", "tapsect", "repeat", *given(tmp_path), "--until", "6",
        "--out", "out", "--check", "sh", "-c", script, "{model}",
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log = Path("log")
    while not log.exists() or log.read_text().count("x") < 3:
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate()[0].rstrip().endswith(b"to continue")
    assert process.returncode == 130
    done = Path("out/journal.jsonl").read_text().count('"entry": "probe"')
    assert done >= 2
    before = log.read_text().count("x")
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stderr
    assert log.read_text().count("x") == before + 6 - done
    assert result().repeats.of == 6  # type: ignore[union-attr]


def test_python_asks_as_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(CHECK, encoding="utf-8")
    model, _, inputs = given(tmp_path)
    done = tapsect.repeat(
        model, until="bad", check=[sys.executable, "check.py", "{engine}"], inputs=[inputs],
        engine="planted", engine_options=options_of(chooses(tmp_path / "s")), out="out",
    )  # fmt: skip
    assert done.tally.attempts[-1].verdict is Verdict.DIVERGES
    assert done.finding == result()
    with pytest.raises(UsageError, match="until='soon' is neither a number"):
        tapsect.repeat(model, until="soon")


def options_of(words: list[str]) -> dict[str, Any]:
    return parse_options(words[words.index("--engine-option") + 1 :])
