"""One fault, the ways to find it: ``tapsect bisect``, Polygraphy's, and what no tool can save.

Measures each as whole processes on the same cases: engine builds and runs, wall seconds, peak
memory of the process tree, whether the operator at fault was named, and how many operators its
smallest model has left.

    python -m benchmarks --nodes 100 600 3000 10000 --polygraphy-python PATH

The other tool is skipped when no interpreter with it is given (option, or the environment
variable ``TAPSECT_POLYGRAPHY_PYTHON``).  Results go to ``benchmarks/results/``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnxruntime as ort

from benchmarks.cases import ROOT, Task, generated, large, published, real
from benchmarks.tools import Row, by_hand, by_marking_all, by_polygraphy, by_tapsect

__all__ = ["main"]

LIMITS = {100: 2.0, 600: 2.0, 3000: 8.0, 10000: 40.0}
"""Seconds that the design allows, by nodes of the generated models."""


def main() -> int:
    """Runs every case with every tool; 1 where tapsect was wrong, or late at its own limits."""
    args = arguments()
    rows: list[Row] = []
    path = args.out / f"{args.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.tmp) as home:
        environment = surroundings(Path(home))
        warm(Path(home), environment, args.polygraphy_python)
        for task in tasks(args, Path(home)):
            for attempt in range(args.repeat):
                rows += measured(task, attempt, environment, args)
            shutil.rmtree(task.folder)
            path.write_text(json.dumps(record(rows), indent=1) + "\n", "utf-8")
    print(f"\n{table(rows)}\n\nwritten: {os.path.relpath(path)}")
    own = [row for row in rows if row.tool == "tapsect"]
    late = [row for row in own if row.case == "transformer" and row.seconds > limit(row.nodes)]
    return 1 if late or not all(row.located for row in own) else 0


def arguments() -> argparse.Namespace:
    """Returns the words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 600, 3000, 10000])
    parser.add_argument("--large", type=float, nargs="*", default=[], metavar="GIB")
    parser.add_argument("--no-real", action="store_true", help="leave out the models not generated")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--name", default="bisect", help="of the file of results")
    parser.add_argument("--tmp", type=Path, help="where models are generated")
    parser.add_argument(
        "--polygraphy-python",
        default=os.environ.get("TAPSECT_POLYGRAPHY_PYTHON"),
        help="an interpreter that has polygraphy, onnxruntime and onnx_graphsurgeon",
    )
    return parser.parse_args()


def surroundings(home: Path) -> dict[str, str]:
    """Returns the environment of both tools: this checkout, and a place for its bytecode."""
    roots = (str(ROOT / "taps"), str(ROOT / "bisect"), os.environ.get("PYTHONPATH", ""))
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, roots)),
        "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def warm(home: Path, environment: dict[str, str], polygraphy: str | None) -> None:
    """Runs each tool once, so that both find their bytecode and the disk's pages in memory."""
    task = generated(home / "warm", 30)
    by_tapsect(task, 0, environment)
    if polygraphy:
        for lean in (False, True):
            by_polygraphy(task, 0, environment, polygraphy, lean=lean)
        by_marking_all(task, 0, environment, polygraphy)


def tasks(args: argparse.Namespace, home: Path) -> Iterator[Task]:
    """Yields the cases, each made when it is its turn."""
    for nodes in args.nodes:
        yield generated(home / f"transformer{nodes}", nodes)
    if not args.no_real:
        yield published(home / "published")
        yield real(home / "real")
    for gibibytes in args.large:
        yield large(home / f"large{gibibytes}", gibibytes)


def measured(
    task: Task, attempt: int, environment: dict[str, str], args: argparse.Namespace
) -> Iterator[Row]:
    """Yields the rows of one case; what does not fit a message is beyond the other tool's check."""
    yield show(by_tapsect(task, attempt, environment))
    if list(task.folder.glob("*.data")):
        return
    yield show(by_hand(task, environment))
    if args.polygraphy_python:
        for lean in (False, True):
            yield show(by_polygraphy(task, attempt, environment, args.polygraphy_python, lean=lean))
        yield show(by_marking_all(task, attempt, environment, args.polygraphy_python))


def limit(nodes: int) -> float:
    """Returns the seconds allowed for a model of about ``nodes`` nodes."""
    return next((s for n, s in sorted(LIMITS.items()) if nodes <= 1.1 * n), float("inf"))


def show(row: Row) -> Row:
    """Tells of a row at once."""
    print(f"{row.tool}, {row.case}, {row.nodes} nodes: {row.seconds:.2f} s", file=sys.stderr)
    return row


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a markdown table, and their notes."""
    head = [
        "case", "nodes", "tool", "builds", "runs", "built", "seconds", "peak MB", "right", "left",
    ]  # fmt: skip
    body = [
        [
            row.case, f"{row.nodes:,}", row.tool, str(row.builds), str(row.runs),
            f"{row.built:,}", f"{row.seconds:.2f}", f"{row.peak_mb:,.0f}",
            "yes" if row.located else "no", "-" if row.nodes_left is None else str(row.nodes_left),
        ]
        for row in rows
    ]  # fmt: skip
    lines = [head, ["---"] * len(head), *body]
    notes = [f"- {row.tool}, {row.case}, {row.nodes:,} nodes: {row.note}" for row in rows]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes])


def machine() -> dict[str, object]:
    """Returns where it was measured, and what else went on there."""
    return {
        "cpus": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "load_at_the_end": [round(each, 1) for each in os.getloadavg()],
    }


def record(rows: Sequence[Row]) -> dict[str, object]:
    """Returns the run: when, where, with what, and its rows."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "machine": machine(),
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
