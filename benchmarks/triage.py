"""A night on which nothing changed: how long a suite of 1,000 entries takes to say so.

    python -m benchmarks.triage

Models and engines are real, and so is the one finding that stands for all of them in the history;
what is timed is the whole process of ``tapsect triage run``: the suite is read, every model and
its inputs are digested, every engine is asked for its version, all findings are found in the
history, and every answer is written.  Results go to ``benchmarks/results/triage.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.extend(str(ROOT / each) for each in ("taps", "bisect", "tests"))

import tapsect  # noqa: E402
from support.nights import tiny  # noqa: E402
from tapsect.triage.database import Database  # noqa: E402
from tapsect.triage.history import History  # noqa: E402
from tapsect.triage.job import Done, Job  # noqa: E402
from tapsect.triage.nightly import Night  # noqa: E402
from tapsect.triage.plan import read_plan  # noqa: E402

LIMIT = 5.0
LEVELS = ("disable", "basic", "extended", "all")


class Canned:
    """Answers every job with one finding."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        return (Done(job.key, self.result) for job in jobs)

    def close(self) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        suite = prepare(folder, args.entries)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = [timed(suite, args.entries) for _ in range(args.repeat)]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    body = {
        "entries": args.entries, "seconds": [round(s, 2) for s in seconds], "limit": LIMIT,
        "processor_seconds": round(spent / args.repeat, 2),
        "machine": {"cores": os.cpu_count(), "processor": platform.processor() or
                    platform.machine(), "python": platform.python_version()},
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "triage.json").write_text(json.dumps(body, indent=1) + "\n", "utf-8")
    print(json.dumps(body))
    return int(min(seconds) > LIMIT)


def prepare(folder: Path, entries: int) -> Path:
    """Returns a suite whose every entry is in the history."""
    count = entries // len(LEVELS)
    for number in range(count):
        tiny(f"m{number}", seed=number).save(folder / f"m{number}")
    engines = [
        {"name": level, "spec": "ort", "options": {"graph_optimization_level": level}}
        for level in LEVELS
    ]
    models = [
        {"path": f"m{n}/model.onnx", "name": f"m{n}", "inputs": [f"m{n}/inputs.npz"]}
        for n in range(count)
    ]
    path = folder / "suite.yaml"
    path.write_text(json.dumps({"engines": engines, "models": models}, indent=1), "utf-8")
    finding = tapsect.bisect(
        folder / "m0/model.onnx", inputs=[folder / "m0/inputs.npz"], out=folder / "one"
    )
    plan = read_plan(path)
    with Database("history.sqlite", folder) as database:
        night = Night(plan, History(database), folder / "triage")
        night.run(plan.entries, Canned(finding.to_json()))
    return path


def timed(suite: Path, entries: int) -> float:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tapsect", "triage", "run", str(suite)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds = time.monotonic() - start
    assert f"0 looks, 0 s; {entries} known from before" in done.stdout, done.stdout
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
