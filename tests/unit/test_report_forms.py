"""The other forms of a finding: for trackers, build servers and people without the tool."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from markdown_it import MarkdownIt

from debugtaps import InputError, OutputError, write_npz
from tapsect.axes.knobs import Turn, setting
from tapsect.cli import main
from tapsect.escape import clean
from tapsect.finding import Cost, Divergence, Finding, Minimal, OutputReport, Step, Unseen
from tapsect.report import make, render_jsonl, render_junit, render_markdown, write_reports
from tapsect.report.ownrun import CaseFacts, case_facts, snippets
from tapsect.report.redact import Names

EVIL = "]]><a href='x'>&\x00\x1b[31m\u202e\n"
DEFECT = Finding(
    "ort computes wrong values at node 'secret/enc0/MatMul' (MatMul).", "diverges", "0.1.0",
    ("tapsect", "bisect", "/data/ann/acme/net.onnx", "--engine-option", "a=b", "--out", "o/x"),
    "accuracy", "engine_defect",
    model={"path": "/data/ann/acme/net.onnx", "nodes": 9, "sha256": "ab" * 32},
    engine={"spec": "ort", "options": {"graph_optimization_level": "extended"},
            "describe": {"name": "onnxruntime", "versions": {"onnxruntime": "1.23.2"}}},
    reference={"spec": "ort-reference"},
    outputs=(OutputReport("secret_logits", 0, True, 0.31, 0.03, 0.99, 1e-6),),
    first_divergence=Divergence("secret/enc0/t", "secret/enc0/MatMul", "MatMul", 0.04, 0.0, 41.0),
    culprit_nodes=("secret/enc0/MatMul",),
    signature={"kind": "accuracy", "ops": ["MatMul"]},
    minimal=Minimal("case/model.onnx", "case/inputs.npz", "case/expected.npz",
                    ("secret/enc0/MatMul",), "reference", 4, 4),
    unseen=(Unseen("not_judged", ("secret/enc1/t",)),),
    cost=Cost(3, 5, 1.5),
    trail=(Step("build", "fails", "/tmp/jobs/secret.onnx: secret/enc0/MatMul and secret/enc", 1),),
    environment={"python": "3.12.1", "platform": "Linux", "gpus": ["NVIDIA X, 570.1, 80 GiB"]},
)  # fmt: skip
AGREES = Finding("They agree.", "agrees", "0.1.0", model={"path": "a.onnx"}, cost=Cost(1, 1, 0.5))
CASE = CaseFacts(("x", "past key"), plain=True, rms=2.0)


# -------------------------------------------------------------------------- for a public tracker


def test_a_bug_report_says_first_what_maintainers_ask_for() -> None:
    text = render_markdown(DEFECT, case=CASE)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert heads[:6] == [
        "onnxruntime 1.23.2: values differ beyond rounding (MatMul)",
        "What was expected and what was seen", "How to reproduce", "Where", "How sure", "Cause",
    ]  # fmt: skip
    assert heads[6] == "Versions"
    for words in (
        "Expected: the answer of ort-reference, within rounding.",
        "Seen: `secret_logits`: fails; error 0.03",
        "`model.onnx`, 1 node (`MatMul`)",
        "| Engine | `onnxruntime 1.23.2` |",
        "| GPU, driver, memory | `NVIDIA X, 570.1, 80 GiB` |",
    ):
        assert words in text, words


def test_a_crash_expects_that_it_runs_and_shows_the_log_without_its_middle() -> None:
    said = "\n".join(["boom ``` here", *(f"line {i}\x1b[31m" for i in range(200))])
    crashed = dataclasses.replace(DEFECT, failure="crash", said=said)
    text = render_markdown(crashed, case=CASE)
    assert "Expected: the engine builds and runs the model." in text
    log = text.partition("## Log, trimmed")[2].partition("\n## ")[0]
    assert log.strip().startswith("````\nboom ``` here")
    assert "[161 lines left out]" in log
    assert "line 199\\x1b[31m" in log
    assert len(log.splitlines()) < 50
    page = MarkdownIt("commonmark").enable("table").render(text)
    assert page.count("<h1>") == 1
    assert "\x1b" not in text


def test_it_fits_a_tracker_however_large_the_model_is() -> None:
    long = "model/decoder/" + "x" * 200
    place = Divergence("t", "n", "MatMul", 0.1)
    many = dataclasses.replace(
        DEFECT,
        outputs=tuple(OutputReport(f"{long}{i}", 0, i == 999, 1.0) for i in range(1000)),
        trail=tuple(Step("s", "d", long * 9, 1) for _ in range(200)),
        also=tuple(dataclasses.replace(place, node=f"{long}{i}")
                   for i in range(900)),
        notes=(long * 20,) * 60,
        said="y" * 4000,
    )  # fmt: skip
    text = render_markdown(many, case=CASE)
    assert len(text.encode()) < 60_000
    assert f"{long}999" in text  # the failing output is not what is left out
    assert len(render_markdown(DEFECT, case=CASE).encode()) < 8_000


# ----------------------------------------------------------------------- without this tool


def engine(spec: str, **options: object) -> Finding:
    return dataclasses.replace(DEFECT, engine={"spec": spec, "options": options})


def test_onnxruntime_alone_and_polygraphy() -> None:
    plain, polygraphy = snippets(engine("ort", graph_optimization_level="basic"), CASE)
    assert "GraphOptimizationLevel.ORT_ENABLE_BASIC" in plain.text
    compile(plain.text, "snippet", "exec")
    assert "--graph-optimization-level ORT_ENABLE_BASIC --load-outputs good.json" in polygraphy.text
    assert "--atol 0.02 --rtol 0" in polygraphy.text  # a quarter of 4 % of values of 2
    only = snippets(engine("ort", disabled_optimizers="A,B"), CASE)
    assert [s.title for s in only] == ["onnxruntime alone"]
    assert "disabled_optimizers=['A', 'B']" in only[0].text


def test_tensorrt_has_its_own_words() -> None:
    polygraphy, trtexec = snippets(engine("tensorrt", tf32=False), CASE)
    assert "--onnxrt --trt --strongly-typed --data-loader-script" in polygraphy.text
    assert (
        "trtexec --onnx=model.onnx --stronglyTyped --noTF32 "
        "'--loadInputs=x:in0.bin,past key:in1.bin' --verbose" in trtexec.text
    )
    weak = snippets(engine("tensorrt", strongly_typed=False, flags="FP16"), CASE)
    assert "--fp16" in weak[1].text
    assert "--tf32" in weak[0].text
    assert "trongly" not in weak[0].text + weak[1].text
    (rtx,) = snippets(engine("tensorrt-rtx"), CASE)
    assert "tensorrt_rtx --onnx=model.onnx" in rtx.text


def test_openvino_gets_its_properties() -> None:
    (plain,) = snippets(engine("openvino", INFERENCE_PRECISION_HINT="bf16"), CASE)
    assert "'CPU', {'INFERENCE_PRECISION_HINT': 'bf16'}" in plain.text
    compile(plain.text, "snippet", "exec")


def test_where_numpy_cannot_read_the_values_or_the_engine_is_the_users_there_is_the_check() -> None:
    odd = dataclasses.replace(CASE, plain=False)
    assert snippets(engine("ort"), odd) == ()
    assert snippets(engine("my.py:Engine"), CASE) == ()
    assert snippets(engine("planted"), CASE) == ()
    assert snippets(engine("ort"), None) == ()


def test_what_a_case_tells(tmp_path: Path) -> None:
    assert case_facts(tmp_path) is None
    (tmp_path / "case").mkdir()
    write_npz(tmp_path / "case" / "inputs.npz", {"b": np.zeros(2), "a": np.zeros(1)})
    write_npz(tmp_path / "case" / "expected.npz", {"y": np.array([3.0, np.nan, -3.0])})
    assert case_facts(tmp_path) == CaseFacts(("b", "a"), plain=True, rms=3.0)


# ------------------------------------------------------------------------------ build servers

JUNIT = {  # what the schema of Jenkins' xUnit plugin allows, and what it requires
    "testsuites": ({"name", "time", "tests", "failures", "errors", "skipped"}, set()),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"name", "tests"}),
    "testcase": ({"name", "classname", "time"}, {"name", "classname"}),
    "failure": ({"type", "message"}, set()),
}


def test_junit_has_a_failing_case_for_each_finding_that_does_not_agree() -> None:
    doubtful = dataclasses.replace(DEFECT, status="inconclusive", cause=None)
    text = render_junit([DEFECT, AGREES, doubtful])
    root = ElementTree.fromstring(text)
    for element in root.iter():
        allowed, required = JUNIT[element.tag]
        assert required <= set(element.attrib) <= allowed, element.tag
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("time")) == ("3", "2", "3.500")
    assert [len(case) for case in suite] == [1, 0, 1]
    failure = suite[0][0]
    assert failure.get("type") == "engine_defect"
    assert "secret/enc0/MatMul" in (failure.text or "")
    assert suite[2][0].get("type") == "accuracy"


def test_junit_stays_xml_whatever_a_name_holds() -> None:
    hostile = dataclasses.replace(
        DEFECT, message=EVIL, model={"path": EVIL}, engine={"spec": EVIL},
        first_divergence=Divergence(EVIL, EVIL, EVIL),
    )  # fmt: skip
    text = render_junit([hostile])
    (case,) = ElementTree.fromstring(text)[0]
    assert case.get("name") == "]]><a href='x'>&\\x00\\x1b[31m\\u202e\\n"
    assert not {c for c in text if ord(c) < 32} - {"\n"}


def test_json_lines_are_one_record_each_without_nan() -> None:
    odd = dataclasses.replace(DEFECT, outputs=(OutputReport("y\u2028\n", 0, True, math.nan),))
    lines = render_jsonl([odd, AGREES]).splitlines()
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    kinds = [r["record"] for r in records]
    assert kinds == ["finding", "output", "place", "step", "finding"]
    assert records[0]["exit_code"] == 1
    assert records[1]["max_abs"] == "nan"
    assert records[2]["rank"] == 0
    assert {r["engine"] for r in records[:4]} == {"ort"}
    assert render_jsonl([]) == ""


# ------------------------------------------------------------------------------------- redacted


def names(finding: Finding = DEFECT) -> Names:
    return Names.of(finding, None, Path("nowhere"))


def test_no_private_word_is_left_and_the_rest_is() -> None:
    shown = names().finding(DEFECT)
    text = json.dumps(shown.to_json()) + render_markdown(shown)
    for private in ("secret", "acme", "ann", "net.onnx", "/tmp/jobs", "enc0", "ab" * 32, "o/x"):
        assert not re.search(rf"(?<![a-z]){re.escape(private)}(?![a-z])", text), private
    for public in ("MatMul", "1.23.2", "extended", "NVIDIA X", "--engine-option", "a=b"):
        assert public in text, public
    assert shown.unseen[0].why == "not_judged"
    assert (shown.status, shown.failure, shown.cause) == ("diverges", "accuracy", "engine_defect")
    assert shown.command[2].endswith(".onnx")


def test_one_name_is_one_hash_everywhere_and_another_in_another_model() -> None:
    held = names()
    shown = held.finding(DEFECT)
    assert shown.culprit_nodes == (held.name("secret/enc0/MatMul"),)
    assert (
        shown.message == f"ort computes wrong values at node '{shown.culprit_nodes[0]}' (MatMul)."
    )
    other = names(dataclasses.replace(DEFECT, model={**DEFECT.model, "sha256": "cd" * 32}))
    assert other.name("secret/enc0/MatMul") != held.name("secret/enc0/MatMul")


@pytest.mark.parametrize("name", [EVIL + "acme", "acme\\'\"" + "é" * 5, "\u202eacme" * 120])
def test_a_name_is_known_however_it_is_written(name: str) -> None:
    place = Divergence("secret/t", name, "MatMul", 0.04, 0.0, 41.0)
    option = f"nodes=[{json.dumps(name)}]"
    finding = dataclasses.replace(
        DEFECT, first_divergence=place, message=f"wrong at node '{clean(name)}' (MatMul).",
        trail=(Step("build", "fails", f"{name!r}; {clean(name, limit=2000)}", 1),),
        command=("tapsect", "bisect", "n.onnx", "--engine-option", option, "--out", "acme"),
    )  # fmt: skip
    held = names(finding)
    shown = held.finding(finding)
    assert shown.message == f"wrong at node '{held.name(name)}' (MatMul)."
    assert "acme" not in json.dumps(shown.to_json()) + render_markdown(shown)


def test_a_node_called_by_its_operator_does_not_hide_the_operator() -> None:
    plain = dataclasses.replace(DEFECT, culprit_nodes=("MatMul",), message="At 'MatMul' (MatMul).")
    held = names(plain)
    assert held.finding(plain).message == f"At '{held.name('MatMul')}' (MatMul)."


def test_settings_that_list_nodes_are_renamed_one_by_one() -> None:
    held = names()
    both = f"{held.name('secret/enc0/MatMul')},{held.name('secret_logits')}"
    assert held.data({"nodes": "secret/enc0/MatMul,secret_logits"}) == {"nodes": both}


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("form", ["html", "markdown", "zip", "junit", "jsonl", "terminal"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "holds no result.json"),
        ('{"schema": 2}', "schema 2, this version reads 1"),
        ("[1]", "schema None"),
        ("\x00", "is not JSON"),
    ],
)
def test_what_is_no_result_is_one_sentence(
    form: str, body: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if body is not None:
        (tmp_path / "result.json").write_text(body)
    assert main(["report", str(tmp_path), "--format", form]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_no_case_no_bundle(tmp_path: Path) -> None:
    write_reports(tmp_path, AGREES)
    with pytest.raises(InputError, match="holds no case to hand over"):
        make(AGREES, tmp_path, "zip")
    assert main(["report", str(tmp_path), "--format", "zip"]) == 2


def test_a_form_goes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_reports(tmp_path, DEFECT)
    target = tmp_path / "junit.xml"
    assert main(["report", str(tmp_path), "--format", "junit", "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"Written to {target}\n"
    assert target.read_text() == render_junit([DEFECT])
    assert main(["report", str(tmp_path), "--format", "jsonl"]) == 0
    assert capsys.readouterr().out == render_jsonl([DEFECT])
    assert main(["report", str(tmp_path), "--format", "junit", "-o", "/nowhere/x.xml"]) == 2
    assert "/nowhere/x.xml cannot be written" in capsys.readouterr().err
    with pytest.raises(OutputError):
        make(DEFECT, tmp_path, "junit").write(tmp_path)


def test_the_page_without_its_packages_is_an_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "bokeh", None)
    write_reports(tmp_path, DEFECT)
    assert main(["report", str(tmp_path), "--format", "html"]) == 4
    assert "pip install 'tapsect[report]'" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main(["bisect", "nowhere.onnx", "--html", "--out", "new"]) == 4  # before any work
    assert not (tmp_path / "new").exists()


JUNK: tuple[Any, ...] = (None, 5, -1.5, True, "junk", [], ["junk"], {}, {"junk": [1]}, [{"a": 1}])


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_whatever_stands_in_a_field_it_is_read_or_refused(junk: object) -> None:
    body = DEFECT.to_json()
    for field in body:
        try:
            read = Finding.from_json({**body, field: junk})
        except InputError:
            continue
        render_markdown(read, case=CASE)
        render_junit([read])
        render_jsonl([read])
        names(read).finding(read)


@pytest.mark.parametrize("group", ["model", "engine", "reference", "environment", "signature"])
def test_free_facts_of_any_shape_are_shown(group: str) -> None:
    for key in ("spec", "options", "describe", "ops", "path", "sha256", "nodes", "gpus"):
        for junk in JUNK:
            changed: dict[str, Any] = {group: {key: junk}}
            odd = dataclasses.replace(DEFECT, **changed)
            assert render_markdown(odd, case=CASE)
            render_junit([odd])
            names(odd).finding(odd)


def test_the_file_itself_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_reports(tmp_path, DEFECT)
    main(["report", str(tmp_path), "--format", "markdown"])
    first = capsys.readouterr().out
    assert main(["report", str(tmp_path / "result.json"), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == first


def test_a_form_that_does_not_exist_is_answered_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["report", "nowhere", "--format", "pdf"]) == 2
    said = capsys.readouterr().err
    assert "'pdf' is not one of 'terminal', 'html'" in said
    assert "Value error" not in said


def test_a_name_that_a_shell_needs_quoted_is_redacted_in_a_setting() -> None:
    told = setting([Turn("keep", name, name=True) for name in ("it's mine", "a\"b'c, d")])
    names = Names(b"key", frozenset({"it's mine", "a\"b'c, d"}), frozenset())
    shown = names.text(told)
    assert "mine" not in shown
    assert "c, d" not in shown
