"""A run's summary as people and machines read it: pure functions, and one that writes them all."""

from __future__ import annotations

from pathlib import Path

from debugtaps import write_json_atomic, write_text_atomic
from tapsect.triage.answers.bug import render_bug
from tapsect.triage.answers.digest import render_digest
from tapsect.triage.answers.junit import render_junit
from tapsect.triage.answers.page import render_page
from tapsect.triage.answers.plain import to_json
from tapsect.triage.answers.terminal import render_text
from tapsect.triage.history import History
from tapsect.triage.nightly import FINDINGS, RUNS
from tapsect.triage.summary import Summary

__all__ = ["render_text", "to_json", "write_answers"]


def write_answers(out: Path, summary: Summary, history: History) -> Path:
    """Returns the folder of a run after writing its answers, and the index of the suite anew.

    Args:
        out: The suite's folder of results.
        summary: What the run saw.
        history: Where the findings behind new faults are kept.
    """
    folder = out / RUNS / summary.run.id
    folder.mkdir(parents=True, exist_ok=True)
    write_json_atomic(folder / "summary.json", to_json(summary))
    write_text_atomic(folder / "junit.xml", render_junit(summary))
    write_text_atomic(folder / "digest.md", render_digest(summary))
    linked = {
        row.folder: next(
            (f"{row.folder}/{name}" for name in ("report.html", "report.md")
             if (out / FINDINGS / row.folder / name).is_file()), "",
        )
        for row in summary.rows if row.folder
    }  # fmt: skip
    for group in summary.groups:
        if group.fresh and group.rows:
            (folder / "bugs").mkdir(exist_ok=True)
            result = history.result(group.rows[0].finding)
            text = render_bug(group, result, root=f"../../../{FINDINGS}/")
            write_text_atomic(folder / "bugs" / f"{group.digest}.md", text)
    for path, root in ((folder / "index.html", "../../"), (out / "index.html", "")):
        write_text_atomic(path, render_page(summary, linked, root=root))
    return folder
