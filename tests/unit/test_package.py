"""Build archives: what is in them, equal bytes, and what a stranger's archive may not do."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from debugtaps import (
    BuildFile,
    EngineFailure,
    InputError,
    Manifest,
    ModelError,
    OutputError,
    TapEntry,
    TapError,
    compile_model,
    list_build,
    read_meta,
    read_npz,
    resolve,
    unpack_build,
    write_manifest,
    write_npz,
)
from debugtaps.archive import member_file, write_archive
from debugtaps.bindings import bindings, check_bindings
from support.tapped import tapped_model

ENGINE = """
from pathlib import Path
import numpy as np
import onnxruntime

class Engine:
    def __init__(self, loses="", saves=True, says="", precision=""):
        self.loses, self.saves, self.says, self.precision = loses, saves, says, precision
    def describe(self):
        return {"name": "mine", "precision": self.precision, "compute_capability": "9.0",
                "limit": float("nan")}
    def build(self, model, taps=()):
        print(self.says)
        session = onnxruntime.InferenceSession(str(model))
        return (Saved if self.saves else Session)(session, self.loses)

class Session:
    def __init__(self, session, loses):
        self.session, self.loses = session, loses
    def run(self, feeds):
        names = [each.name for each in self.session.get_outputs()]
        known = {each.name for each in self.session.get_inputs()}
        found = self.session.run(names, {k: v for k, v in feeds.items() if k in known})
        return {n: v for n, v in zip(names, found) if n != self.loses}
    def close(self):
        self.session = None

class Saved(Session):
    def save(self, folder):
        (Path(folder) / "cache").mkdir()
        (Path(folder) / "cache" / "tactics.bin").write_bytes(b"t")
        (Path(folder) / "engine.plan").write_bytes(b"plan")
"""


@pytest.fixture
def engine(tmp_path: Path) -> Callable[..., Any]:
    path = tmp_path / "mine.py"
    path.write_text(ENGINE)
    return lambda **options: resolve(f"{path}:Engine", options)


# -------------------------------------------------------------------------- what a build holds


def test_a_build_holds_everything(tmp_path: Path, engine: Callable[..., Any]) -> None:
    tapped = tapped_model(tmp_path)
    spec = engine(says="tactic 7 chosen", precision="f16")
    package = compile_model(tapped.model, tapped.inputs, spec=spec, output=tmp_path / "builds")
    assert package.path == tmp_path / "builds" / "model.sm90.fp16.tgz"
    assert package.saved
    names = [file.name for file in list_build(package.path)]
    assert names == [
        "build.log", "engine/cache/tactics.bin", "engine/engine.plan", "environment.json",
        "inputs.npz", "manifest.json", "plugins.json", "sample_outputs.npz",
    ]  # fmt: skip
    unpack_build(package.path, ["*"], tmp_path / "seen")
    seen = tmp_path / "seen"
    assert "tactic 7 chosen" in (seen / "build.log").read_text()
    outputs = read_npz(seen / "sample_outputs.npz")
    assert set(outputs) == {*tapped.taps, tapped.output}
    assert read_npz(seen / "inputs.npz").keys() == {"x"}
    about = json.loads((seen / "manifest.json").read_text())
    assert about["engine"]["holds"] == "the saved engine"
    assert about["order"] == [*tapped.taps, tapped.output] == list(package.names)
    assert set(about["files"]) == set(names) - {"manifest.json"}
    assert read_meta(seen / "sample_outputs.npz")["kinds"]["Gelu__in0"] == "plugin"
    boundaries = json.loads((seen / "plugins.json").read_text())["boundaries"]
    assert [(b["name"], b["state"]) for b in boundaries] == [
        ("Gelu__in0", "bound"), ("Gelu__out0", "bound"),
    ]  # fmt: skip
    said = json.loads((seen / "environment.json").read_text())["engine"]
    assert (said["name"], said["limit"]) == ("mine", "NaN")


def test_an_engine_that_cannot_save_leaves_model_and_options(
    tmp_path: Path, engine: Callable[..., Any]
) -> None:
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="net.weights", size_threshold=0)
    feeds = {"x": np.ones((1, 8), np.float32)}
    package = compile_model(path, feeds, spec=engine(saves=False), output=tmp_path / "b.tgz")
    assert not package.saved
    assert package.precision == "fp32"
    assert "cannot be saved" in package.notes[0]
    unpack_build(package.path, ["model/*", "manifest.json"], tmp_path / "seen")
    assert (tmp_path / "seen/model/net.weights").read_bytes() == weight.tobytes()
    onnx.checker.check_model(str(tmp_path / "seen/model/net.onnx"))
    about = json.loads((tmp_path / "seen/manifest.json").read_text())
    assert about["engine"]["holds"] == "the model and the options"
    assert about["engine"]["options"] == {"saves": False}


def test_equal_builds_are_equal_bytes(tmp_path: Path) -> None:
    tapped = tapped_model(tmp_path)
    packages = [
        compile_model(tapped.model, tapped.inputs, spec=resolve("ort"), output=tmp_path / name)
        for name in ("a.tgz", "b.tgz")
    ]
    a, b = (package.path.read_bytes() for package in packages)
    assert a == b
    with tarfile.open(packages[0].path) as tar:
        facts = {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in tar}
    assert facts == {(0, 0, 0, "", "", 0o644)}


def test_a_plugin_without_reference_is_reported(tmp_path: Path) -> None:
    tapped = tapped_model(tmp_path, plugin="none")
    package = compile_model(
        tapped.model, tapped.inputs, spec=resolve("ort"), output=tmp_path / "b.tgz"
    )
    found = {b.name: (b.state, b.reason) for b in package.bindings if b.kind == "plugin"}
    assert set(found.values()) == {("no reference", "torch fuses it")}
    with member_file(package.path, "sample_outputs.npz") as file:
        assert "Gelu__in0" in read_npz(file)
        assert read_meta(file)["reasons"]["Gelu__in0"] == "torch fuses it"


# ------------------------------------------------------------------------------------ lost taps


@pytest.mark.parametrize("lost", ["layer2", "Gelu__out0"])
def test_a_lost_tap_is_fatal_and_named(
    tmp_path: Path, engine: Callable[..., Any], lost: str
) -> None:
    tapped = tapped_model(tmp_path)
    target = tmp_path / "b.tgz"
    with pytest.raises(TapError, match=rf"'{lost}' of tensor.*no such output"):
        compile_model(tapped.model, tapped.inputs, spec=engine(loses=f"tap/{lost}"), output=target)
    assert not target.exists()


def test_a_lost_plugin_tap_without_reference_is_only_reported(
    tmp_path: Path, engine: Callable[..., Any]
) -> None:
    tapped = tapped_model(tmp_path, plugin="none")
    package = compile_model(
        tapped.model, tapped.inputs, spec=engine(loses="tap/Gelu__out0"), output=tmp_path / "b.tgz"
    )
    assert {b.name: b.state for b in package.bindings}["Gelu__out0"] == "lost"


def test_a_lost_output_is_fatal(tmp_path: Path, engine: Callable[..., Any]) -> None:
    tapped = tapped_model(tmp_path)
    with pytest.raises(TapError, match=f"no output '{tapped.output}'"):
        compile_model(
            tapped.model, tapped.inputs, spec=engine(loses=tapped.output), output=tmp_path / "b.tgz"
        )


def test_several_lost_taps_are_counted() -> None:
    taps = tuple(
        TapEntry(f"t{i}", f"o{i}", f"x{i}", "manual", "float32", None, None, "torch")
        for i in range(8)
    )
    found = bindings(Manifest(taps=taps), ["o0"], ["output 'o3' left out: it is not a tensor"])
    assert [each.state for each in found] == ["bound"] + ["lost"] * 7
    assert "not a tensor" in found[3].reason
    with pytest.raises(TapError, match=r"'t1'.*and 6 more: 't2'"):
        check_bindings(found)


# ------------------------------------------------------------------------------------ bad input


def test_what_cannot_be_compiled_is_said_before_the_build(tmp_path: Path) -> None:
    tapped = tapped_model(tmp_path)
    spec = resolve("ort")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="no folder that takes files"):
        compile_model(tapped.model, tapped.inputs, spec=spec, output=tmp_path / "file" / "b.tgz")
    with pytest.raises(InputError, match="lacks input 'x'"):
        compile_model(tapped.model, {}, spec=spec, output=tmp_path / "b.tgz")
    with pytest.raises(InputError, match="'fp12' is none of"):
        compile_model(tapped.model, tapped.inputs, spec=spec, precision="fp12")
    (tmp_path / "two.py").write_text("def load_data():\n    return [{}, {}]\n")
    with pytest.raises(InputError, match=r"lacks|2 samples"):
        compile_model(tapped.model, tmp_path / "two.py", spec=spec, output=tmp_path / "b.tgz")
    with pytest.raises(ModelError, match="no such file"):
        compile_model(tmp_path / "none.onnx", {}, spec=spec)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    tapped = tapped_model(tmp_path)
    before = sorted(tmp_path.iterdir())
    spec = resolve("planted", {"kind": "build_error", "nodes": "Relu_1"})
    with pytest.raises(EngineFailure, match="Relu_1"):
        compile_model(tapped.model, tapped.inputs, spec=spec, output=tmp_path / "b.tgz")
    assert sorted(tmp_path.iterdir()) == before


def test_a_tap_that_bears_the_name_of_an_output_is_refused(tmp_path: Path) -> None:
    tapped = tapped_model(tmp_path)
    model = onnx.load(tapped.model)
    entry = TapEntry(
        tapped.output, "tap/layer0", "Relu_output_0", "manual", "float32", None, None, "torch"
    )
    write_manifest(model, Manifest(taps=(entry,), outputs=(tapped.output,)))
    onnx.save(model, tapped.model)
    with pytest.raises(ModelError, match="is a tap and an output"):
        compile_model(tapped.model, tapped.inputs, spec=resolve("ort"))


# ---------------------------------------------------------------------------- archives of others


def entry(name: str, data: bytes = b"data", **facts: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, data


def archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up", "a/../../up", "a//b", "./x", "a\\..\\b", "..", "a/."]
)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "b.tgz", entry("good"), entry(name))
    with pytest.raises(InputError, match="could lead out of the folder"):
        unpack_build(path, ["*"], tmp_path / "o" / "p")
    assert list((tmp_path / "o" / "p").iterdir()) == []
    assert [p.name for p in (tmp_path / "o").iterdir()] == ["p"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = archive(tmp_path / "b.tgz", entry("x", b"", type=kind, linkname="/etc/passwd"))
    for call in (lambda: list_build(path), lambda: unpack_build(path, ["*"], tmp_path / "o")):
        with pytest.raises(InputError, match="is a link, a device"):
            call()


def test_names_twice_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.tgz", entry("x"), entry("x"))
    with pytest.raises(InputError, match="'x' twice"):
        unpack_build(path, ["*"], tmp_path / "o")


def test_bombs_are_refused_before_they_go_off(tmp_path: Path) -> None:
    big = archive(tmp_path / "big.tgz", entry("zeros", bytes(4 << 20)))
    assert big.stat().st_size < 1 << 14
    with pytest.raises(InputError, match="would unpack to more than"):
        unpack_build(big, ["*"], tmp_path / "o", most_bytes=1 << 20)
    many = archive(tmp_path / "many.tgz", *(entry(f"f{i}", b"") for i in range(10_001)))
    with pytest.raises(InputError, match="10,000 files"):
        list_build(many)


def test_headers_that_claim_too_much_are_refused(tmp_path: Path) -> None:
    for size in (1 << 40, 8 << 20):
        info = tarfile.TarInfo("pax")
        info.type, info.size = tarfile.XHDTYPE, size
        raw = info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 12)
        path = tmp_path / "b.tgz"
        path.write_bytes(gzip.compress(raw))
        with pytest.raises(InputError, match=r"claims too much|truncated"):
            list_build(path)


def test_a_size_below_zero_ends(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = b"\xff" * 10 + b"\xfc\x00"  # -1024, as GNU tar writes numbers
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    path = tmp_path / "b.tgz"
    path.write_bytes(gzip.compress(bytes(raw) + bytes(2048)))
    with pytest.raises(InputError):
        list_build(path)


def test_truncated_and_damaged_archives_are_input_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = [entry(f"f{i}", rng.bytes(3000)) for i in range(3)]
    whole = archive(tmp_path / "b.tgz", *content).read_bytes()
    cut = tmp_path / "cut.tgz"
    for size in (0, 3, 40, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"cut\.tgz"):
            unpack_build(cut, ["f0"], tmp_path / "o")
    for place in range(20, len(whole), len(whole) // 17):
        cut.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(InputError):
            unpack_build(cut, ["f0"], tmp_path / "o")
    assert not (tmp_path / "o" / "f0").exists()


def test_a_bad_header_in_the_middle_is_no_end(tmp_path: Path) -> None:
    path = archive(tmp_path / "b.tgz", entry("a", b"1" * 512), entry("b"))
    raw = bytearray(gzip.decompress(path.read_bytes()))
    raw[1024] ^= 1
    path.write_bytes(gzip.compress(bytes(raw)))
    with pytest.raises(InputError, match="header is not valid"):
        list_build(path)


def test_other_files_are_input_errors(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not an archive")
    for path, words in (
        (tmp_path / "none.tgz", "cannot be read: No such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "text", "no build archive"),
        (tmp_path / "text" / "b.tgz", "cannot be read"),
    ):
        with pytest.raises(InputError, match=words):
            list_build(path)


# ------------------------------------------------------------------------------------ unpacking


@pytest.fixture
def build(tmp_path: Path) -> Path:
    files: dict[str, Path] = {}
    for name in ("manifest.json", "engine/a.bin", "engine/b.txt", "in [1].npz"):
        files[name] = tmp_path / str(len(files))
        files[name].write_text(name)
    write_archive(tmp_path / "b.tgz", files)
    return tmp_path / "b.tgz"


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["*.json"], ["manifest.json"]),
        (["engine/*"], ["engine/a.bin", "engine/b.txt"]),
        (["a.bin", "*.json"], ["engine/a.bin", "manifest.json"]),
        (["in [[]1].npz"], ["in [1].npz"]),
        (["*"], ["engine/a.bin", "engine/b.txt", "in [1].npz", "manifest.json"]),
    ],
)
def test_patterns(build: Path, tmp_path: Path, patterns: list[str], names: list[str]) -> None:
    taken = unpack_build(build, patterns, tmp_path / "o")
    assert [path.relative_to(tmp_path / "o").as_posix() for path in taken] == names
    assert all(path.read_text() == name for path, name in zip(taken, names, strict=True))
    assert not [path for path in (tmp_path / "o").iterdir() if path.name.startswith(".")]


def test_a_pattern_that_matches_nothing_takes_nothing(build: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file '\*\.plan'; it holds engine/a\.bin"):
        unpack_build(build, ["*.json", "*.plan"], tmp_path / "o")
    assert list((tmp_path / "o").iterdir()) == []


def test_files_that_stand_there_are_kept(build: Path, tmp_path: Path) -> None:
    unpack_build(build, ["*"], tmp_path / "o")
    unpack_build(build, ["*"], tmp_path / "o")
    (tmp_path / "o" / "engine" / "b.txt").write_text("mine")
    (tmp_path / "o" / "manifest.json").unlink()
    with pytest.raises(OutputError, match=r"b\.txt exists and is another file"):
        unpack_build(build, ["*"], tmp_path / "o")
    assert (tmp_path / "o" / "engine" / "b.txt").read_text() == "mine"
    assert not (tmp_path / "o" / "manifest.json").exists()


def test_nothing_is_written_through_a_link(build: Path, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "else").mkdir()
    os.symlink(tmp_path / "else", tmp_path / "o" / "engine")
    with pytest.raises(OutputError, match="is a link out of"):
        unpack_build(build, ["engine/*"], tmp_path / "o")
    os.symlink(tmp_path / "else" / "new", tmp_path / "o" / "manifest.json")
    with pytest.raises(OutputError, match="exists and is another file"):
        unpack_build(build, ["manifest.json"], tmp_path / "o")
    assert list((tmp_path / "else").iterdir()) == []


def test_a_folder_that_cannot_be_made(build: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        unpack_build(build, ["*"], build / "o")


def test_an_archive_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    write_npz(tmp_path / "x", {"a": np.ones(3)})
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "b.tgz", {"x": tmp_path / "x", "y": tmp_path / "gone"})
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_long_and_foreign_names_come_back(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12")
    names = ["engine/" + "n" * 180, "engine/ünï\n☃", "a b"]
    write_archive(tmp_path / "b.tgz", dict.fromkeys(names, tmp_path / "f"))
    assert list_build(tmp_path / "b.tgz") == tuple(BuildFile(name, 2) for name in sorted(names))
