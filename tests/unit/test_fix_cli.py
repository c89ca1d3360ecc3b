"""``tapsect fix`` and ``tapsect versions``: exit status and one sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from support import knob_engine
from tapsect.cli import main

ENGINE = f"{knob_engine.__file__}:Knobby"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 8] x) => (float[2, 8] y) { y = Exp(x) }
    """
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    return Path("m.onnx")


def test_an_unknown_knob_lists_those_there_are_and_leaves_nothing(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fix", str(model), "--engine", ENGINE, "--knob", "colour"]) == 2
    said = capsys.readouterr().err
    assert "the engine has no knob 'colour'; it has passes, k0, k1" in said
    assert not Path("tapsect-m").exists()


def test_a_cure_is_printed_as_an_option_and_ends_with_0(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fix", str(model), "--engine", ENGINE, "--engine-option", 'cures=[["P3"]]']
    assert main([*words, "--knob", "passes", "-q"]) == 0
    line = capsys.readouterr().out.strip()
    assert line.startswith("Cured by --engine-option passes=P3: error 0.05 -> 0, latency ")


@pytest.mark.parametrize(
    ("option", "said"),
    [('cures=[["k0"]]', "No cure was found."), ("cures=[[]]", "Nothing to cure.")],
)
def test_without_a_cure_it_ends_with_3(
    model: Path, option: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fix", str(model), "--engine", ENGINE, "--engine-option", option]
    assert main([*words, "--knob", "k5", "-q"]) == 3
    assert capsys.readouterr().out.strip() == said


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("x", "--override-input-shapes 'x' is not of the form"),
        ("z:[2,8]", "--override-input-shapes z:[2, 8]: the model has no such input; it has 'x'"),
        ("x:[4,8]", "--override-input-shapes x:[4, 8]: sample 0 has [2, 8], and a frozen input"),
    ],
)
def test_shapes_that_cannot_be_are_refused_and_nothing_is_left(
    model: Path, shape: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fix", str(model), "--override-input-shapes", shape]) == 2
    assert said in capsys.readouterr().err
    assert not Path("tapsect-m").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {'a': 3}", "the engine's knobs() has 3 for 'a'; expected a list of values"),
        ("return {'a': 'nodes'}", "the engine's knobs() has 'nodes' for 'a'; expected a list"),
        ("return ['a']", "the engine's knobs() returns ['a']; expected options by name"),
        ("raise RuntimeError('not today')", "the engine's knobs() fails: RuntimeError: not today"),
    ],
)
def test_an_engine_that_names_its_knobs_wrongly_is_told_so(
    model: Path, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path(knob_engine.__file__).read_text(encoding="utf-8")
    odd = f"\n\nclass Odd(Knobby):\n    def knobs(self):\n        {body}\n"
    Path("odd.py").write_text(text + odd, encoding="utf-8")
    assert main(["fix", str(model), "--engine", "odd.py:Odd"]) == 3
    assert said in capsys.readouterr().out
    assert main(["fix", str(model), "--engine", "odd.py:Odd", "--knob", "a", "--out", "o"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("1.19", "latest", "--to 'latest' is no version; write it as 1.17 or 1.17.3"),
        ("1.23", "1.19.2", "--from 1.23 is later than --to 1.19.2; swap them"),
    ],
)
def test_bounds_that_cannot_be_are_refused_before_an_index_is_asked(
    model: Path, first: str, last: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["versions", str(model), "--from", first, "--to", last]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "asking pip" not in shown


def test_without_time_it_says_that_nothing_was_tried(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fix", str(model), "--engine", ENGINE, "--engine-option", 'cures=[["k0"]]']
    assert main([*words, "--budget", "0"]) == 3
    assert "fix: nothing was tried (--budget is 0" in capsys.readouterr().out


def test_a_package_without_an_engine_is_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["versions", str(model), "--package", "leftpad", "--from", "1", "--to", "2"]
    assert main(words) == 2
    assert "no engine is known for package 'leftpad'; name one with --engine" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_version_that_does_not_exist_is_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["versions", str(model), "--from", "1.19", "--to", "99.9", "-q"]
    status = main(words)
    said = capsys.readouterr().err
    if status == 4:
        pytest.skip(f"pip lists no releases here: {said}")
    assert status == 2
    assert "--to: there is no onnxruntime 99.9; the latest are" in said
