"""The tools, each from the model and its inputs to an answer: whole processes, every step counted.

Polygraphy goes as its guide on reducing failing models says: golden values of every tensor, then
``debug reduce`` by bisection, then again node by node.  Its check is ``polygraphy run``, as in the
guide; or a lean one, written by hand, that starts Python, builds and compares, and nothing else.
Tolerances are given.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.cases import SCALE, Task
from benchmarks.measuring import Measured, measure

__all__ = ["Row", "by_hand", "by_marking_all", "by_polygraphy", "by_tapsect"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """One tool on one case.

    Attributes:
        builds, runs: Engine builds and engine runs, those of the reference not among them.
        built: Operators in all these builds together.
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
    built: int
    seconds: float
    peak_mb: float
    located: bool
    nodes_left: int | None
    note: str = ""


def by_tapsect(task: Task, attempt: int, environment: Mapping[str, str]) -> Row:
    """Returns what ``tapsect bisect`` does; a second run, which is not timed, counts operators."""
    out = task.folder / f"tapsect{attempt}"
    took = measure(_tapsect(task, out, task.engine), task.folder, environment)
    result = out / "result.json"
    if not result.is_file():
        return _row("tapsect", task, [took], 0, 0, 0, note=f"exit {took.code}: {took.last}")
    found = json.loads(result.read_text("utf-8"))
    counter = task.folder / f"counter{attempt}"
    counted = _tapsect(task, task.folder / f"counted{attempt}", task.counting(counter))
    measure(counted, task.folder, environment)
    minimal, cost = found["minimal"], found["cost"]
    named = frozenset(found["culprit_nodes"])
    return _row(
        "tapsect", task, [took], cost["builds"] + cost["reduce_builds"] + cost["fix_builds"],
        cost["runs"], _built(counter), bool(named) and named <= task.culprits,
        len(minimal["nodes"]) if minimal else None,
        f"{cost['builds']} builds to locate, {cost['reduce_builds']} to reduce, "
        f"{cost['fix_builds']} to look for a cure; {found['cause']}",
    )  # fmt: skip


def _tapsect(task: Task, out: Path, engine: list[str]) -> list[str]:
    return [
        sys.executable, "-m", "tapsect", "bisect", str(task.model), "--inputs", str(task.inputs),
        *engine, "--out", str(out), "--quiet",
    ]  # fmt: skip


def _built(counter: Path) -> int:
    return sum(map(int, counter.read_text().split())) if counter.is_file() else 0


def by_hand(task: Task, environment: Mapping[str, str]) -> Row:
    """Returns the least that an answer needs, from one script: its builds and runs, no thought."""
    script = [sys.executable, str(HERE / "bare.py"), str(task.faulty()), str(task.inputs)]
    took = measure([*script, task.planted], task.folder, environment)
    builds, runs, built = map(int, took.last.split())
    note = "as it is, all tensors, one operator; reference once, twice more with float64"
    return _row("bare builds and runs", task, [took], builds, runs, built, note=note)


def by_polygraphy(
    task: Task, attempt: int, environment: Mapping[str, str], python: str, *, lean: bool
) -> Row:
    """Returns what ``polygraphy debug reduce`` does: golden values, bisect, then linear.

    Args:
        task: The case.
        attempt: Number of the attempt.
        environment: Of the processes.
        python: An interpreter that has it.
        lean: Whether the check is the one written by hand, in place of ``polygraphy run``.
    """
    folder = task.folder / f"polygraphy-{'lean' if lean else 'guide'}{attempt}"
    folder.mkdir()
    counter = folder / "checks"
    steps = [measure(_marked(task, folder, python), folder, environment)]
    if lean:
        check = ["check_candidate.py", str(task.golden())]
        feeds = ["--data-loader-script", str(_loader(task, folder))]
    else:
        layers, golden = str(folder / "layers.json"), str(folder / "golden.json")
        both = [str(folder / "inputs.json"), golden]
        merge = [*_polygraphy(python), "data", "merge", *both, "-o", layers]
        steps.append(measure(merge, folder, environment))
        check, feeds = ["check_by_run.py", layers, golden], ["--load-inputs", layers]
    asked = [
        python, str(HERE / check[0]), "polygraphy_debug.onnx", task.planted or "-", str(SCALE),
        str(counter), *check[1:],
    ]  # fmt: skip
    given = task.model
    for mode in ("bisect", "linear"):
        reduced = folder / f"{mode}.onnx"
        command = [
            *_polygraphy(python), "debug", "reduce", str(given), "-o", str(reduced),
            "--mode", mode, *feeds, "--silent", "--check", *asked,
        ]  # fmt: skip
        steps.append(measure(command, folder, environment))
        given = reduced if reduced.is_file() else given
    builds = len(counter.read_text().splitlines()) if counter.is_file() else 0
    title = f"polygraphy reduce, {'lean check' if lean else 'polygraphy run'}"
    if given == task.model:
        return _row(title, task, steps, builds, builds, _built(counter), note=steps[-1].last)
    seconds = ", ".join(f"{step.seconds:.1f} s" for step in steps)
    note = f"golden values, bisect, linear: {seconds}; check and tolerance made by hand"
    left = [node.name for node in onnx.load(given).graph.node if node.op_type != "Constant"]
    located = bool(task.culprits & {*left})
    return _row(
        title, task, steps, builds, builds, _built(counter), located, len(left), note
    )  # fmt: skip


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
    return _row(
        "polygraphy mark all", task, steps, 1, 1, task.nodes, first in task.culprits, None, note
    )


def _row(
    tool: str, task: Task, steps: list[Measured], builds: int, runs: int, built: int,
    located: bool = False, left: int | None = None, note: str = "",  # noqa: FBT001, FBT002
) -> Row:  # fmt: skip
    seconds, peak = sum(s.seconds for s in steps), max(s.peak_mb for s in steps)
    return Row(
        tool, task.title, task.nodes, builds, runs, built, seconds, peak, located, left, note
    )  # fmt: skip


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
    return [python, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]
