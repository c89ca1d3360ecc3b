"""The tables of ``docs/verified.md`` are those that the kept results of a run give."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GPU = runpy.run_path(str(ROOT / "benchmarks" / "gpu_table.py"))


def test_the_tables_of_the_gpu_runs_are_those_of_their_results() -> None:
    document = GPU["DOCUMENT"].read_text()
    assert GPU["written"](document, json.loads(GPU["KEPT"].read_text())) == document


def test_a_cell_says_right_from_wrong_and_leaves_out_what_did_not_run() -> None:
    row = {"right": True, "status": "diverges", "cause": "precision_limit", "effective": "bf16"}
    assert GPU["cell"](row) == "precision_limit, bf16"
    assert GPU["cell"]({**row, "right": False, "cause": "engine_defect"}) == "**engine_defect**"
    assert GPU["cell"]({"right": False, "checks": 13, "not passed": {"a": "failed"}}) == (
        "**12 of 13**"
    )
    assert GPU["cell"]({"right": True, "checks": 13, "not passed": {"a": "skipped"}}) == "12 of 13"
    assert GPU["cell"]({"right": False, "error": "exit 1"}) == "**error**"
    assert GPU["cell"]({"right": None, "skipped": "no time was left"}) == ""
    assert GPU["cell"](None) == "–"
