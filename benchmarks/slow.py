"""Builders that take long: what several builds at a time save, and what they cost.

The planted engine sleeps before each build, so that the machine is free meanwhile; or it stands on
an engine that builds slowly by itself.

    python -m benchmarks.slow --seconds 2 --jobs 1 2 4
    python -m benchmarks.slow --engine inductor --engine-option device=cuda --name slow_inductor

Results go to ``benchmarks/results/``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from benchmarks.bench import machine, surroundings, warm
from benchmarks.cases import ROOT, generated
from benchmarks.measuring import measure
from debugtaps import parse_options

NODES = 100
SLOW = ROOT / "tests" / "support" / "slow_engine.py"


def main() -> int:
    """Runs every fault with every count of jobs; 1 where one of them named another operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a build sleeps")
    parser.add_argument("--engine", help="to plant faults in, in place of one that sleeps")
    parser.add_argument("--engine-option", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", default="slow", help="of the file of results")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        environment = surroundings(Path(home))
        warm(Path(home), environment, None)
        rows = list(measured(Path(home), environment, args))
    about = {"engine": args.engine or f"sleeps {args.seconds:g} s", "options": args.engine_option}
    record = {**about, "nodes": NODES, "machine": machine(), "rows": rows}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{args.name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print("| fault | builds at a time | builds | begun early in vain | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for row in rows:
        cells = (row["fault"], row["jobs"], row["builds"], row["idle"], f"{row['seconds']:.1f}")
        print(f"| {' | '.join(map(str, cells))} |")
    places = {fault: {tuple(r["named"]) for r in rows if r["fault"] == fault} for fault in FAULTS}
    return int(any(len(named) != 1 for named in places.values()))


def faults(names: list[str]) -> dict[str, dict[str, Any]]:
    """Returns a fault that a tap shows, one that taps heal, and a builder that refuses."""
    middle = len(names) // 2
    return {
        "a wrong value": {"kind": "value", "nodes": names[middle : middle + 1], "scale": 1.1},
        "a fusion that taps heal": {
            "kind": "fusion", "nodes": names[middle : middle + 4], "scale": 1.1,
        },
        "a build that is refused": {"kind": "build_error", "nodes": names[middle : middle + 1]},
    }  # fmt: skip


FAULTS = tuple(faults([""]))


def measured(
    home: Path, environment: dict[str, str], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yields a row for each fault and each count of jobs."""
    task = generated(home / "model", NODES)
    nodes = onnx.load(task.model).graph.node
    names = [node.name for node in nodes if node.op_type != "Constant"]
    for title, fault in faults(names).items():
        for jobs in args.jobs:
            out = home / f"{title.replace(' ', '-')}-{jobs}"
            options: dict[str, Any] = {"faults": [fault]}
            engine = "planted"
            if args.engine:
                options |= {
                    "inner": args.engine,
                    "inner_options": parse_options(args.engine_option),
                }
            else:
                options |= {"log": str(out.with_suffix(".log")), "seconds": args.seconds}
                engine = f"{SLOW}:Slow"
            told = [f"{k}={json.dumps(v)}" for k, v in options.items()]
            took = measure(
                [
                    sys.executable, "-m", "tapsect", "bisect", str(task.model),
                    "--inputs", str(task.inputs), "--engine", engine,
                    *(word for each in told for word in ("--engine-option", each)),
                    "--jobs", str(jobs), "--budget", "20", "--out", str(out), "--quiet",
                ],
                home, environment,
            )  # fmt: skip
            found = json.loads((out / "result.json").read_text("utf-8"))
            early = [re.match(r"(\d+) builds were begun early", note) for note in found["notes"]]
            cost = found["cost"]
            row = {
                "fault": title, "jobs": jobs, "named": found["culprit_nodes"],
                "builds": cost["builds"] + cost["reduce_builds"] + cost["fix_builds"],
                "idle": sum(int(m[1]) for m in early if m), "seconds": took.seconds,
            }  # fmt: skip
            print(row, file=sys.stderr)
            yield row


if __name__ == "__main__":
    sys.exit(main())
