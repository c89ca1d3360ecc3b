"""Keeps what a run of ``benchmarks.gpu`` found, and writes the tables of ``docs/verified.md``.

    python -m benchmarks.gpu_table gpu.json --name second

takes the rows of ``gpu.json`` into ``results/gpu.json``, in place of an earlier run of that name,
and writes the tables anew, between two marks in the document.  Without a file the tables alone
are written.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "results" / "gpu.json"
DOCUMENT = ROOT / "docs" / "verified.md"
MARKS = ("<!-- tables: python -m benchmarks.gpu_table -->\n", "<!-- end of tables -->\n")

SETTINGS = ("fp32", "tf32", "bf16", "fp16", "autocast-bf16", "autocast-fp16")
TITLES = {
    "suite": "conformance suite", "ch_PP-OCRv4_rec_infer": "PP-OCRv4 recognition",
    "standard_v3_3": "magika standard_v3_3", "torch": "torch eager", "ort": "ONNX Runtime CUDA",
}  # fmt: skip
FIELDS = (
    "right", "status", "cause", "effective", "culprits", "message", "builds", "seconds", "checks",
    "not passed", "skipped", "error",
)  # fmt: skip


def compact(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns of a run what is worth keeping: the machine, and a short row for each case."""
    rows = sorted(body["rows"], key=lambda row: str(row["case"]))
    kept = {
        row["case"]: {f: row[f] for f in FIELDS if row.get(f) not in (None, [])} for row in rows
    }
    machine = {k: str(v).strip() for k, v in body["machine"].items() if v is not None}
    return {"device": body["device"], "machine": machine, "rows": kept}


def cell(row: Mapping[str, Any] | None) -> str:
    """Returns what a table says of a case."""
    if row is None:
        return "–"
    if "skipped" in row:
        return ""
    if "checks" in row:
        answer = f"{row['checks'] - len(row.get('not passed', ()))} of {row['checks']}"
    else:
        answer = row.get("cause") or row.get("status") or "error"
    if not row["right"]:
        return f"**{answer}**"
    return f"{answer}, {row['effective']}" if answer == "precision_limit" else str(answer)


def table(run: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a run's table."""
    rows = run["rows"]
    settings = [s for s in SETTINGS if any(name.endswith(f"/{s}") for name in rows)]
    yield f"| case | {' | '.join(settings)} |"
    yield "|---" * (len(settings) + 1) + "|"
    for pair in dict.fromkeys(name.rpartition("/")[0] for name in rows):
        title = ", ".join(TITLES.get(part, part) for part in pair.split("/"))
        yield f"| {title} | {' | '.join(cell(rows.get(f'{pair}/{s}')) for s in settings)} |"


def section(name: str, run: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines that tell of a run."""
    machine = run["machine"]
    told = ("torch", "triton", "onnx2fx", "onnxruntime-gpu", "onnx", "numpy", "python")
    versions = ", ".join(f"{each} {machine[each]}" for each in told if each in machine)
    right = sum(row["right"] is True for row in run["rows"].values())
    yield f"### The {name} run"
    yield ""
    gpu = str(machine.get("gpu") or run["device"]).replace(", ", ", driver ")
    yield f"{gpu}; {versions}."
    yield f"{right} of {len(run['rows'])} cases are right; those that are not are in bold."
    yield ""
    yield from table(run)
    yield ""


def written(document: str, kept: Mapping[str, Any]) -> str:
    """Returns the document with the tables of all runs between its marks."""
    before, rest = document.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    lines = "\n".join(line for name, run in kept.items() for line in section(name, run))
    return f"{before}{MARKS[0]}\n{lines}\n{MARKS[1]}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--name", default="first", help="of the run, as in 'the first run'")
    given = parser.parse_args(argv)
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if given.file is not None:
        kept[given.name] = compact(json.loads(given.file.read_text()))
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    DOCUMENT.write_text(written(DOCUMENT.read_text(), kept))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
