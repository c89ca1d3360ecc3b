"""What a diagnosis leaves and prints, outcome by outcome: the contract, the report, the case."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from markdown_it import MarkdownIt

import tapsect
from support import contract, zoo
from tapsect.cli import main
from tapsect.report import read_result, render_text

CONV, NORM = "stage0/Conv", "stage0/BatchNormalization"


def planted(kind: str, nodes: str = CONV, **more: Any) -> dict[str, Any]:
    return {"engine": "planted", "engine_options": {"kind": kind, "nodes": nodes, **more}}


OUTCOMES: dict[str, tuple[dict[str, Any], str, str | None, str | None]] = {
    "agrees": ({}, "agrees", None, None),
    "value": (planted("value"), "diverges", "accuracy", "engine_defect"),
    "fusion": (planted("fusion", f"{CONV},{NORM}"), "diverges", "accuracy", "engine_defect"),
    "nonfinite": (
        planted("nonfinite", limit=0.5, becomes="inf"), "diverges", "nonfinite", "engine_defect",
    ),
    "crash": ({**planted("crash"), "budget": 0}, "diverges", "crash", "engine_defect"),
    "build error": (planted("build_error"), "diverges", "build_error", "engine_defect"),
    "not supported": (
        planted("build_error", message="no kernel for {node}"), "diverges", "build_error",
        "unsupported",
    ),
    "run error": (planted("run_error"), "diverges", "run_error", "engine_defect"),
    "out of memory": (planted("out_of_memory"), "diverges", "out_of_memory", "resource_limit"),
    "flaky": (planted("flaky_run", sequence=[1, 0]), "diverges", "accuracy", "flaky_run"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return zoo.residual(1).save(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome_keeps_the_contract(
    name: str, model: tuple[Path, Path], tmp_path: Path
) -> None:
    options, status, failure, cause = OUTCOMES[name]
    path, inputs = model
    finding = tapsect.bisect(path, inputs=[inputs], out=tmp_path / "o", **options)
    body = contract.check(tmp_path / "o")
    assert (body["status"], body["failure"], body["cause"]) == (status, failure, cause)
    assert read_result(tmp_path / "o") == finding
    text = render_text(finding, folder=Path("o"))
    assert max(map(len, text.splitlines())) <= 80
    assert ("python o/case/check.py" in " ".join(text.split())) == (finding.minimal is not None)
    if finding.minimal is not None:
        done = subprocess.run(
            [sys.executable, "check.py"], cwd=tmp_path / "o" / "case", capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        assert "THE BUG IS THERE" in done.stdout


def test_the_machine_is_named(model: tuple[Path, Path], tmp_path: Path) -> None:
    finding = tapsect.bisect(model[0], inputs=[model[1]], out=tmp_path / "o")
    told = finding.environment
    assert {"python", "platform", "machine", "cpu", "cores", "packages"} <= set(told)
    assert {"numpy", "onnx", "onnxruntime"} <= set(told["packages"])
    assert all(told["packages"].values())


def test_a_broken_nvidia_smi_costs_nothing(
    model: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'Driver/library version mismatch'\nexit 18\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    finding = tapsect.bisect(model[0], inputs=[model[1]], out=tmp_path / "o")
    assert "gpus" not in finding.environment
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 570.1, 143771 MiB'\n")
    finding = tapsect.bisect(model[0], inputs=[model[1]], out=tmp_path / "o")
    assert finding.environment["gpus"] == ["NVIDIA H200, 570.1, 143771 MiB"]


# ------------------------------------------------------------------------------ the command


def command(model: tuple[Path, Path], *more: str) -> list[str]:
    return ["bisect", str(model[0]), "--inputs", str(model[1]), "--out", "o", "--engine",
            "planted", "--engine-option", "kind=value", f"nodes={CONV}", *more]  # fmt: skip


def test_json_is_the_file_and_nothing_else(
    model: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(command(model, "--json")) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(Path("o/result.json").read_text())
    assert contract.violations(json.loads(said.out)) == []


INSTALL_FIRST = (
    "" if find_spec("bokeh") and find_spec("jinja2") else "pip install 'tapsect[report]', then "
)


def test_the_last_lines_say_what_to_do_next(
    model: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(command(model)) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(
        f"DIVERGES  planted computes wrong values at node '{CONV}"
    )
    assert out.splitlines()[-2:] == [
        "Written to o: report.md, result.json, case/",
        f"A page with pictures: {INSTALL_FIRST}tapsect report o --format html",
    ]
    assert "'python o/case/check.py' exits with 1 while the bug is there." in out
    page = MarkdownIt("commonmark").enable("table").render(Path("o/report.md").read_text())
    assert page.count("<table>") == 4
    assert "{'" not in page


# ------------------------------------------------------- the validator itself notices things

WRONG: dict[str, tuple[tuple[str, ...], Any]] = {
    "schema": (("schema",), 2),
    "status": (("status",), "wrong"),
    "cause": (("cause",), "bad luck"),
    "failure gone": (("failure",), None),
    "sum": (("coverage", "verified"), 10_000),
    "relative path": (("minimal", "model"), "/tmp/model.onnx"),
    "evidence": (("first_divergence", "evidence"), "felt"),
    "number": (("cost", "seconds"), float("nan")),
    "flag": (("cost", "builds"), True),
    "sentence": (("message",), "two\nlines"),
    "proof": (("minimal", "reproduced"), 10_000),
}


def test_the_validator_notices_what_is_wrong(model: tuple[Path, Path], tmp_path: Path) -> None:
    tapsect.bisect(model[0], inputs=[model[1]], out=tmp_path / "o", **planted("value"))
    body = contract.check(tmp_path / "o")
    for name, (path, value) in WRONG.items():
        other = copy.deepcopy(body)
        holder = other
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        assert contract.violations(other), name
    for name in contract.TOP:
        assert contract.violations({k: v for k, v in body.items() if k != name}), name


def test_numbers_that_are_not_finite_are_strings(model: tuple[Path, Path], tmp_path: Path) -> None:
    value = zoo.residual(1).feeds
    feeds = {name: np.where(np.arange(v.size).reshape(v.shape) == 0, np.inf, v).astype(v.dtype)
             for name, v in value.items()}  # fmt: skip
    finding = tapsect.bisect(
        model[0], inputs=[feeds], out=tmp_path / "o",
        **planted("nonfinite", limit=0.1, becomes="nan"),
    )  # fmt: skip
    assert finding.failure == "nonfinite"
    body = contract.check(tmp_path / "o")  # which takes no bare NaN or Infinity
    numbers = [body["first_divergence"]["rounding_ratio"], body["outputs"][0]["rel_rms"]]
    assert all(n is None or isinstance(n, float) or n in ("inf", "-inf", "nan") for n in numbers)
    assert body["first_divergence"]["rounding_ratio"] == "inf"


@pytest.mark.parametrize(
    ("node", "words"),
    [("n0", "the first operator alone fails"), ("n1", "the first operator alone does not fail")],
)
def test_a_crash_at_the_beginning_is_told_in_words_that_fit(
    node: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        { [n0] a = Relu(x)  [n1] b = Neg(a)  [n2] y = Exp(b) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    engine = planted("crash", node, phase="build")
    found = tapsect.bisect(path, out=tmp_path / "o", budget=0, **engine)
    assert found.first_divergence is not None
    assert found.first_divergence.node == node
    assert words in found.first_divergence.note
