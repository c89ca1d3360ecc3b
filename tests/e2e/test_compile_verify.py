"""Compile, unpack and verify as commands: files in, exit status and table out."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from debugtaps import Array, Host, read_npz, resolve, write_npz
from support.tapped import Tapped, tapped_model
from tapsect.cli import main


@pytest.fixture
def tapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tapped:
    monkeypatch.chdir(tmp_path)
    return tapped_model(Path())


def values(tapped: Tapped) -> dict[str, Array]:
    """Returns what the reference gives for every output and tap, by name."""
    feeds = read_npz(tapped.inputs)
    with Host(resolve("ort-reference")) as host, host.build(tapped.model) as build:
        return {name.removeprefix("tap/"): v for name, v in build.run(feeds).items()}


def compiled(*words: str) -> int:
    return main(["compile", "model.onnx", "--inputs", "model.npz", *words])


def planted(node: str, out: str) -> None:
    words = ["--engine", "planted", "--engine-option", "kind=value", f"nodes={node}", "-o", out]
    assert compiled(*words) == 0


# ---------------------------------------------------------------------------------- the whole way


def test_from_model_to_table(tapped: Tapped, capsys: pytest.CaptureFixture[str]) -> None:
    tapped.reference(values(tapped))
    assert compiled("-o", "builds/") == 0
    said = capsys.readouterr()
    assert "fp32: 1 output, 6 taps, 6 with a reference" in said.out
    (build,) = Path("builds").iterdir()
    assert re.fullmatch(r"model\.\w+\.fp32\.tgz", build.name)
    assert main(["verify", "model.reference.npz", str(build)]) == 0
    said = capsys.readouterr()
    rows = [line.split()[0] for line in said.out.splitlines()[1:-1]]
    assert rows == [*tapped.taps, tapped.output]
    assert said.out.endswith("7 tensors compared, none falls off\n")
    assert said.err == ""
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_the_planted_tensor_is_the_first_that_falls_off(
    tapped: Tapped, capsys: pytest.CaptureFixture[str], layer: int
) -> None:
    tapped.reference(values(tapped))
    planted(f"Relu_{layer}" if layer else "Relu", "bad.tgz")
    capsys.readouterr()
    assert main(["verify", "model.reference.npz", "bad.tgz"]) == 0
    said = capsys.readouterr().out
    marked = [line.split()[1] for line in said.splitlines() if line.startswith(">")]
    assert marked == [f"layer{layer}"]
    assert f"first falls off: tap layer{layer}" in said


def test_a_fault_in_a_plugin_shows_between_its_boundaries(
    tapped: Tapped, capsys: pytest.CaptureFixture[str]
) -> None:
    tapped.reference(values(tapped))
    planted("Gelu", "bad.tgz")
    assert main(["verify", "model.reference.npz", "bad.tgz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.partition("bad.tgz\n")[2])
    assert found["builds"][0]["falls_off"] == "Gelu__out0"
    kinds = {row["name"]: row["kind"] for row in found["builds"][0]["rows"]}
    assert kinds == {
        **{f"layer{i}": "manual" for i in range(4)},
        "Gelu__in0": "plugin",
        "Gelu__out0": "plugin",
        tapped.output: "output",
    }


def test_nan_rows_are_shown_marked_and_never_lost(
    tapped: Tapped, capsys: pytest.CaptureFixture[str]
) -> None:
    tapped.reference(values(tapped))
    words = "kind=nonfinite nodes=Relu_1 limit=0.5 becomes=nan"
    assert compiled("--engine", "planted", "--engine-option", *words.split(), "-o", "nan.tgz") == 0
    capsys.readouterr()
    assert main(["verify", "model.reference.npz", "nan.tgz", "--max-mape", "1e300"]) == 1
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert [(row[1] if row[0] == ">" else row[0]) for row in rows[1:4]] == [
        "layer0",
        "layer1",
        "layer2",
    ]
    assert rows[2][:2] == [">", "layer1"]
    assert rows[2][2:] == ["inf", "inf", "inf", "-1.00000", "inf", "inf", "-inf"]
    assert re.search(r"layer1: non-finite: \d+ here, 0 in the reference", said.out)
    assert "MAPE % of 'layer1' is inf, above --max-mape 1e+300" in said.err


# --------------------------------------------------------------------------- unpaired and limits


def test_unpaired_names_are_one_warning_a_side(
    tapped: Tapped, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = values(tapped)
    del wanted["Gelu__in0"], wanted["Gelu__out0"]
    tapped.reference({**wanted, "renamed": np.ones(2)})
    compiled("-o", "model.sm90.fp16.tgz")
    capsys.readouterr()
    assert main(["verify", "model.reference.npz", "model.sm90.fp16.tgz"]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "[model.sm90.fp16]: 2 outputs are missing in the reference, this can occur when plugin "
        "taps without a torch value are enabled",
        "[model.sm90.fp16]: 1 output is missing in the sample output",
    ]
    assert "Gelu__in0" not in said.out
    assert "benchmark_timings_ms" not in said.out
    main(["verify", "model.reference.npz", "model.sm90.fp16.tgz", "--verbose"])
    said = capsys.readouterr()
    assert re.search(r"^ *Gelu__in0 +- +-", said.out, re.MULTILINE)
    assert "renamed: not in the build" in said.out
    assert "benchmark_timings_ms" not in said.out


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("--max-mape 4", 1),
        ("--max-mape 90", 0),
        ("--max-mse 1e-9", 1),
        ("--max-diff 1e-3", 1),
        ("--max-diff 1e3", 0),
        ("--min-cosine 0.5", 0),
        ("--min-cosine 1.1", 1),
        ("--max-ulp 100", 1),
        ("--min-snr 100", 1),
        ("--min-snr -20", 0),
        ("--max-mape 90 layer2:4", 1),
        ("--max-mape layer0:0.001", 0),
    ],
)
def test_only_limits_make_it_fail(
    tapped: Tapped, capsys: pytest.CaptureFixture[str], limit: str, code: int
) -> None:
    sample = values(tapped)
    tapped.reference(sample)
    write_npz(Path("bad.npz"), {**sample, "layer2": sample["layer2"] * 1.05})
    words = ["verify", "model.reference.npz", *limit.split(), "bad.npz"]
    assert main(words) == code
    said = capsys.readouterr()
    assert ("[bad]: " in said.err) == bool(code)
    if code and "1.1" not in limit:
        assert "of 'layer2' is" in said.err


def test_several_builds_side_by_side_csv_and_json(
    tapped: Tapped, capsys: pytest.CaptureFixture[str]
) -> None:
    tapped.reference(values(tapped))
    compiled("-o", "good.tgz")
    planted("Relu_2", "bad.tgz")
    capsys.readouterr()
    words = ["verify", "model.reference.npz", "good.tgz", "bad.tgz"]
    assert main([*words, "--csv", "rows.csv"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["A  good", "B  bad"]
    layer2 = [line.split() for line in said if "layer2 " in line]
    assert [row[:2] for row in layer2] == [["layer2", "A"], [">", "layer2"]]
    assert said[-2:] == [
        "[good]: 7 tensors compared, none falls off",
        "[bad]: 7 tensors compared; first falls off: tap layer2",
    ]
    with Path("rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["build"] for row in rows] == ["good"] * 7 + ["bad"] * 7
    assert [row["name"] for row in rows if row["falls_off"] == "True"] == ["layer2"]
    assert main([*words, "--json", "--max-mape", "1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [build["falls_off"] for build in found["builds"]] == [None, "layer2"]
    assert found["exceeded"][0]["tensor"] == "layer2"


def test_narrow_types_and_text_through_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    want: dict[str, Array] = {
        "bf16": np.array([1.0, 2.0], ml_dtypes.bfloat16),
        "f8": np.array([1.0, 2.0], ml_dtypes.float8_e4m3fn),
        "i4": np.array([1, -8], ml_dtypes.int4),
        "text": np.array(["a", "b"], object),
        "half": np.array([1.0, 2.0], np.float16),
        "shape": np.zeros((2, 3)),
    }
    got = {
        **want,
        "bf16": np.array([1.0078125, 2.0], ml_dtypes.bfloat16),
        "half": np.array([1.0, 2.0], np.float32),
        "shape": np.zeros((3, 2)),
    }
    write_npz(Path("want.npz"), want)
    write_npz(Path("got.npz"), got)
    assert main(["verify", "want.npz", "got.npz", "--json"]) == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)["builds"][0]["rows"]}
    assert rows["bf16"]["ulp"] == 1
    assert (rows["half"]["state"], rows["half"]["ulp"]) == ("dtype", 0)
    assert (rows["shape"]["state"], rows["shape"]["mape"]) == ("shape", "inf")
    assert {rows[name]["max_diff"] for name in ("f8", "i4", "text")} == {0.0}
    assert rows["shape"]["falls_off"]


def test_names_cannot_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["\x1b[2J", "a\nb", "[red]x[/red]", "\u202eevil"]
    write_npz(Path("want.npz"), dict.fromkeys(names, np.ones(1)))
    write_npz(Path("got.npz"), {**dict.fromkeys(names, np.full(1, 2.0)), "\x1b]0;t": np.ones(1)})
    main(["verify", "want.npz", "got.npz", "--verbose", "--max-mape", "1"])
    said = capsys.readouterr()
    assert not set("\x1b\u202e") & set(said.out + said.err)
    assert "[red]x[/red]" in said.out
    assert "a\\nb" in said.out


def test_a_terminal_of_80_columns(tapped: Tapped) -> None:
    pty = pytest.importorskip("pty")
    sample = {f"{'block/' * 8}{name}": value for name, value in values(tapped).items()}
    write_npz(Path("want.npz"), sample)
    write_npz(Path("got.npz"), {n: v * (1.05 if "layer2" in n else 1) for n, v in sample.items()})
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "tapsect", "verify", "want.npz", "got.npz"],
        stdout=theirs,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm", "PYTHONPATH": ":".join(sys.path)},
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert done.wait() == 0
    plain = re.sub(r"\x1b\[[\d;]*m", "", text.decode())
    table = plain.replace("\r", "").splitlines()
    assert max(map(len, table[:-1])) <= 80
    assert [line for line in table if line.startswith(">")]
    assert "SNR dB" in table[0]


# ------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("compile none.onnx --inputs model.npz", 2, "no such file"),
        ("compile model.onnx", 2, "Missing option '--inputs'"),
        ("compile model.onnx --inputs none.npz", 2, "does not exist"),
        ("compile model.onnx --inputs model.npz model.npz", 2, "give one"),
        ("compile model.onnx --inputs model.npz --engine nothing", 2, "no engine is called"),
        ("compile model.onnx --inputs model.npz --precision fp1", 2, "'fp1' is none of"),
        ("unpack none.tgz", 2, "cannot be read"),
        ("unpack model.onnx", 2, "no build archive"),
        ("verify model.npz model.onnx", 2, "no build archive"),
        ("verify model.onnx model.npz", 2, "not an .npz archive"),
        ("verify model.npz", 2, "Missing argument 'BUILD"),
        ("verify model.npz model.npz --max-mape x", 2, "--max-mape 'x' is no number"),
        ("verify model.npz model.npz --max-ulp y:1", 2, "'y', which is not compared"),
        ("verify model.npz model.npz --csv none/rows.csv", 2, "none/rows.csv cannot be written"),
    ],
)
def test_errors_are_one_sentence(
    tapped: Tapped, capsys: pytest.CaptureFixture[str], words: str, code: int, sentence: str
) -> None:
    assert main(words.split()) == code
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert not list(Path().glob("*.tgz"))


def test_an_engine_that_fails_leaves_no_build(
    tapped: Tapped, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--engine planted --engine-option kind=crash nodes=Relu_1"
    assert compiled(*words.split()) == 1
    assert "SIGSEGV" in capsys.readouterr().err
    assert not list(Path().glob("*.tgz"))


def test_unpack_lists_and_takes_out(tapped: Tapped, capsys: pytest.CaptureFixture[str]) -> None:
    compiled("-o", "b.tgz")
    capsys.readouterr()
    assert main(["unpack", "b.tgz"]) == 0
    listed = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert {"manifest.json", "model/model.onnx", "sample_outputs.npz"} <= set(listed)
    assert main(["unpack", "b.tgz", "sample*", "-o", "seen"]) == 0
    assert capsys.readouterr().out == "seen/sample_outputs.npz\n"
    assert main(["verify", "seen/sample_outputs.npz", "b.tgz", "seen/sample_outputs.npz"]) == 0
    assert main(["unpack", "b.tgz", "*.plan"]) == 2
