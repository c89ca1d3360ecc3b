"""What a command or a person says, and what becomes of the files of a check."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from debugtaps import UsageError
from support.reducing_models import chain
from tapsect.checks import Artifacts, CommandLine, Rule, Seen, judged, run_command
from tapsect.journal import Journal
from tapsect.minimal.checks import CommandCheck
from tapsect.minimal.person import PersonCheck
from tapsect.minimal.trial import Trial
from tapsect.minimal.words import confidence
from tapsect.verdict import NOTHING, Signature, Verdict


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(chain(["Relu", "Neg"]), tmp_path, [{}], 2, "two nodes")


def command(tmp_path: Path, script: str, rule: Rule | None = None, **more: object) -> CommandCheck:
    words = ("sh", "-c", script, "{model}")
    line = CommandLine(words, rule or Rule(), artifact=tmp_path / "c.onnx", **more)  # type: ignore[arg-type]
    (tmp_path / "journal").mkdir(exist_ok=True)
    journal = Journal(tmp_path / "journal", "test")
    return CommandCheck(line, tmp_path, journal, frozenset({"conv_7"}))


@pytest.mark.parametrize(
    ("script", "rule", "verdict"),
    [
        ("exit 0", Rule(), Verdict.AGREES),
        ("exit 3", Rule(), Verdict.DIVERGES),
        ("exit 125", Rule(), Verdict.INVALID),
        ("exit 3", Rule(codes=(4,)), Verdict.AGREES),
        ("exit 4", Rule(codes=(4,)), Verdict.DIVERGES),
        ("exit 0", Rule(codes=(0,)), Verdict.DIVERGES),
        ("exit 3", Rule(ignored=(3,)), Verdict.AGREES),
        ("echo Op: Mul", Rule(regexes=("Op: Mul",)), Verdict.DIVERGES),
        ("echo Op: Mul >&2", Rule(regexes=("Op: (Mul|Add)",)), Verdict.DIVERGES),
        ("echo Op: Add; exit 1", Rule(regexes=("Op: Mul",)), Verdict.AGREES),
        ("echo bad; exit 1", Rule(regexes=("bad",), codes=(2,)), Verdict.AGREES),
        ("kill -SEGV $$", Rule(), Verdict.DIVERGES),
        ("test -s $0", Rule(), Verdict.AGREES),
    ],
)
def test_exit_status_and_output_are_judged_by_the_rule(
    tmp_path: Path, trial: Trial, script: str, rule: Rule, verdict: Verdict
) -> None:
    assert command(tmp_path, script, rule)(trial)[0] is verdict


def test_a_command_that_hangs_is_ended_and_is_a_failure_of_its_own(
    tmp_path: Path, trial: Trial
) -> None:
    check = command(tmp_path, "sleep 60", timeout=0.3)
    assert check(trial) == (Verdict.DIVERGES, Signature("timeout"))
    assert check.last.seconds < 10


def test_a_crash_is_told_by_its_signal(tmp_path: Path, trial: Trial) -> None:
    assert command(tmp_path, "kill -SEGV $$")(trial)[1] == Signature("crash", "SIGSEGV")


def test_signatures_hold_the_message_without_what_varies() -> None:
    names = frozenset({"conv_7"})
    one = judged(
        Seen(1, "ok\nRuntimeError: conv_7 failed at 0x7f: 0.31 > 1e-5\n", 0.1), Rule(), names
    )
    two = judged(Seen(1, "RuntimeError: conv_7 failed at 0x1c: 7 > 1e-5", 0.1), Rule(), names)
    other = judged(Seen(1, "KeyError: 'conv_7'", 0.1), Rule(), names)
    quiet = judged(Seen(1, "", 0.1), Rule(), names)
    assert one == two
    assert "_ failed" in one[1].detail  # type: ignore[union-attr]
    assert not one[1].matches(other[1])  # type: ignore[union-attr, arg-type]
    assert not one[1].matches(quiet[1])  # type: ignore[union-attr, arg-type]


def test_an_error_is_told_by_the_one_operator_that_it_names() -> None:
    ops = {"conv_7": "Conv", "/a/MatMul": "MatMul", "": "Relu"}
    for message, op in (
        ("Error: no kernel for Conv(11) node with name 'conv_7'", "Conv"),
        ("Error at '/a/MatMul': bad", "MatMul"),
        ("Error (op_type:Conv, node name: x)", "Conv"),
        ("Error in ForeignNode[conv_7.../a/MatMul]", ""),
        ("Error in conv_7 and /a/MatMul", ""),
        ("Error: Convolution is not there", ""),
    ):
        seen = judged(Seen(1, message, 0.1), Rule(), ops, ops)[1]
        assert seen is not None
        assert seen.op == op, message
    crash = Signature("run_error", op="Conv")
    assert crash.matches(Signature("run_error"))
    assert not crash.matches(Signature("run_error", op="Relu"))


def test_wrong_answers_match_within_two_decades() -> None:
    half = Signature("accuracy", magnitude=0)
    assert half.matches(Signature("accuracy", magnitude=-2))
    assert half.matches(Signature("accuracy"))
    assert not half.matches(Signature("accuracy", magnitude=-3))
    assert "1e-3" in Signature("accuracy", magnitude=-3).words
    assert "does not show" in Signature("accuracy", magnitude=NOTHING).words


def test_a_command_that_cannot_start_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="cannot be started"):
        run_command(["/nowhere/checker"], None)


def test_no_shell_stands_between(tmp_path: Path) -> None:
    seen = run_command([sys.executable, "-c", "import sys; print(sys.argv[1])", "$HOME; ls"], None)
    assert seen.text == "$HOME; ls\n"


def test_answers_are_remembered_across_runs(tmp_path: Path, trial: Trial) -> None:
    log = tmp_path / "log"
    command(tmp_path, f"echo ran >> {log}; exit 1")(trial)
    again = command(tmp_path, f"echo ran >> {log}; exit 1")
    assert again(trial)[0] is Verdict.DIVERGES
    assert log.read_text() == "ran\n"
    again(trial, fresh=1)
    assert log.read_text() == "ran\nran\n"


def test_artifacts_are_sorted_with_the_iteration_in_their_name(
    tmp_path: Path, trial: Trial
) -> None:
    check = command(tmp_path, f"echo x > {tmp_path}/made.log; exit 1")
    check.artifacts = Artifacts([tmp_path / "made.log", tmp_path / "c.onnx"], tmp_path / "sorted")
    check(trial)
    check.line = CommandLine(("true",), artifact=tmp_path / "c.onnx")
    check(trial, fresh=1)
    found = sorted(str(p.relative_to(tmp_path / "sorted")) for p in tmp_path.glob("sorted/*/*"))
    assert found == ["bad/c_0001.onnx", "bad/made_0001.log", "good/c_0002.onnx"]


def test_a_person_is_shown_names_as_harmless_text(tmp_path: Path, trial: Trial) -> None:
    shown: list[str] = []

    def ask(text: str) -> str:
        shown.append(text)
        return "bad"

    (tmp_path / "j").mkdir()
    check = PersonCheck(ask, tmp_path / "c.onnx", Journal(tmp_path / "j", "p"))
    check(dataclasses.replace(trial, label="a\n\x1b[31mb\u202ec"))
    assert r"1. a\n\x1b[31mb\u202ec" in shown[0]
    assert "\x1b" not in shown[0]


def test_a_confidence_is_never_certain() -> None:
    assert confidence(1.0) == confidence(0.9999) == "over 99%"
    assert confidence(0.953) == "95%"


def test_a_person_is_asked_until_the_answer_is_one_and_only_once(
    tmp_path: Path, trial: Trial
) -> None:
    answers = iter(["what?", "b", "good", "s"])
    shown: list[str] = []

    def ask(text: str) -> str:
        shown.append(text)
        return next(answers)

    (tmp_path / "j").mkdir()
    check = PersonCheck(ask, tmp_path / "c.onnx", Journal(tmp_path / "j", "p"))
    check.coming = ["1 nodes"]
    assert check(trial) == (Verdict.DIVERGES, Signature("by hand"))
    assert check(trial)[0] is Verdict.DIVERGES
    assert check(trial, fresh=1)[0] is Verdict.AGREES
    assert check(trial, fresh=2)[0] is Verdict.INVALID
    assert "two nodes" in shown[0]
    assert "next: 1 nodes" in shown[0]
    assert "one of: good" in shown[1]
    assert (tmp_path / "c.onnx").exists()
