"""Published faults on the versions that have them: interpreters, runs, and an outer collection.

``interpreter("1.19.2")`` gives a Python with that ONNX Runtime, made on first use and kept.
``run_elsewhere`` runs a model there and returns outputs, or how it failed.
``outer_cases()`` loads a folder of published faults kept outside the repository
(``$TAPSECT_BUGS``, or ``../shared/bugs`` beside it) and is empty where there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from support.build import Array, Built
from tapsect.published import cache_folder

__all__ = [
    "OuterCase",
    "Outcome",
    "extract",
    "interpreter",
    "make_interpreter",
    "outer_cases",
    "run_elsewhere",
]

_ROOT = Path(__file__).resolve().parents[2]
_PYTHONS = {"1.16.3": ("3.11", "3.10", "3.9"), "1.19.2": ("3.12", "3.11", "3.10")}
_ANY_PYTHON = ("3.13", "3.12", "3.11")
_NUMPY = {"1.16.3": "numpy<2"}
_RUN = """
import sys
import numpy as np, onnxruntime as ort
model, inputs, outputs, level = sys.argv[1:]
options = ort.SessionOptions()
options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
options.intra_op_num_threads = 1
options.log_severity_level = 4
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
print("built", flush=True)
with np.load(inputs) as feeds:
    wanted = {i.name: feeds[i.name] for i in session.get_inputs()}
values = session.run(None, wanted)
np.savez(outputs, *values)
"""


def interpreter(version: str) -> Path | None:
    """Returns a Python that has ONNX Runtime ``version``, or ``None`` where none can be made.

    The environments stay in ``$TAPSECT_BUG_PYTHONS`` (default: the cache folder), one folder
    ``ort-<version>`` each.
    """
    import onnxruntime

    if version == onnxruntime.__version__:
        return Path(sys.executable)
    try:
        return make_interpreter(version)
    except (OSError, subprocess.SubprocessError, LookupError):
        return None


@cache
def make_interpreter(version: str) -> Path:
    """Returns the environment's Python, making it first; raises where that fails."""
    home = os.environ.get("TAPSECT_BUG_PYTHONS")
    folder = (Path(home) if home else cache_folder() / "pythons") / f"ort-{version}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if _has(python, version):
        return python
    base = _base_python(_PYTHONS.get(version, _ANY_PYTHON))
    packages = [f"onnxruntime=={version}", _NUMPY.get(version, "numpy")]
    subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *packages],
        check=True, capture_output=True, timeout=600,
    )  # fmt: skip
    return python


def _has(python: Path, version: str) -> bool:
    if not python.exists():
        return False
    code = f"import onnxruntime; assert onnxruntime.__version__ == {version!r}"
    return (
        subprocess.run([str(python), "-c", code], capture_output=True, check=False).returncode == 0
    )


def _base_python(versions: Sequence[str]) -> str:
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if mine in versions:
        return sys.executable
    for version in versions:
        found = shutil.which(f"python{version}")
        if (
            found
            and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode
        ):
            return found
    raise LookupError(f"none of Python {', '.join(versions)} is installed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one build and run elsewhere gave.

    ``failure`` is ``None``, ``build_error``, ``run_error`` or ``crash``; ``message`` is the last
    line the process printed, or the signal that ended it.
    """

    outputs: tuple[Array, ...] = ()
    failure: str | None = None
    message: str = ""


def run_elsewhere(python: Path, built: Built, folder: Path, *, level: str = "ALL") -> Outcome:
    """Returns what ONNX Runtime of another interpreter answers.

    Args:
        python: The interpreter.
        built: Model and inputs.
        folder: Where the exchanged files go.
        level: ``ALL`` or ``OFF``.
    """
    model, inputs = built.save(folder)
    answer = folder / "answer.npz"
    answer.unlink(missing_ok=True)
    name = "ORT_ENABLE_ALL" if level == "ALL" else "ORT_DISABLE_ALL"
    done = subprocess.run(
        [str(python), "-c", _RUN, str(model), str(inputs), str(answer), name],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode < 0:
        return Outcome(failure="crash", message=f"signal {-done.returncode}")
    if done.returncode:
        kind = "run_error" if "built" in done.stdout else "build_error"
        return Outcome(failure=kind, message=done.stderr.strip().splitlines()[-1])
    with np.load(answer) as values:
        return Outcome(tuple(values[key] for key in values.files))


def extract(built: Built, nodes: frozenset[str], values: dict[str, Array]) -> Built:
    """Returns the sub-model of ``nodes``, fed with recorded ``values``, last tensor as output."""
    graph = built.model.graph
    chosen = [node for node in graph.node if node.name in nodes]
    weights = {t.name: t for t in graph.initializer}
    made = {name for node in chosen for name in node.output}
    read = dict.fromkeys(name for node in chosen for name in node.input if name)
    fed = [name for name in read if name not in made and name not in weights]
    last = chosen[-1].output[0]
    info = onnx.helper.make_tensor_value_info
    kind = onnx.helper.np_dtype_to_tensor_dtype
    part = onnx.helper.make_graph(
        chosen,
        "part",
        [info(name, kind(values[name].dtype), values[name].shape) for name in fed],
        [info(last, kind(values[last].dtype), values[last].shape)],
        [weights[name] for name in read if name in weights],
    )
    model = onnx.helper.make_model(
        part, opset_imports=built.model.opset_import, ir_version=built.model.ir_version
    )
    return Built(model, {name: values[name] for name in fed})


@dataclass(frozen=True, slots=True)
class OuterCase:
    """One published fault of an outside collection, in one of its two sizes."""

    id: str
    size: str
    package: str
    version: str
    built: Built
    culprits: frozenset[str]
    minimal: frozenset[str]
    first_divergence: str
    localisable: bool

    @property
    def name(self) -> str:
        """Returns ``id.size``."""
        return f"{self.id}.{self.size}"


def outer_cases(package: str = "onnxruntime") -> list[OuterCase]:
    """Returns the outer collection's faults of an engine package; empty where it is absent."""
    named = os.environ.get("TAPSECT_BUGS")
    folder = Path(named) if named else _ROOT.parent / "shared" / "bugs"
    index = folder / "bugs.json"
    if not index.is_file():
        return []
    return [
        _outer_case(folder, bug, size)
        for bug in json.loads(index.read_text("utf-8"))["bugs"]
        if bug["engine"]["package"] == package
        for size in ("small", "embedded")
    ]


def _outer_case(folder: Path, bug: dict[str, object], size: str) -> OuterCase:
    body, engine = bug[size], bug["engine"]
    assert isinstance(body, dict)
    assert isinstance(engine, dict)
    with np.load(folder / body["inputs"], allow_pickle=False) as feeds:
        built = Built(onnx.load(folder / body["model"]), dict(feeds))
    return OuterCase(
        id=str(bug["id"]),
        size=size,
        package=engine["package"],
        version=engine["version"],
        built=built,
        culprits=frozenset(body["culprit_nodes"]),
        minimal=frozenset(body["minimal_failing_nodes"]),
        first_divergence=body["first_diverging_tensor"],
        localisable=bool(bug["localisable"]),
    )
