"""What a suite may say, what it means, and how each mistake is told: with its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

pytest.importorskip("ruamel.yaml")

from debugtaps import InputError
from tapsect.cli import main
from tapsect.triage.plan import Plan, read_plan
from tapsect.triage.suite import EngineRow, Expectation, Limits, ModelRow, Suite, read_suite

ENGINE = "engines:\n- {name: ort}\n"
MODEL = "models:\n- {path: a/model.onnx, name: a}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file in ("model.onnx", "day.npz", "night.npz"):
            (tmp_path / name / file).touch()
    return tmp_path


def plan(folder: Path, text: str) -> Plan:
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return read_plan(folder / "suite.yaml")


def names(folder: Path, text: str) -> list[str]:
    return [entry.name for entry in plan(folder, text).entries]


def test_models_times_inputs_times_engines(folder: Path) -> None:
    text = """\
engines:
- name: ort
  options: {threads: 1}
  matrix: {options: {level: [basic, all]}, precision: [fp32]}
- name: onnx
  spec: onnx
models:
- path: a/model.onnx
  name: a
  inputs: {day: ["{dir}/day.npz"], both: ["{dir}/*.npz"]}
- path: b/model.onnx
  name: b
  engines: ["on*"]
"""
    found = plan(folder, text)
    assert [entry.name for entry in found.entries] == [
        "a/day/ort(level=basic,precision=fp32)",
        "a/day/ort(level=all,precision=fp32)",
        "a/day/onnx",
        "a/both/ort(level=basic,precision=fp32)",
        "a/both/ort(level=all,precision=fp32)",
        "a/both/onnx",
        "b/onnx",
    ]
    assert dict(found.entries[0].engine.options) == {"threads": 1, "level": "basic"}
    assert [p.name for p in found.entries[3].inputs] == ["day.npz", "night.npz"]


def test_globs_give_one_entry_a_model(folder: Path) -> None:
    (folder / "b/model.onnx").rename(folder / "b/other.onnx")
    assert names(folder, ENGINE + "models:\n- path: '*/*.onnx'\n") == ["model/ort", "other/ort"]


def test_limits_of_a_model_go_before_those_of_its_engine_and_suite(folder: Path) -> None:
    text = """\
limits: {time: 10, builds: 5}
engines: [{name: ort, limits: {time: 20, memory: 2GiB}}]
models: [{path: a/model.onnx, limits: {time: 30}}]
"""
    limits = plan(folder, text).entries[0].limits
    assert (limits.time, limits.memory, limits.builds) == (30.0, 2 << 30, 5)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (ENGINE + "models:\n- path: a/model.onnx\n  inpts: []\n", 5, "unknown key .models.0.inpts"),
        (ENGINE + "models:\n- path: c/model.onnx\n", 4, "c/model.onnx: there is no such file"),
        (ENGINE + "models:\n- path: 'c/*.onnx'\n", 4, "no file in .* fits it"),
        (ENGINE + "models:\n- path: '*/model.onnx'\n", 4, "two entries are called 'model/ort'"),
        (ENGINE + MODEL + MODEL.split("\n")[1] + "\n", 5, "two entries .* here and in line 4"),
        (ENGINE + MODEL + "  # x\nmodels: []\n", 6, "the key 'models' stands here twice"),
        (ENGINE + "models:\n- {path: a/model.onnx, inputs: 3}\n", 4, "'models.0.inputs'"),
        (ENGINE + "models:\n- path: a/model.onnx\n  inputs: [c.npz]\n", 5, "no such file"),
        (ENGINE + "models:\n- path: a/model.onnx\n  limits: {time: yes}\n", 5, "valid number"),
        (ENGINE + "models:\n- path: a/model.onnx\n  limits: {memory: x}\n", 5, "memory"),
        (ENGINE + "models:\n- path: a/model.onnx\n  engines: [trt]\n", 5, "no engine .* 'trt'"),
        (ENGINE + "models:\n- path: a/model.onnx\n  judge: f.py\n", 5, "write file.py:function"),
        (ENGINE + MODEL + "expect:\n- entries: a/*\n  answer: engine_defect\n", 6, "last day"),
        (ENGINE + MODEL + "expect:\n- entries: a/*\n  answer: broken\n", 7, "'expect.0.answer'"),
        ("engines:\n- name: x\n  spec: otr\n" + MODEL, 3, "did you mean ort"),
        ("engines:\n- name: x\n- name: x\n" + MODEL, 3, "two engines are called 'x'"),
        ("engines: []\n" + MODEL, 1, "'engines'"),
        (MODEL, 1, "'engines' is missing"),
        ("engines: [\n", 2, "no YAML"),
        ("- a\n", 1, "a suite has the keys engines and models"),
        ("", 1, "a suite has the keys engines and models"),
        ("engines: !!python/object:os.system {}\n", 1, ""),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(text: str, line: int, said: str, folder: Path) -> None:
    with pytest.raises(InputError, match=rf"suite.yaml:{line}: .*{said}"):
        plan(folder, text)


def test_only_what_fits_a_pattern(folder: Path) -> None:
    found = plan(folder, ENGINE + MODEL)
    assert [e.name for e in found.only(["a/*"])] == ["a/ort"]
    with pytest.raises(InputError, match=r"--only 'c/\*' fits no entry .* like 'a/ort'"):
        found.only(["c/*"])


def test_init_writes_a_suite_that_can_be_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "a/model.npz").touch()
    assert main(["triage", "init", ".", "-o", "made.yaml"]) == 0
    entries = read_plan(folder / "made.yaml").entries
    assert [(e.name, [p.name for p in e.inputs]) for e in entries] == [
        ("a-model/ort", ["model.npz"]), ("b-model/ort", []),
    ]  # fmt: skip
    assert main(["triage", "init", ".", "-o", "made.yaml"]) == 2
    assert "made.yaml exists" in capsys.readouterr().err
    (folder / "empty").mkdir()
    assert main(["triage", "init", "empty"]) == 2


DOC = Path(__file__).resolve().parents[2] / "docs" / "triage.md"


def test_the_suite_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)
    (tmp_path / "suite.yaml").write_text(block, encoding="utf-8")
    suite, _ = read_suite(tmp_path / "suite.yaml")
    assert [engine.name for engine in suite.engines] == ["ort", "trt"]


@pytest.mark.parametrize("row", [Suite, EngineRow, ModelRow, Limits, Expectation])
def test_every_key_is_documented(row: type[BaseModel]) -> None:
    text = DOC.read_text("utf-8")
    assert [key for key in row.model_fields if f"`{key}`" not in text] == []
