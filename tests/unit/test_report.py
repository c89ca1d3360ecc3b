"""Reports: what a reader learns at 80 columns, and that no name of a model is believed."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from debugtaps import InputError
from tapsect.cli.report import print_finding
from tapsect.escape import clean, code, md
from tapsect.finding import (
    Cost,
    Coverage,
    Divergence,
    Finding,
    Fix,
    Minimal,
    OutputReport,
    Step,
)
from tapsect.report import read_result, render, render_markdown, render_text, write_reports
from tapsect.report.words import CAUSES, FAILURES

EVIL = "a\x1b[31m`|<script>\u202e[b](http://x)*_\n# h"

DEFECT = Finding(
    message="Node 'layer3/MatMul' is wrong: its error is 41 times what rounding explains.",
    status="diverges",
    tool_version="0.1.0",
    command=("tapsect", "bisect", "model.onnx"),
    failure="accuracy",
    cause="engine_defect",
    model={"path": "model.onnx", "nodes": 612},
    engine={"spec": "ort", "options": {}},
    precision={"stated": "fp16", "effective": "tf32"},
    outputs=(
        OutputReport("fine", 0, False, 1e-6, 1e-7, 1.0, 1e-6),
        OutputReport("logits", 0, True, 0.31, 0.032, 0.9991, 1.1e-4),
    ),
    first_divergence=Divergence("h3", "layer3/MatMul", "MatMul", 0.041, 0.001, 41.0),
    culprit_nodes=("layer3/MatMul",),
    harmless=(Divergence("e", "erf/Erf", "Erf", 1e-3, 0.0, 1140.0),),
    minimal=Minimal("m", "i", "e", ("layer3/MatMul",), "reference", 5, 5),
    coverage=Coverage(verified=600, fused_away=12),
    fixes=(Fix("option", "graph_optimization_level=basic", 0.03, 1e-5),),
    cost=Cost(3, 5, 1.23, 14),
    trail=(Step("build", "fails", "1 of 2 outputs above its floor", 1),),
    notes=("Random data was used.",),
)
AGREES = Finding("The engine agrees with the reference.", "agrees", "0.1.0", cost=Cost(1, 1, 0.2))
UNKNOWN = Finding("Something differs.", "inconclusive", "0.1.0", failure="accuracy")
HOSTILE = dataclasses.replace(
    DEFECT,
    message=f"Node '{EVIL}' is wrong.",
    first_divergence=Divergence(EVIL, EVIL, EVIL, note=EVIL, kernel=EVIL, source=EVIL),
    culprit_nodes=(EVIL, "b" + EVIL),
    outputs=(OutputReport(EVIL, 0, True, reason=EVIL),),
    engine={EVIL: EVIL},
    notes=(EVIL,),
    trail=(Step(EVIL, EVIL, EVIL),),
)


def test_an_export_is_told_apart_by_values_not_by_taps() -> None:
    finding = dataclasses.replace(DEFECT, cause="export_mismatch", coverage=Coverage(not_judged=17))
    flat = " ".join(render_text(finding).split())
    assert "differs from the original's value of that name" in flat
    assert "17 inner tensors of the engine was looked at: the file itself differs" in flat
    assert "seen at a tap" not in flat
    assert "gives no values" not in flat


def test_a_model_that_a_command_judged_is_not_called_unexplained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = dataclasses.replace(
        DEFECT, cause=None, failure=None, engine={"spec": "check", "options": {}}
    )
    flat = " ".join(render_text(finding).split())
    assert "The check alone judged" in flat
    assert "explains it only in part" not in flat
    print_finding(finding, tmp_path)
    assert "report.md" not in capsys.readouterr().out  # a reduction writes none


def test_the_terminal_report_answers_the_questions_in_80_columns() -> None:
    text = render_text(DEFECT, folder=Path("out"))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    for words in (
        "DIVERGES Node 'layer3/MatMul' is wrong",
        "Where node 'layer3/MatMul' (MatMul), tensor 'h3'; error it introduces 0.041",
        "How sure 41 times what rounding explains",
        "reproduced 5 of 5 times alone, as a model of 1 node",
        "'logits': fails; error 0.032, rounding explains 0.00011, largest 0.31",
        "600 of 612 inner tensors verified, 12 fused away",
        "1 place differs beyond rounding but move",
        "stated fp16, computed in tf32",
        "3 builds, 5 runs, 1.2 s; 14 builds more to reduce",
        "Avoid it with '--engine-option graph_optimization_level=basic' (error 0.03 -> 1e-05).",
        "'python out/case/check.py' exits with 1 while the bug is there.",
    ):
        assert words in flat, words
    assert text.index("'logits'") < text.index("'fine'")


def test_what_only_halves_the_error_is_no_way_to_avoid_it() -> None:
    half = Fix("knobs", "level=basic", 0.03, 0.01, 2e-3, 3e-3, cures=False)
    finding = dataclasses.replace(DEFECT, fixes=(half,))
    text = " ".join(render_text(finding).split())
    assert "Avoid it" not in text
    said = "'--engine-option level=basic' halves the error or better"
    assert f"{said} (error 0.03 -> 0.01, latency 2 ms -> 3 ms)." in text
    row = "| knobs | `level=basic` | halves the error or better | 0.03 | 0.01 | 2 ms | 3 ms |"
    assert row in render_markdown(finding).splitlines()


def test_agreement_is_short() -> None:
    text = render_text(AGREES)
    assert text.startswith("AGREES  The engine agrees")
    assert len(text.splitlines()) < 8


def test_what_is_not_known_is_said() -> None:
    text = render_text(UNKNOWN)
    assert "No place was found." in text
    assert "Cause     not known" in text


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_meaning_and_an_advice(cause: str) -> None:
    text = " ".join(render_text(dataclasses.replace(DEFECT, cause=cause)).split())
    assert CAUSES[cause].meaning in text
    assert CAUSES[cause].advice in text


def test_a_crash_is_told_in_the_engines_own_words_without_its_stack() -> None:
    said = 'ended by SIGSEGV during build\nFatal error: bad shape\n  File "x.py", line 3 in f\n^^^'
    found = dataclasses.replace(DEFECT, failure="crash", said=said)
    text = " ".join(render_text(found).split())
    assert "It says ended by SIGSEGV during build Fatal error: bad shape Harmless" in text
    assert "gives no answer because of this place" in text
    assert "rounding explains." not in text.partition("Cause")[2].partition("Outputs")[0]


def test_what_each_class_of_operators_computes_in() -> None:
    classes = {"contractions": "tf32", "the rest": "fp32"}
    found = dataclasses.replace(
        DEFECT, precision={"stated": "fp32", "effective": "tf32", "classes": classes}
    )
    assert "stated fp32, computed: contractions in tf32, the rest in fp32" in render_text(found)


@pytest.mark.parametrize("failure", FAILURES)
def test_every_failure_has_words(failure: str) -> None:
    text = " ".join(render_text(dataclasses.replace(DEFECT, failure=failure)).split())
    assert FAILURES[failure] in text


def test_no_name_reaches_the_terminal_as_a_command() -> None:
    text = render_text(HOSTILE)
    assert not {c for c in text if ord(c) < 32} - {"\n"}
    assert "\u202e" not in text
    assert not [line for line in text.splitlines() if line.startswith("#")]


def test_rich_shows_the_same_text_without_markup() -> None:
    from rich.console import Console

    hostile = dataclasses.replace(DEFECT, message="[bold red]x[/] is wrong", notes=("[/]",))
    stream = io.StringIO()
    Console(file=stream, width=100, highlight=False).print(render(hostile), end="")
    assert stream.getvalue() == render_text(hostile)


def test_markdown_shows_names_and_never_obeys_them() -> None:
    text = render_markdown(HOSTILE)
    assert "\x1b" not in text
    assert "\u202e" not in text
    page = MarkdownIt("commonmark").enable("table").render(text)
    for tag in ("<script", "<a ", "<em>", "<strong>", "<img"):
        assert tag not in page
    assert page.count("<h1>") == 1
    cells = {"versions": 2 * 8, "fixes": 7, "outputs": 7, "trail": 4, "environment": 2 * 5}
    assert page.count("<td>") == sum(cells.values())
    rows = [line for line in render_markdown(DEFECT).splitlines() if line.startswith("|")]
    assert "| `logits` | 0 | fails | 0.032 | 0.00011 | 0.31 | 0.999 |" in rows


def test_escapes() -> None:
    assert clean("a\x00\x9b\u2028\u200b\ud800é") == "a\\x00\\x9b\\u2028\\u200b\\ud800é"
    assert len(clean("x" * 9999)) < 410
    assert code("a|b", table=True) == "`a\\|b`"
    assert code("") == "` `"
    assert md("https://x.org @you") == "https\u200b://x.org @\u200byou"
    assert md("- a-b (1.5)") == "\\- a-b (1.5)"


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    odd = dataclasses.replace(DEFECT, outputs=(OutputReport("y", 1, True, math.inf, math.nan),))
    write_reports(tmp_path, odd)
    back = read_result(tmp_path)
    assert repr(back) == repr(odd)
    assert json.loads((tmp_path / "result.json").read_text())["outputs"][0]["max_abs"] == "inf"
    assert (tmp_path / "report.md").read_text().startswith("# ort: values differ")


def test_unknown_fields_are_skipped() -> None:
    body = {**DEFECT.to_json(), "new": 1, "cost": {"builds": 2, "other": 3}}
    assert Finding.from_json(body).cost == Cost(builds=2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "is not JSON or is truncated"),
        ("[]", "schema None"),
        ('{"schema": 2}', "schema 2, this version reads 1"),
        ('{"schema": 1}', "lacks a field"),
        ('{"schema": 1, "cost": 3}', "result.cost is no object"),
        ('{"schema": 1, "cost": {"seconds": "x"}}', "result.cost.seconds is 'x'"),
    ],
)
def test_damaged_results_are_input_errors(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "result.json").write_text(body)
    with pytest.raises(InputError, match=message):
        read_result(tmp_path)


def test_a_folder_without_result_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no result\.json"):
        read_result(tmp_path)
