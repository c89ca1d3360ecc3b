"""The tools, each from the model and its inputs to an answer: whole processes, every step counted.

Polygraphy goes as its guide on reducing failing models says: golden values of every tensor, then
``debug reduce`` by bisection, then again node by node.  The check and its tolerance are given.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.cases import SCALE, Task
from benchmarks.measuring import Measured, measure

__all__ = ["Row", "by_marking_all", "by_polygraphy", "by_tapsect"]

CHECK = Path(__file__).with_name("check_candidate.py")


@dataclass(frozen=True)
class Row:
    """One tool on one case.

    Attributes:
        builds, runs: Engine builds and engine runs, those of the reference not among them.
        seconds: Of all steps, with what had to be made by hand beside the model.
        peak_mb: Most memory of the process tree that no file backs.
        located: Whether it named the operator at fault.
        nodes_left: Operators of its smallest model; None where it makes none.
    """

    tool: str
    case: str
    nodes: int
    builds: int
    runs: int
    seconds: float
    peak_mb: float
    located: bool
    nodes_left: int | None
    note: str = ""


def by_tapsect(task: Task, attempt: int, environment: Mapping[str, str]) -> Row:
    """Returns what ``tapsect bisect`` does."""
    out = task.folder / f"tapsect{attempt}"
    command = [
        sys.executable, "-m", "tapsect", "bisect", str(task.model), "--inputs", str(task.inputs),
        *task.engine, "--out", str(out), "--quiet",
    ]  # fmt: skip
    took = measure(command, task.folder, environment)
    result = out / "result.json"
    if not result.is_file():
        return _row("tapsect", task, [took], 0, 0, note=f"exit {took.code}: {took.last}")
    found = json.loads(result.read_text("utf-8"))
    minimal, cost = found["minimal"], found["cost"]
    named = frozenset(found["culprit_nodes"])
    return _row(
        "tapsect", task, [took], cost["builds"] + cost["reduce_builds"] + cost["fix_builds"],
        cost["runs"], bool(named) and named <= task.culprits,
        len(minimal["nodes"]) if minimal else None,
        f"{cost['builds']} builds to locate, {cost['reduce_builds']} to reduce, "
        f"{cost['fix_builds']} to look for a cure; {found['cause']}",
    )  # fmt: skip


def by_polygraphy(task: Task, attempt: int, environment: Mapping[str, str], python: str) -> Row:
    """Returns what ``polygraphy debug reduce`` does: golden values, bisect, then linear."""
    folder = task.folder / f"polygraphy{attempt}"
    folder.mkdir()
    counter, golden = folder / "checks", task.golden()
    steps = [measure(_marked(task, folder, python), folder, environment)]
    given = task.model
    for mode in ("bisect", "linear"):
        reduced = folder / f"{mode}.onnx"
        command = [
            *_polygraphy(python), "debug", "reduce", str(given), "-o", str(reduced),
            "--mode", mode, "--data-loader-script", str(_loader(task, folder)), "--silent",
            "--check", python, str(CHECK), "polygraphy_debug.onnx", str(golden),
            task.planted or "-", str(SCALE), str(counter),
        ]  # fmt: skip
        steps.append(measure(command, folder, environment))
        given = reduced if reduced.is_file() else given
    builds = len(counter.read_text().splitlines()) if counter.is_file() else 0
    seconds = ", ".join(f"{step.seconds:.1f} s" for step in steps)
    note = f"golden values, bisect, linear: {seconds}; check and tolerance made by hand"
    if given == task.model:
        return _row("polygraphy reduce", task, steps, builds, builds, note=steps[1].last)
    left = [node.name for node in onnx.load(given).graph.node if node.op_type != "Constant"]
    located = bool(task.culprits & {*left})
    return _row("polygraphy reduce", task, steps, builds, builds, located, len(left), note)


def by_marking_all(task: Task, attempt: int, environment: Mapping[str, str], python: str) -> Row:
    """Returns what a comparison of every tensor tells: golden values, then one run of all."""
    folder = task.folder / f"marked{attempt}"
    folder.mkdir()
    golden = _marked(task, folder, python)
    command = [
        *_polygraphy(python), "run", str(task.faulty()), "--onnxrt", "--onnx-outputs", "mark",
        "all", "--load-inputs", "inputs.json", "--load-outputs", "golden.json",
    ]  # fmt: skip
    steps = [measure(golden, folder, environment), measure(command, folder, environment)]
    failed = re.findall(r"FAILED \| Output: '([^']+)'", steps[1].said)
    makes = {t: n.name for n in onnx.load(task.model).graph.node for t in n.output}
    first = makes.get(failed[0], failed[0]) if failed else "none"
    note = f"{len(failed)} tensors differ, {first!r} the first"
    return _row("polygraphy mark all", task, steps, 1, 1, first in task.culprits, None, note)


def _row(
    tool: str, task: Task, steps: list[Measured], builds: int, runs: int,
    located: bool = False, left: int | None = None, note: str = "",  # noqa: FBT001, FBT002
) -> Row:  # fmt: skip
    seconds, peak = sum(s.seconds for s in steps), max(s.peak_mb for s in steps)
    return Row(tool, task.title, task.nodes, builds, runs, seconds, peak, located, left, note)


def _marked(task: Task, folder: Path, python: str) -> list[str]:
    """Returns the command that records golden values of every tensor."""
    return [
        *_polygraphy(python), "run", str(task.model), "--onnxrt", "--onnx-outputs", "mark", "all",
        "--silent", "--data-loader-script", str(_loader(task, folder)),
        "--save-inputs", "inputs.json", "--save-outputs", "golden.json",
    ]  # fmt: skip


def _loader(task: Task, folder: Path) -> Path:
    loader = folder / "data.py"
    loader.write_text(
        "import numpy as np\n"
        "def load_data():\n"
        f"    with np.load({str(task.inputs)!r}) as feeds:\n"
        "        yield dict(feeds)\n"
    )
    return loader


def _polygraphy(python: str) -> list[str]:
    probe = [python, "-c", "import polygraphy.__main__"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return [str(Path(python).with_name("polygraphy"))]
    return [python, "-m", "polygraphy"]
