"""Shows one failure of one engine on one small model, and nothing else.

    python check.py          exit 1: the bug is there   0: it is gone   2: it cannot be run here

Needs numpy, onnx and the engine's own package.  The engine runs in a child process, so that a
crash or a hang is an answer like any other.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import numpy as np

HERE = Path(__file__).resolve().parent
SETTINGS: Dict[str, Any] = {}

GONE, THERE, CANNOT = 0, 1, 2
VALUES = ("accuracy", "nonfinite", "wrong_shape", "wrong_dtype", "missing_output")
MEMORY = re.compile(r"bad_alloc|out of memory|failed to allocate|MemoryError", re.IGNORECASE)


# ---------------------------------------------------------------------------- tensors on disk


def dtype_of(name: str, itemsize: int) -> Any:
    """Returns a type that numpy lacks: that of ml_dtypes, or its bits tagged with its name."""
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        return np.dtype([(name, "u%d" % itemsize)])


def read(path: Path) -> Dict[str, Any]:
    """Returns the tensors of an .npz; types that numpy lacks stand in it as their bits."""
    found: Dict[str, Any] = {}
    with zipfile.ZipFile(str(path)) as archive:
        names = archive.namelist()
        note = json.loads(archive.read("__tapsect__.json")) if "__tapsect__.json" in names else {}
        exotic = note.get("dtypes", {})
        for entry in (n for n in names if n.endswith(".npy")):
            name = entry[:-4]
            with archive.open(entry) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            if name in exotic:
                array = array.view(dtype_of(exotic[name], array.dtype.itemsize))
            found[name] = array.astype(object) if array.dtype.kind == "U" else array
    return found


def kind_of(array: Any) -> str:
    """Returns the name of a tensor's type."""
    if array.dtype.names:
        return str(array.dtype.names[0])
    return "string" if array.dtype.kind in "OUS" else str(array.dtype.name)


def wide(array: Any) -> Any:
    """Returns a tensor in float64 (complex stays complex)."""
    if array.dtype.names:  # bits, tagged with the name of their type
        name = array.dtype.names[0]
        if name != "bfloat16":
            raise RuntimeError("reading %s needs the package ml_dtypes" % name)
        bits = array[name].astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    return array if array.dtype.kind == "c" else array.astype(np.float64)


# ------------------------------------------------------------------- the child: runs the engine


def engine_class() -> Any:
    """Returns the class of the engine under suspicion."""
    engine = SETTINGS["engine"]
    if engine["how"] == "module":
        sys.path.insert(0, os.getcwd())
        return pick(importlib.import_module(engine["where"]), engine["name"])
    path = HERE / engine["where"]
    if engine["how"] == "tapsect":
        path = tapsect_engine(engine["spec"])
    elif engine["how"] == "file" and Path(engine["origin"]).is_file():
        path = Path(engine["origin"])  # where it stood: its neighbours may be needed
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("case_engine", str(path))
    if spec is None or spec.loader is None:
        raise ImportError("%s is no Python file" % path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["case_engine"] = module
    spec.loader.exec_module(module)
    return pick(module, engine["name"])


def tapsect_engine(spec: str) -> Path:
    """Returns the file of an engine that only tapsect has."""
    try:
        debugtaps = importlib.import_module("debugtaps")
    except ImportError:
        raise ImportError("engine %r comes with tapsect: pip install tapsect" % spec) from None
    return Path(debugtaps.resolve(spec).target[1])


def pick(module: Any, name: str) -> Any:
    """Returns an attribute by its dotted name."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def run_engine(folder: Path) -> None:
    """Builds, runs, and leaves what happened in ``folder``; an exception is a result."""
    phase, said = "load", ""
    names: List[Tuple[str, str]] = []
    try:
        engine = engine_class()(**SETTINGS["engine"]["options"])
        if hasattr(engine, "expect"):  # it must know shapes before it builds
            engine.expect({name: needs(value) for name, value in read(HERE / "inputs.npz").items()})
        phase = "build"
        session = engine.build(HERE / "model.onnx", ())
        phase = "run"
        for number, (name, value) in enumerate(session.run(read(HERE / "inputs.npz")).items()):
            array = np.asarray(value)
            names.append((name, kind_of(array)))
            save(folder / ("%d.npy" % number), array)
        phase = "done"
    except Exception as error:
        said = "%s: %s" % (type(error).__name__, error)
    report = {"phase": phase, "said": said, "names": names}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


def needs(array: Any) -> Dict[str, Any]:
    """Returns what an input needs of the engine: the shape, and the values that may be one."""
    shape = list(array.shape)
    found: Dict[str, Any] = {"min": shape, "opt": shape, "max": shape}
    if array.dtype.kind in "iu" and array.size <= 64:
        found["values"] = [array.reshape(-1).tolist()] * 3
    return found


def save(path: Path, array: Any) -> None:
    """Writes one tensor; what numpy lacks goes as bits."""
    if array.dtype.kind in "OS":
        array = array.astype(str)
    elif array.dtype.names or array.dtype.isbuiltin == 2:
        array = array.copy(order="C").view("u%d" % array.dtype.itemsize)
    np.save(str(path), array, allow_pickle=False)


# ------------------------------------------------------------------------- the parent: judges


def attempt(folder: Path) -> Tuple[str, str, Dict[str, Any]]:
    """Returns what happened in one fresh process, what was said, and the outputs."""
    command = [sys.executable, str(Path(__file__).resolve()), "--run", str(folder)]
    with (folder / "log.txt").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            code = child.wait(SETTINGS["timeout"])
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return "timeout", "no answer within %g s" % SETTINGS["timeout"], {}
    tail = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")[-2000:]
    if not (folder / "report.json").is_file():
        killed = code == -getattr(signal, "SIGKILL", 9) or MEMORY.search(tail)
        return "out_of_memory" if killed else "crash", "%s\n%s" % (ending(code), tail), {}
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if report["phase"] == "load":
        return "unusable", report["said"], {}
    if report["phase"] != "done":
        happened = "out_of_memory" if MEMORY.search(report["said"]) else report["phase"] + "_error"
        return happened, report["said"], {}
    outputs = {}
    for number, (name, kind) in enumerate(report["names"]):
        array = np.load(str(folder / ("%d.npy" % number)), allow_pickle=False)
        if kind not in (array.dtype.name, "string"):
            array = array.view(dtype_of(kind, array.dtype.itemsize))
        outputs[name] = array
    return "done", "", outputs


def ending(code: int) -> str:
    """Returns how a process ended, in words."""
    if code < 0:
        return "the process was ended by signal %d" % -code
    return "the process ended with status %d" % code


def judge(outputs: Mapping[str, Any], expected: Mapping[str, Any]) -> Set[str]:
    """Prints the difference of every output and returns the kinds of failure seen."""
    seen: Set[str] = set()
    for name, want in expected.items():
        got = outputs.get(name)
        kind, words = difference(got, want, SETTINGS["limits"].get(name))
        print("%-30s %s" % (ascii(name)[1:-1], words))
        if kind is not None:
            seen.add(kind)
    return seen


def difference(got: Any, want: Any, limit: Optional[Mapping[str, Any]]) -> Tuple[Any, str]:
    """Returns the kind of failure of one output, if any, and its numbers in words."""
    if got is None:
        return "missing_output", "is missing"
    if got.shape != want.shape:
        return "wrong_shape", "has shape %s, expected %s" % (list(got.shape), list(want.shape))
    if SETTINGS["kind"] == "wrong_dtype" and kind_of(got) != kind_of(want):
        return "wrong_dtype", "has type %s, expected %s" % (kind_of(got), kind_of(want))
    if "string" in (kind_of(got), kind_of(want)):
        same = bool((got.astype(str) == want.astype(str)).all())
        return (None, "is equal") if same else ("accuracy", "differs")
    if kind_of(got)[:4] in ("bool", "int8", "int1", "int3", "int6", "uint") and limit is None:
        differs = int((got != want).sum())
        return "accuracy" if differs else None, "%d of %d elements differ" % (differs, want.size)
    return numbers(wide(got), wide(want), limit or {})


def numbers(got: Any, want: Any, limit: Mapping[str, Any]) -> Tuple[Any, str]:
    """Judges one float tensor against the limits of its output."""
    both = np.isfinite(got) & np.isfinite(want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    one_sided = int((~both & ~same).sum())
    error = np.abs(got[both] - want[both])
    size = float(np.sqrt(np.mean(np.abs(want[both]) ** 2))) if error.size else 0.0
    rms = float(np.sqrt(np.mean(error**2))) if error.size else 0.0
    top = float(error.max()) if error.size else 0.0
    words = "rms error %.3g (of values of %.3g), largest %.3g" % (rms, size, top)
    if one_sided:
        return "nonfinite", "%d elements non-finite on one side; %s" % (one_sided, words)
    above = rms > limit.get("rms", float("inf")) or top > limit.get("max_abs", float("inf"))
    if "atol" in limit and "rtol" in limit and error.size:
        relative = error / np.maximum(np.abs(want[both]), 2.0**-52)
        above = above or bool(((error > limit["atol"]) & (relative > limit["rtol"])).any())
    allowed = ", ".join("%s %.3g" % item for item in sorted(limit.items()))
    return "accuracy" if above else None, "%s; allowed: %s" % (words, allowed or "not judged")


def verdict(happened: str, said: str, outputs: Mapping[str, Any]) -> int:
    """Returns the exit status for one attempt."""
    kind = SETTINGS["kind"]
    if happened == "unusable":
        print("cannot run: %s" % said)
        return CANNOT
    if happened == "done":
        seen = judge(outputs, read(HERE / "expected.npz"))
        if kind not in VALUES:
            print("builds and runs: no %s any more" % kind)
            return GONE
        if seen and kind not in seen:
            print("differs in another way than before: %s" % ", ".join(sorted(seen)))
        return THERE if seen else GONE
    print("%s: %s" % (happened, said.strip()))
    alike = happened == kind or {happened, kind} == {"crash", "out_of_memory"}
    if alike and SETTINGS["error"] in said:
        return THERE
    print("fails in another way; expected: %s %s" % (kind, SETTINGS["error"]))
    return CANNOT


def main() -> int:
    """Runs the engine as often as the case needs and returns the exit status."""
    status = GONE
    for _ in range(SETTINGS["tries"]):
        with tempfile.TemporaryDirectory() as folder:
            status = verdict(*attempt(Path(folder)))
        if status != GONE:
            break
    print({GONE: "the bug is gone", THERE: "THE BUG IS THERE", CANNOT: "no answer"}[status])
    return status


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_engine(Path(sys.argv[2]))
    else:
        sys.exit(main())
