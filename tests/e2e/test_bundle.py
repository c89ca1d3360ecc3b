"""What is handed over: whole, alone, the same each time, and without private words on request."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import tapsect
from debugtaps import InputError, read_npz
from support import zoo
from tapsect.cli import main
from tapsect.report import make, read_result, write_reports

ENGINE = Path(__file__).resolve().parents[1] / "support" / "wrong_matmul.py"
SECRET = "acme_falcon"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A diagnosis of a user's own engine on a model whose every name is private."""
    place = tmp_path_factory.mktemp(SECRET)
    built = zoo.attention()
    proto = built.model
    for node in proto.graph.node:
        node.name = f"{SECRET}/{node.name}"
        node.doc_string = f"made by {SECRET}"
        node.input[:] = [f"{SECRET}.{t}" if t else "" for t in node.input]
        node.output[:] = [f"{SECRET}.{t}" for t in node.output]
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.name = f"{SECRET}.{value.name}"
    del proto.graph.value_info[:]
    proto.graph.name = SECRET
    proto.metadata_props.add(key="owner", value=SECRET)
    feeds = {f"{SECRET}.{name}": value for name, value in built.feeds.items()}
    model, inputs = type(built)(proto, feeds).save(place / f"{SECRET}_models")
    node = f"{SECRET}/query/MatMul"
    finding = tapsect.bisect(
        model, inputs=[inputs], engine=f"{ENGINE}:WrongMatMul", engine_options={"only": node},
        out=place / "o", command=["tapsect", "bisect", str(model), "--inputs", str(inputs)],
        budget=0.0,
    )  # fmt: skip
    assert finding.culprit_nodes == (node,)
    write_reports(place / "o", finding)
    return place / "o"


def unpacked(data: bytes, place: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            assert re.fullmatch(r"(case/)?[A-Za-z_]+\.[a-z]+", name), name
        archive.extractall(place)
    return place


def check(case: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Runs the check as a stranger does: in its folder, without this project."""
    blocked = case.parent / "blocked"
    for package in ("tapsect", "debugtaps", "support"):
        (blocked / package).mkdir(parents=True, exist_ok=True)
        (blocked / package / "__init__.py").write_text("raise ImportError('a stranger')")
    return subprocess.run(
        [python, "check.py"], cwd=case, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(blocked)},
    )  # fmt: skip


def test_a_bundle_is_case_and_report_and_runs_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "case" / "diary.txt").write_text("private")
    (folder / "case" / "min_good.onnx").symlink_to("/etc/hostname")
    made = make(read_result(folder), folder, "zip")
    (folder / "case" / "min_good.onnx").unlink()
    place = unpacked(made.data, tmp_path)
    held = sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file())
    assert held == [
        "case/README.md", "case/check.py", "case/engine.py", "case/environment.json",
        "case/expected.npz", "case/inputs.npz", "case/model.onnx", "report.md",
    ]  # fmt: skip
    for name in held[:-1]:
        assert (place / name).read_bytes() == (folder / name).read_bytes()
    (folder / "case" / "diary.txt").unlink()
    done, mine = check(place / "case"), check(folder / "case")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == mine.stdout
    assert "THE BUG IS THERE" in done.stdout


def test_the_same_finding_gives_the_same_bytes(folder: Path) -> None:
    finding = read_result(folder)
    for path in sorted(folder.rglob("*")):
        os.utime(path)
    assert make(finding, folder, "zip").data == make(finding, folder, "zip").data


def private_words(folder: Path) -> set[bytes]:
    """Returns every name of the model and the case, and where things lay."""
    model = onnx.load(str(next(folder.parent.glob("*_models/model.onnx"))))
    names = {n.name for n in model.graph.node} | {t for n in model.graph.node for t in n.output}
    names |= {v.name for v in (*model.graph.input, *model.graph.initializer)}
    names |= {SECRET, str(folder), str(ENGINE.parent), "made by", "owner"}
    return {name.encode() for name in names}


def test_redacted_no_byte_of_it_is_a_private_word_and_it_still_fails(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder), "--format", "zip", "--redact"]) == 0
    assert capsys.readouterr().out == "Written to o.zip\n"  # and no number had to stay
    data = (tmp_path / "o.zip").read_bytes()
    place = unpacked(data, tmp_path / "x")
    found = data + b"".join(p.read_bytes() for p in place.rglob("*") if p.is_file())
    assert {word for word in private_words(folder) if word in found} == set()
    done = check(place / "case")
    assert done.returncode == 1, done.stdout + done.stderr
    before, after = folder / "case", place / "case"
    assert len(floats(before)) == len(floats(after)) > 500  # weights among them
    assert not set(floats(before)) & set(floats(after))
    told = json.loads((after / "environment.json").read_text())
    assert told["packages"]["numpy"] == np.__version__


def floats(case: Path) -> list[float]:
    """Returns every number of weights and values that is not about structure."""
    model = onnx.load(str(case / "model.onnx"))
    arrays = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer]
    arrays += [*read_npz(case / "inputs.npz").values(), *read_npz(case / "expected.npz").values()]
    return [float(v) for a in arrays if a.dtype.kind == "f" and a.size > 8 for v in a.ravel()]


def test_redacted_markdown_and_lines_hold_no_private_word(folder: Path) -> None:
    finding = read_result(folder)
    for form in ("markdown", "jsonl", "junit", "terminal"):
        data = make(finding, folder, form, redact=True).data
        assert {word for word in private_words(folder) if word in data} == set(), form
        assert b"MatMul" in data


def test_a_failure_that_hangs_on_a_name_is_not_handed_over_renamed(
    folder: Path, tmp_path: Path
) -> None:
    case = tmp_path / "case"
    case.mkdir()
    for path in (folder / "case").iterdir():
        (case / path.name).write_bytes(path.read_bytes())
    engine = (case / "engine.py").read_text()
    told = engine.replace('self.only in ("", node.name)', f'"{SECRET[:6]}" in node.name')
    assert told != engine
    (case / "engine.py").write_text(told)
    text = (case / "check.py").read_text()
    (case / "check.py").write_text(re.sub(r"'origin': '.*'", "'origin': ''", text))
    with pytest.raises(InputError, match="depends on a name"):
        make(read_result(folder), tmp_path, "zip", redact=True)


def test_a_check_that_was_edited_is_refused(folder: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.mkdir()
    for path in (folder / "case").iterdir():
        (case / path.name).write_bytes(path.read_bytes())
    (case / "check.py").write_text("import os\n")
    with pytest.raises(InputError, match="is not a check that tapsect wrote"):
        make(read_result(folder), tmp_path, "zip", redact=True)


@pytest.mark.slow
def test_a_stranger_with_three_packages_sees_the_same(folder: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "numpy", "onnx",
         "onnxruntime"], check=True,
    )  # fmt: skip
    for redact in (False, True):
        data = make(read_result(folder), folder, "zip", redact=redact).data
        place = unpacked(data, tmp_path / str(redact))
        there, here = check(place / "case", python), check(place / "case")
        assert there.returncode == here.returncode == 1, there.stdout + there.stderr
        assert there.stdout == here.stdout


def test_what_a_bundle_says_of_a_machine_where_nothing_fails(folder: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.mkdir()
    for path in (folder / "case").iterdir():
        (case / path.name).write_bytes(path.read_bytes())
    text = (case / "check.py").read_text()
    (case / "check.py").write_text(re.sub(r"'rms': [^}]*", "'rms': 1e9", text))
    made = make(read_result(folder), tmp_path, "zip", redact=True)
    assert "does not show the failure on this machine" in made.notes[0]
