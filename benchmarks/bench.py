"""One fault, two tools: ``tapsect bisect`` against ``polygraphy debug reduce``.

Generates transformers with one wrong node in the middle and measures each tool as a whole
process: engine builds, wall seconds, peak memory of the process tree, whether it named the node,
and how many nodes its reduced model has left.

    python -m benchmarks --nodes 100 600 3000 --polygraphy-python PATH

The other tool is skipped when no interpreter with it is given (option, or the environment
variable ``TAPSECT_POLYGRAPHY_PYTHON``).  Results go to ``benchmarks/results/``.
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
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

ROOT = Path(__file__).resolve().parents[1]
sys.path.extend(str(ROOT / each) for each in ("taps", "bisect", "tests"))

from debugtaps.store import write_npz  # noqa: E402
from support.zoo import Built, transformer_nodes  # noqa: E402

CHECK = Path(__file__).with_name("check_candidate.py")
SCALE = 1.05
LIMITS = {100: 2.0, 600: 2.0, 3000: 8.0, 10000: 40.0}
"""Seconds that the design allows, by nodes."""


@dataclass(frozen=True)
class Row:
    """One tool on one model."""

    tool: str
    nodes: int
    builds: int
    seconds: float
    peak_mb: float
    located: bool
    nodes_left: int | None
    note: str = ""


@dataclass(frozen=True)
class Task:
    """A model with a fault, on disk."""

    folder: Path
    model: Path
    inputs: Path
    nodes: int
    node: str


def main() -> int:
    args = arguments()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as home:
        for nodes in args.nodes:
            task = prepare(Path(home) / str(nodes), nodes)
            for attempt in range(args.repeat):
                rows.append(show(bench_tapsect(task, attempt)))
                if args.polygraphy_python:
                    rows.append(show(bench_polygraphy(task, attempt, args.polygraphy_python)))
    path = args.out / "bisect.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record(rows), indent=1) + "\n", "utf-8")
    print(f"\n{table(rows)}\n\nwritten: {os.path.relpath(path)}")
    late = [row for row in rows if row.tool == "tapsect" and row.seconds > limit(row.nodes)]
    wrong = [row for row in rows if row.tool == "tapsect" and not row.located]
    return 1 if late or wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 600, 3000])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument(
        "--polygraphy-python",
        default=os.environ.get("TAPSECT_POLYGRAPHY_PYTHON"),
        help="an interpreter that has polygraphy, onnxruntime and onnx_graphsurgeon",
    )
    return parser.parse_args()


def limit(nodes: int) -> float:
    """Returns the seconds allowed for a model of about ``nodes`` nodes."""
    return next((s for n, s in sorted(LIMITS.items()) if nodes <= 1.1 * n), float("inf"))


def prepare(folder: Path, nodes: int) -> Task:
    built = transformer_nodes(nodes)
    model, inputs = built.save(folder)
    products = [n.name for n in built.model.graph.node if n.op_type == "MatMul" and "mlp" in n.name]
    node = products[len(products) // 2]
    golden = {**built.feeds, **every_tensor(built)}
    write_npz(folder / "golden.npz", golden)
    return Task(folder, model, inputs, len(built.names), node)


def every_tensor(built: Built) -> dict[str, np.ndarray]:
    """Returns the golden values of all tensors (reference: optimisation off)."""
    model = onnx.ModelProto()
    model.CopyFrom(built.model)
    have = {o.name for o in model.graph.output}
    model.graph.output.extend(i for i in model.graph.value_info if i.name not in have)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, built.feeds), strict=True))


def bench_tapsect(task: Task, attempt: int) -> Row:
    out = task.folder / f"tapsect{attempt}"
    fault = json.dumps([{"kind": "value", "nodes": [task.node], "scale": SCALE}])
    command = [
        sys.executable, "-m", "tapsect", "bisect", str(task.model), "--inputs", str(task.inputs),
        "--engine", "planted", "--engine-option", f"faults={fault}", "--out", str(out), "--quiet",
    ]  # fmt: skip
    code, seconds, peak, said = measure(command, task.folder)
    result = out / "result.json"
    if not result.is_file():
        return Row("tapsect", task.nodes, 0, seconds, peak, False, None, f"exit {code}: {said}")
    found = json.loads(result.read_text("utf-8"))
    minimal, cost = found["minimal"], found["cost"]
    return Row(
        "tapsect",
        task.nodes,
        cost["builds"] + cost["reduce_builds"] + cost["fix_builds"],
        seconds,
        peak,
        found["culprit_nodes"] == [task.node],
        len(minimal["nodes"]) if minimal else None,
        f"{cost['builds']} to locate, {cost['reduce_builds']} to reduce, {found['cause']}",
    )


def bench_polygraphy(task: Task, attempt: int, python: str) -> Row:
    folder = task.folder / f"polygraphy{attempt}"
    folder.mkdir()
    reduced, counter, loader = folder / "reduced.onnx", folder / "checks", folder / "data.py"
    loader.write_text(
        "import numpy as np\n"
        "def load_data():\n"
        f"    with np.load({str(task.inputs)!r}) as feeds:\n"
        "        yield dict(feeds)\n"
    )
    command = [
        python, "-m", "polygraphy", "debug", "reduce", str(task.model), "-o", str(reduced),
        "--mode", "bisect", "--data-loader-script", str(loader), "--silent",
        "--check", python, str(CHECK), "polygraphy_debug.onnx",
        str(task.folder / "golden.npz"), task.node, str(SCALE), str(counter),
    ]  # fmt: skip
    if subprocess.run([python, "-c", "import polygraphy.__main__"], capture_output=True).returncode:
        command[:3] = [str(Path(python).with_name("polygraphy"))]
    code, seconds, peak, said = measure(command, folder)
    builds = len(counter.read_text().splitlines()) if counter.is_file() else 0
    if not reduced.is_file():
        return Row("polygraphy", task.nodes, builds, seconds, peak, False, None, f"{code}: {said}")
    left = [node.name for node in onnx.load(reduced).graph.node]
    note = "tolerance and golden values of all tensors made by hand"
    return Row("polygraphy", task.nodes, builds, seconds, peak, task.node in left, len(left), note)


def measure(command: Sequence[str], folder: Path) -> tuple[int, float, float, str]:
    """Runs a command; returns exit code, seconds, peak MB of its process tree, last line said."""
    roots = (str(ROOT / "taps"), str(ROOT / "bisect"), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots))}
    start = time.perf_counter()
    with (folder / "said.txt").open("w+") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT
        )
        peak = Peak(process.pid)
        code = process.wait()
        seconds = time.perf_counter() - start
        peak.stop()
        said.seek(0)
        last = (said.read().strip().splitlines() or [""])[-1]
    return code, seconds, peak.megabytes, last


class Peak:
    """Watches the resident memory of a process and its descendants (Linux; elsewhere 0)."""

    def __init__(self, pid: int, interval: float = 0.03) -> None:
        self.megabytes = 0.0
        self._pid = pid
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            self.megabytes = max(self.megabytes, sum(map(resident, tree(self._pid))))


def tree(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{task}/children").read_text()
                waiting.extend(map(int, children.split()))
        except OSError:  # it ended meanwhile, or this is not Linux
            continue
    return found


def resident(pid: int) -> float:
    """Returns the resident megabytes of one process; shared pages count in each."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def show(row: Row) -> Row:
    print(f"{row.tool} on {row.nodes} nodes: {row.seconds:.2f} s", file=sys.stderr)
    return row


def table(rows: Sequence[Row]) -> str:
    head = ("tool", "nodes", "builds", "seconds", "peak MB", "right?", "left")
    body = [
        (
            row.tool,
            str(row.nodes),
            str(row.builds),
            f"{row.seconds:.2f}",
            f"{row.peak_mb:.0f}",
            "yes" if row.located else "no",
            "-" if row.nodes_left is None else str(row.nodes_left),
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True))
        for line in [head, *body]
    ]
    notes = [f"{row.tool}, {row.nodes} nodes: {row.note}" for row in rows if row.note]
    return "\n".join([*lines, "", *notes])


def record(rows: Sequence[Row]) -> dict[str, object]:
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "machine": {
            "cpus": os.cpu_count(),
            "platform": f"{platform.system()} {platform.machine()}",
        },
        "versions": {
            "python": platform.python_version(),
            "onnxruntime": ort.__version__,
            "onnx": onnx.__version__,
        },
        "limits": LIMITS,
        "rows": [dataclasses.asdict(row) for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
