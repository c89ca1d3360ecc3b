"""One failing model, one check command, two reducers: ``tapsect reduce`` and its neighbour.

``polygraphy debug reduce`` is run as its guide says: ``--mode bisect``, then ``--mode linear`` on
the result.  Both tools call the same command on each candidate; it notes each call.  Two rows
more compare the engine with golden values: tapsect's built-in check, which needs no command, and
the other tool with a check that builds and runs the same engine.

    python -m benchmarks.reduce --polygraphy-python PATH

Measured: calls of the check, wall seconds of the whole process, nodes left.  Python may keep
compiled files, as it does for an installed program, and every tool runs once before it is timed.
Results go to
``benchmarks/results/reduce.json`` and ``reduce.txt``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.extend(str(ROOT / each) for each in ("taps", "bisect", "tests"))

from benchmarks.cases import every_tensor  # noqa: E402
from debugtaps.store import read_npz, write_npz  # noqa: E402
from support import zoo  # noqa: E402

CHECK = Path(__file__).with_name("check_nodes.py")
ENGINE_CHECK = Path(__file__).with_name("check_candidate.py")


@dataclass(frozen=True)
class Task:
    """A model on disk and the nodes that fail together."""

    name: str
    folder: Path
    model: Path
    inputs: Path
    nodes: int
    culprits: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One tool on one task."""

    tool: str
    task: str
    nodes: int
    culprits: int
    calls: int
    seconds: float
    left: int | None
    note: str = ""


def main() -> int:
    args = arguments()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(home, "compiled"))
        warm_up(Path(home, "warm"), args.polygraphy_python)
        for task in tasks(Path(home)):
            rows.append(show(bench_tapsect(task)))
            rows.append(show(bench_builtin(task)))
            if args.polygraphy_python:
                rows.append(show(bench_polygraphy(task, args.polygraphy_python)))
                if len(task.culprits) == 1:
                    rows.append(show(bench_engine(task, args.polygraphy_python)))
    args.out.mkdir(parents=True, exist_ok=True)
    text = table(rows)
    (args.out / "reduce.json").write_text(json.dumps(record(rows), indent=1) + "\n", "utf-8")
    (args.out / "reduce.txt").write_text(text + "\n", "utf-8")
    print(f"\n{text}")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument(
        "--polygraphy-python",
        default=os.environ.get("TAPSECT_POLYGRAPHY_PYTHON"),
        help="an interpreter that has polygraphy, onnxruntime and onnx_graphsurgeon",
    )
    return parser.parse_args()


def tasks(home: Path) -> list[Task]:
    """Returns single faults and joint ones, on networks of several shapes."""
    made = []
    for name, built, op, places in (
        ("chain of 64", zoo.chain_cnn(64), "Conv", (12,)),
        ("residual network", zoo.residual(8), "Conv", (9,)),
        ("transformer of 100", zoo.transformer_nodes(100), "MatMul", (8,)),
        ("transformer of 600", zoo.transformer_nodes(600), "MatMul", (50,)),
        ("chain of 64, two apart", zoo.chain_cnn(64), "Conv", (3, 28)),
        ("transformer of 100, two apart", zoo.transformer_nodes(100), "MatMul", (3, 12)),
    ):
        folder = home / name.replace(" ", "-").replace(",", "")
        model, inputs = built.save(folder)
        found = [n.name for n in built.model.graph.node if n.op_type == op]
        culprits = tuple(found[place] for place in places)
        made.append(Task(name, folder, model, inputs, len(built.names), culprits))
    return made


def warm_up(home: Path, polygraphy: str | None) -> None:
    """Runs every tool once, so that the compiled files of its modules are there."""
    task = tasks(home)[0]
    bench_tapsect(task)
    bench_builtin(task)
    if polygraphy:
        bench_polygraphy(task, polygraphy)
        bench_engine(task, polygraphy)


def bench_tapsect(task: Task) -> Row:
    folder, log = fresh(task, "tapsect")
    command = [
        sys.executable, "-m", "tapsect", "reduce", str(task.model), "--inputs", str(task.inputs),
        "-o", str(folder / "r.onnx"), "--out", str(folder / "out"), "--quiet", "--budget", "0",
        "--iter-artifact", str(folder / "candidate.onnx"),
        "--check", sys.executable, "-S", str(CHECK), "{model}", str(log), *task.culprits,
    ]  # fmt: skip
    return measured("tapsect --check", task, folder, log, [command])


def bench_builtin(task: Task) -> Row:
    folder, log = fresh(task, "builtin")
    fault = {"kind": "pattern" if len(task.culprits) > 1 else "value", "nodes": task.culprits}
    command = [
        sys.executable, "-m", "tapsect", "reduce", str(task.model), "--inputs", str(task.inputs),
        "-o", str(folder / "r.onnx"), "--out", str(folder / "out"), "--quiet", "--budget", "0",
        "--engine", "planted", "--engine-option", f"faults={json.dumps([fault])}",
    ]  # fmt: skip
    row = measured("tapsect built-in", task, folder, log, [command])
    result = folder / "out" / "result.json"
    calls = json.loads(result.read_text("utf-8"))["cost"]["reduce_builds"] if result.exists() else 0
    return dataclasses.replace(row, calls=calls)


def bench_polygraphy(task: Task, python: str) -> Row:
    folder, log = fresh(task, "polygraphy")
    loader = folder / "data.py"
    loader.write_text(
        "import numpy as np\n"
        "def load_data():\n"
        f"    with np.load({str(task.inputs)!r}) as feeds:\n"
        "        yield dict(feeds)\n"
    )
    start = [str(Path(python).with_name("polygraphy")), "debug", "reduce"]
    check = [sys.executable, "-S", str(CHECK), "polygraphy_debug.onnx", str(log), *task.culprits]
    data = ["--data-loader-script", str(loader), "--silent"]
    first, last = str(folder / "first.onnx"), str(folder / "r.onnx")
    commands = [
        [*start, str(task.model), "-o", first, "--mode", "bisect", *data, "--check", *check],
        [*start, first, "-o", last, "--mode", "linear", "--silent", "--check", *check],
    ]
    return measured("polygraphy", task, folder, log, commands)


def bench_engine(task: Task, python: str) -> Row:
    """The other tool with a check that builds and runs the engine, as our built-in one does.

    Golden values of every tensor and the tolerance are given to it; they cost it nothing here.
    """
    folder, log = fresh(task, "engine")
    built = zoo.Built(onnx.load(task.model), read_npz(task.inputs))
    golden = folder / "golden.npz"
    write_npz(golden, {**built.feeds, **every_tensor(built.model, built.feeds)})
    start = [str(Path(python).with_name("polygraphy")), "debug", "reduce"]
    check = [
        python, str(ENGINE_CHECK), "polygraphy_debug.onnx", task.culprits[0], "1.05", str(log),
        str(golden),
    ]  # fmt: skip
    first, last = str(folder / "first.onnx"), str(folder / "r.onnx")
    commands = [
        [*start, str(task.model), "-o", first, "--mode", "bisect", "--silent", "--check", *check],
        [*start, first, "-o", last, "--mode", "linear", "--silent", "--check", *check],
    ]
    return measured("polygraphy, engine", task, folder, log, commands)


def fresh(task: Task, tool: str) -> tuple[Path, Path]:
    folder = task.folder / tool
    folder.mkdir()
    return folder, folder / "calls"


def measured(
    tool: str, task: Task, folder: Path, log: Path, commands: Sequence[Sequence[str]]
) -> Row:
    roots = (str(ROOT / "taps"), str(ROOT / "bisect"), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots))}
    start, said = time.perf_counter(), ""
    for command in commands:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800
        )
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:120]
    seconds = time.perf_counter() - start
    calls = len(log.read_text().splitlines()) if log.exists() else 0
    path, left = folder / "r.onnx", None
    if path.exists():
        left = len(onnx.load(path, load_external_data=False).graph.node)
    return Row(
        tool, task.name, task.nodes, len(task.culprits), calls, round(seconds, 2), left, said
    )


def show(row: Row) -> Row:
    print(f"{row.tool}, {row.task}: {row.calls} calls, {row.seconds:.1f} s", file=sys.stderr)
    return row


def table(rows: Sequence[Row]) -> str:
    head = ("task", "nodes", "tool", "calls", "seconds", "left")
    body = [
        (r.task, str(r.nodes), r.tool, str(r.calls), f"{r.seconds:.2f}",
         "-" if r.left is None else str(r.left))
        for r in rows
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in [head, *body]
    ]
    notes = [f"{r.tool}, {r.task}: {r.note}" for r in rows if r.note]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def record(rows: Sequence[Row]) -> dict[str, object]:
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "machine": {
            "cpus": os.cpu_count(),
            "platform": f"{platform.system()} {platform.machine()}",
            "load": round(os.getloadavg()[0], 1),
        },
        "versions": {"python": platform.python_version(), "onnx": onnx.__version__},
        "rows": [dataclasses.asdict(row) for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
