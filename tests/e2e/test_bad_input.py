"""Bad input gets one sentence that names the thing and the mend, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from support import contract, zoo
from tapsect.cli import main

BUILT = zoo.residual(1)
((INPUT, VALUE),) = BUILT.feeds.items()
OUTPUT = BUILT.model.graph.output[0].name

Make = Callable[[Path], "list[str] | None"]


def proto() -> onnx.ModelProto:
    """Returns a fresh copy of a small residual network."""
    model = onnx.ModelProto()
    model.CopyFrom(BUILT.model)
    return model


def save(folder: Path, model: onnx.ModelProto) -> None:
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def written(content: bytes | str) -> Make:
    """Puts other bytes in the place of the model."""

    def make(folder: Path) -> None:
        data = content.encode() if isinstance(content, str) else content
        (folder / "model.onnx").write_bytes(data)

    return make


def changed(change: Callable[[onnx.ModelProto], Any]) -> Make:
    """Changes the model."""

    def make(folder: Path) -> None:
        model = proto()
        change(model)
        save(folder, model)

    return make


def external(location: str = "w.bin", *, cut: int | None = None, gone: bool = False,
             entry: tuple[str, str] | None = None) -> Make:  # fmt: skip
    """Puts the weights beside the model, and then something wrong."""

    def make(folder: Path) -> None:
        onnx.save_model(
            proto(), folder / "model.onnx", save_as_external_data=True, location="w.bin",
            size_threshold=0,
        )  # fmt: skip
        weights = folder / "w.bin"
        if cut is not None:
            weights.write_bytes(weights.read_bytes()[:cut])
        if gone:
            weights.unlink()
        (folder / "link.bin").symlink_to("/etc/hostname")
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            for each in tensor.external_data:
                if each.key == "location":
                    each.value = location
                if entry is not None and each.key == entry[0]:
                    each.value = entry[1]
        save(folder, model)

    return make


def npz(**arrays: Any) -> Make:
    """Feeds these arrays."""

    def make(folder: Path) -> list[str]:
        write_npz(folder / "x.npz", arrays)
        return ["--inputs", "x.npz"]

    return make


def damaged(change: Callable[[bytes], bytes]) -> Make:
    """Feeds an archive that was damaged."""

    def make(folder: Path) -> list[str]:
        write_npz(folder / "x.npz", {INPUT: VALUE})
        (folder / "x.npz").write_bytes(change((folder / "x.npz").read_bytes()))
        return ["--inputs", "x.npz"]

    return make


def file(name: str, text: str, *words: str) -> Make:
    """Writes a file and adds words to the command."""

    def make(folder: Path) -> list[str]:
        (folder / name).write_text(text)
        return list(words)

    return make


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Writes an archive as numpy users do, objects and all."""
    np.savez(path, **arrays)


def thesis(folder: Path) -> list[str]:
    (folder / "o").mkdir()
    (folder / "o" / "a").touch()
    return ["--out", "o"]


def words(text: str) -> Make:
    return lambda folder: text.split()


def engine(body: str) -> Make:
    return file("e.py", body, "--engine", "e.py:E")


def session(run: str) -> Make:
    return engine(
        "import numpy as np\n"
        f"class S:\n  def run(self, feeds): {run}\n  def close(self): pass\n"
        "class E:\n  def build(self, model, taps=()): return S()\n"
    )


def golden(*samples: str, **arrays: Any) -> Make:
    def make(folder: Path) -> list[str]:
        write_npz(folder / "x.npz", {INPUT: VALUE})
        write_npz(folder / "g.npz", arrays)
        return ["--inputs", "x.npz", *samples, "--reference", "g.npz"]

    return make


def custom_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "my.ops"
    model.opset_import.append(helper.make_opsetid("my.ops", 1))


def corrupt(data: bytes) -> bytes:
    return data[:400] + b"\xff" * 10 + data[410:]


MODELS: dict[str, tuple[Make, int, str]] = {
    "missing": (lambda f: (f / "model.onnx").unlink(), 2, "model.onnx: no such file"),
    "empty": (written(b""), 2, "is empty"),
    "truncated": (written(BUILT.model.SerializeToString()[:-1]), 2, "is truncated"),
    "half": (written(BUILT.model.SerializeToString()[:4000]), 2, "is truncated"),
    "text": (written("hello"), 2, "is not an ONNX model"),
    "picture": (written(b"\x89PNG\r\n\x1a\n" + bytes(99)), 2, "is not an ONNX model"),
    "Python": (file("m.py", "", "m.py"), 2, "unexpected extra argument"),
    "unknown operator": (
        changed(lambda m: setattr(m.graph.node[0], "op_type", "Convv")), 2, "No Op registered for",
    ),
    "undefined tensor": (
        changed(lambda m: m.graph.node[1].input.__setitem__(0, "nowhere")), 2,
        "reads 'nowhere', which nothing makes",
    ),
    "cycle": (
        changed(lambda m: m.graph.node[0].input.__setitem__(0, OUTPUT)), 2, "(a cycle)",
    ),
    "opset of the future": (
        changed(lambda m: setattr(m.opset_import[0], "version", 99)), 2, "install a newer onnx",
    ),
    "IR of the future": (changed(lambda m: setattr(m, "ir_version", 99)), 2, "ir_version 99"),
    "output made twice": (
        changed(lambda m: m.graph.node.append(m.graph.node[0])), 2, "single static assignment",
    ),
    "weights too short": (
        changed(lambda m: m.graph.initializer[0].dims.__setitem__(0, 99)), 2, "too small",
    ),
    "no outputs": (changed(lambda m: m.graph.ClearField("output")), 2, "has no outputs"),
    "weights missing": (external(gone=True), 2, "put it beside the model"),
    "weights truncated": (external(cut=100), 2, "copy it again"),
    "weights outside": (external("../w.bin"), 2, "outside the model's folder ('../w.bin')"),
    "weights at an absolute path": (external("/etc/hostname"), 2, "outside the model's folder"),
    "weights behind a link": (external("link.bin"), 2, "outside the model's folder"),
    "weights at no offset": (external(entry=("offset", "x")), 2, "is no number"),
    "weights before the file": (external(entry=("offset", "-64")), 2, "is no number"),
}  # fmt: skip

INPUTS: dict[str, tuple[Make, int, str]] = {
    "missing file": (words("--inputs no.npz"), 2, "no.npz does not exist"),
    "missing input": (npz(), 2, f"lacks input '{INPUT}' (float32 [2,3,8,8])"),
    "misspelt input": (npz(imag=VALUE), 2, f"did you mean '{INPUT}'"),
    "extra input": (npz(**{INPUT: VALUE}, other=VALUE), 2, "'other', which is no input"),
    "misshaped": (npz(**{INPUT: VALUE[:, :2]}), 2, "has shape [2, 2, 8, 8], the model expects"),
    "no elements": (npz(**{INPUT: VALUE[:0]}), 2, "has shape [0, 3, 8, 8]"),
    "mistyped": (npz(**{INPUT: VALUE.astype(float)}), 2, ".astype('float32')"),
    "objects": (npz(**{INPUT: np.array([{}, None])}), 2, "pickled), which are never loaded"),
    "pickle": (damaged(lambda _: b"\x80\x04K\x01."), 2, "is not an .npz archive"),
    "truncated": (damaged(lambda data: data[:-50]), 2, "is truncated"),
    "corrupt": (damaged(corrupt), 2, "is damaged"),
    "nothing": (damaged(lambda _: b""), 2, "is not an .npz archive"),
    "other kind": (words("--inputs /etc/hostname"), 2, "inputs are read from .npz"),
    "torn JSON": (file("x.json", "[", "--inputs", "x.json"), 2, "is not JSON or is truncated"),
    "other JSON": (file("x.json", '[{"a": 1}]', "--inputs", "x.json"), 2, "as Polygraphy writes"),
    "script that raises": (
        file("x.py", "def load_data(): raise OSError('boo')", "--inputs", "x.py"), 2,
        "x.py raised OSError: boo",
    ),
    "script that exits": (
        file("x.py", "def load_data(): raise SystemExit(3)", "--inputs", "x.py"), 2, "SystemExit",
    ),
    "script with an error": (file("x.py", "def (", "--inputs", "x.py"), 2, "SyntaxError"),
    "shapes of nothing": (words("--input-shapes no:[1]"), 2, "names 'no'"),
    "shapes that do not fit": (words(f"--input-shapes {INPUT}:[1,2]"), 2, "the model expects"),
    "shapes that are none": (words(f"--input-shapes {INPUT}:[a]"), 2, "not of the form"),
    "negative shapes": (words(f"--input-shapes {INPUT}:[-1,3,8,8]"), 2, "not of the form"),
}  # fmt: skip

ENGINES: dict[str, tuple[Make, int, str]] = {
    "unknown": (words("--engine orrt"), 2, "no engine is called 'orrt'; did you mean ort"),
    "option": (words("--engine-option nope=1"), 2, "unknown option 'nope'"),
    "value": (words("--engine-option graph_optimization_level=super"), 2, "it takes disable"),
    "number": (words("--engine-option intra_op_num_threads=many"), 2, "'many'"),
    "provider": (words("--engine-option providers=NoProvider"), 2, "no NoProvider: this onnx"),
    "file": (words("--engine e.py:E"), 2, "there is no file e.py"),
    "module": (words("--engine no_such.module:E"), 4, "pip install no_such"),
    "syntax": (engine("class E(:\n"), 2, "(e.py, line 1)"),
    "class": (engine("class Other:\n  def build(self): 0\n"), 2, "with a build method: Other"),
    "package": (engine("import not_there\n"), 4, "pip install not_there"),
    "constructor": (
        engine("class E:\n  def __init__(self):\n    raise OSError('no licence')\n"), 4,
        "OSError: no licence (e.py, line 3)",
    ),
    "exits": (engine("import os\nprint('bye', flush=True)\nos._exit(5)\n"), 4, "printed: bye"),
    "no build": (engine("class E: pass\n"), 2, "no method build(model, taps)"),
    "build": (engine("class E:\n  def build(self): 0\n"), 2, "does not take (model, taps)"),
    "no session": (
        engine("class E:\n  def build(self, model, taps=()): pass\n"), 2,
        "build returned a NoneType; expected a session",
    ),
    "no mapping": (session("return [1]"), 2, "run returned a list; expected a mapping"),
    "text": (session("return {'y': 'text'}"), 2, "(str) for 'y'; expected an array"),
    "objects": (session("return {'y': np.array([{}])}"), 2, "for 'y'; expected an array"),
    "python": (words("--engine-python /no/python"), 2, "/no/python: no such file"),
    "other program": (words("--engine-python /bin/true"), 4, "is /bin/true a Python"),
    "folder": (words("--engine-python /etc"), 4, "give --engine-python the path"),
}  # fmt: skip

REST: dict[str, tuple[Make, int, str]] = {
    "reference": (words("--reference orrt"), 2, "no engine is called 'orrt'"),
    "reference file": (words("--reference no.npz"), 2, "--reference no.npz: no such file"),
    "golden output": (golden(other=VALUE), 2, f"lacks output '{OUTPUT}'; it holds other"),
    "golden samples": (golden("x.npz", **{OUTPUT: VALUE}), 2, "holds 1 samples, the inputs hold 2"),
    "golden shape": (golden(**{OUTPUT: VALUE}), 2, "the model declares [2,10]"),
    "original": (words("--reference-model no.onnx"), 2, "no.onnx: no such file"),
    "judge file": (words("--judge j.py:f"), 2, "expected file.py:function"),
    "judge name": (file("j.py", "f = 1", "--judge", "j.py:f"), 2, "has no function 'f'"),
    "judge form": (file("j.py", "", "--judge", "j.py"), 2, "expected file.py:function"),
    "judge syntax": (file("j.py", "def (", "--judge", "j.py:f"), 2, "cannot be loaded: Syntax"),
    "judge raises": (
        file("j.py", "def f(a, b): return a['no']", "--judge", "j.py:f"), 2,
        "--judge j.py:f raised KeyError: 'no'",
    ),
    "precision": (words("--precision fp12"), 2, "expected one of fp64, fp32, tf32, fp16"),
    "tolerance": (words("--atol -1"), 2, "no number from 0 up"),
    "tolerance of nothing": (words("--atol no:1"), 2, "output 'no', which the model does not have"),
    "timeout": (words("--timeout 0"), 2, "'--timeout'"),
    "out file": (words("--out model.onnx"), 2, "is a file; name a folder with --out"),
    "out in a file": (words("--out model.onnx/o"), 2, "choose another --out"),
    "out that refuses": (words("--out /proc/tapsect"), 2, "choose another --out"),
    "out of another": (
        thesis, 2, "holds 'a'",
    ),
}  # fmt: skip

TABLE = {
    f"{group}: {name}": row
    for group, rows in
    {"model": MODELS, "inputs": INPUTS, "engine": ENGINES, "rest": REST}.items()
    for name, row in rows.items()
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(tmp_path, proto())
    return tmp_path


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    place: Path, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    make, code, said = TABLE[case]
    command = ["bisect", "model.onnx", "--quiet", *(make(place) or ())]
    before = {p.name for p in place.iterdir()}
    assert main(command) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("tapsect: ")
    assert said in err
    assert err.count("\n") == 1
    assert len(err) < 700
    assert "Traceback" not in err
    left = {p.name for p in place.iterdir()} - before - {"__pycache__"}
    if left:  # what an interrupted diagnosis may leave: it would be continued
        assert left == {"tapsect-model"}
        assert {p.name for p in (place / "tapsect-model").iterdir()} == {".probes", "journal.jsonl"}


def test_a_model_that_is_a_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", str(place), "--out", "o", "--quiet"]) == 2
    assert "is a folder; expected an ONNX file" in capsys.readouterr().err


def test_an_interpreter_without_numpy(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = place / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    assert main(["bisect", "model.onnx", "--engine-python", str(bare), "--quiet"]) == 4
    assert f"install it there: {bare} -m pip install numpy" in capsys.readouterr().err


def test_the_command_itself_prints_no_traceback(place: Path) -> None:
    (place / "model.onnx").write_bytes(b"no")
    done = run_command(place, "bisect", "model.onnx")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_an_operator_that_only_the_engine_has_is_named(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the engine takes an operator that the reference lacks, there is nothing to believe."""
    changed(custom_operator)(place)
    made = f"return {{{OUTPUT!r}: np.zeros((2, 10), np.float32)}}"
    assert main(["bisect", "model.onnx", "--quiet", *(session(made)(place) or ())]) == 4
    said = capsys.readouterr().err
    assert "cannot run the model at operator my.ops::Conv (node 'stem/Conv')" in said
    assert "Give golden values with --reference FILE.npz" in said
    assert said.count("\n") == 1


def test_an_operator_that_the_engine_refuses_is_its_answer(place: Path) -> None:
    changed(custom_operator)(place)
    assert main(["bisect", "model.onnx", "--out", "o", "--quiet"]) == 1
    body = contract.check(place / "o")
    assert (body["cause"], body["culprit_nodes"]) == ("unsupported", ["stem/Conv"])


# ------------------------------------------------------------------ odd, but not wrong


def test_a_nan_that_both_ends_have_agrees(place: Path) -> None:
    value = VALUE.copy()
    value.flat[0] = np.nan
    write_npz(place / "x.npz", {INPUT: value})
    assert main(["bisect", "model.onnx", "--inputs", "x.npz", "--out", "o", "--quiet"]) == 0
    body = contract.check(place / "o")
    assert body["outputs"][0]["nonfinite_engine"] == body["outputs"][0]["nonfinite_reference"] > 0


def test_inputs_without_elements_agree(place: Path) -> None:
    built = zoo.dynamic_shape()
    (name, value), *rest = built.feeds.items()
    save(place, built.model)
    empty = {name: value[:0], **{n: v[:0] for n, v in rest}}
    write_npz(place / "x.npz", empty)
    code = main(["bisect", "model.onnx", "--inputs", "x.npz", "--out", "o", "--quiet"])
    assert code in (0, 4)  # an operator may refuse them; then the reference names it
    assert (place / "o" / "result.json").exists() == (code == 0)


# ------------------------------------------------------------------------- the disk is full


def run_command(
    folder: Path, *argv: str, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tapsect", *argv], cwd=folder, capture_output=True, text=True,
        check=False, preexec_fn=before, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("most", "said"),
    [(0, "set TMPDIR"), (700, "no room for"), (5_000, "no room for"), (20_000, "no room for")],
)
def test_a_full_disk_is_one_sentence(place: Path, most: int, said: str) -> None:
    fault = ["--engine", "planted", "--engine-option", "kind=value", "nodes=stem/Conv"]
    done = run_command(
        place, "bisect", "model.onnx", *fault, "--out", "o", "--quiet",
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    held = {p.name for p in (place / "o").iterdir()} if (place / "o").exists() else set()
    assert held <= {"journal.jsonl", ".probes"}
