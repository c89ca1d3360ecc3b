"""``report.md``: a bug report in the shape that an engine's maintainers ask for.

What is wrong, what was expected and seen, how to run it without this tool, versions and device;
then what else was found.  Public trackers take no more than 60 kB of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tapsect.escape import clean, code, md
from tapsect.finding import Finding
from tapsect.report import tables
from tapsect.report.content import Section, Style, sections
from tapsect.report.ownrun import CaseFacts, Snippet, snippets
from tapsect.report.tables import plain
from tapsect.report.words import FAILURES

__all__ = ["MOST_BYTES", "render_markdown"]

MOST_BYTES = 60_000
LOG_LINES = 40
_FIRST = ("Where", "How sure", "Cause")
_TOLD = {*_FIRST, "Outputs", "It says"}


def render_markdown(
    finding: Finding, *, folder: Path | None = None, case: CaseFacts | None = None
) -> str:
    """Returns the report as Markdown; names of the model show as they are, nothing is markup.

    Args:
        finding: The result.
        folder: Where the result lies, for the commands that are proposed.
        case: What is known of the case, for commands that need no tapsect.
    """
    rows = 100
    while True:
        text = _rendered(finding, folder, case, rows)
        if len(text.encode()) < MOST_BYTES or rows == 0:
            return text
        rows //= 2


def _rendered(finding: Finding, folder: Path | None, case: CaseFacts | None, rows: int) -> str:
    if rows < 10:  # names of nodes by the hundred: the first ones tell where to look
        finding = replace(
            finding, also=finding.also[:rows], notes=finding.notes[:rows],
            contributors=finding.contributors[:rows],
        )  # fmt: skip
    style = Style(name=code, text=md)
    said = {s.title: s for s in sections(finding, style, folder)}
    parts = [f"# {_title(finding)}", md(finding.message)]
    if finding.status != "agrees":
        parts += [_expected(finding, said), *_reproduce(finding, case), *_log(finding)]
    parts += [_section(said[title]) for title in _FIRST if title in said]
    parts.append(_versions(finding))
    skip = _TOLD if finding.status != "agrees" else set(_FIRST)
    parts += [_section(s) for title, s in said.items() if title not in skip]
    in_table = Style(name=lambda text: code(text, table=True), text=md)
    parts += [
        f"## {table.title}\n\n{_table(table.head, table.rows)}"
        for table in (
            tables.fixes(finding, in_table), tables.outputs(finding, in_table, most=rows),
            tables.trail(finding, in_table, most=rows), tables.facts(finding, in_table),
        ) if table
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _title(finding: Finding) -> str:
    """Returns one line to be found by: engine and version, failure, operators."""
    if finding.status == "agrees":
        return "Agrees"
    failure = FAILURES.get(finding.failure or "", "a difference that was not explained")
    place = finding.first_divergence
    ops = finding.signature.get("ops")
    held = "+".join(map(str, ops)) if isinstance(ops, list) and ops and len(ops) < 6 else ""
    operator = held or (place.op_type if place is not None else "")
    where = f" ({md(operator)})" if operator else ""
    return f"{_engine(finding)}: {md(failure)}{where}"


def _engine(finding: Finding) -> str:
    described = finding.engine.get("describe")
    told = described if isinstance(described, dict) else {}
    name = str(told.get("name") or finding.engine.get("spec") or "the engine")
    versions = told.get("versions")
    version = versions.get(name) if isinstance(versions, dict) else None
    return md(f"{name} {version}" if version else name)


def _expected(finding: Finding, said: dict[str, Section]) -> str:
    reference = md(str(finding.reference.get("spec") or "the reference"))
    if finding.failure in ("build_error", "crash", "timeout", "run_error", "out_of_memory"):
        expected = "Expected: the engine builds and runs the model."
    else:
        expected = f"Expected: the answer of {reference}, within rounding."
    lines = [expected]
    for title in ("Outputs", "It says"):
        lines += [f"Seen: {line}" for line in (said[title].lines if title in said else ())]
    return "## What was expected and what was seen\n\n" + _bullets(lines)


def _reproduce(finding: Finding, case: CaseFacts | None) -> list[str]:
    if finding.minimal is None:
        return []
    nodes = finding.minimal.nodes
    plural = "s" if len(nodes) != 1 else ""
    ops = finding.signature.get("ops")
    kinds = f" ({code(', '.join(map(str, ops)))})" if isinstance(ops, list) and ops else ""
    lead = (
        f"Attached is the folder `case/`: `model.onnx`, {len(nodes)} node{plural}{kinds};"
        " `inputs.npz`, what it is fed; `expected.npz`, what it should answer. In that folder:"
    )
    check = "```sh\npython check.py   # exit status 1 while the bug is there\n```"
    parts = ["## How to reproduce", lead, check]
    return parts + [_snippet(each) for each in snippets(finding, case)]


def _snippet(snippet: Snippet) -> str:
    text = "\n".join(clean(line, limit=4000) for line in snippet.text.split("\n"))
    return f"With {snippet.title}:\n\n{_fenced(text, snippet.language)}"


def _fenced(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _log(finding: Finding) -> list[str]:
    lines = [clean(line, limit=300) for line in finding.said.splitlines() if line.strip()]
    if not lines:
        return []
    left = len(lines) - LOG_LINES
    if left > 0:
        half = LOG_LINES // 2
        lines = [*lines[:half], f"[{left} lines left out]", *lines[-half:]]
    return ["## Log, trimmed\n\n" + _fenced("\n".join(lines))]


def _versions(finding: Finding) -> str:
    """Returns the environment as issue forms ask for it."""
    machine, described = finding.environment, finding.engine.get("describe")
    told = described if isinstance(described, dict) else {}
    gpus = machine.get("gpus")
    rows = {
        "Engine": plain(told.get("versions") or finding.engine.get("spec") or "unknown"),
        "Options": plain(finding.engine.get("options") or {}),
        "Device": plain(told.get("device") or "unknown"),
        "GPU, driver, memory": plain(gpus) if gpus else "none seen",
        "OS": plain(machine.get("platform") or "unknown"),
        "CPU": plain(machine.get("cpu") or "unknown"),
        "Python": plain(told.get("python") or machine.get("python") or "unknown"),
        "Packages": plain(machine.get("packages") or {}),
    }
    body = _table(("", ""), [(name, code(text, table=True)) for name, text in rows.items()])
    return f"## Versions\n\n{body}"


def _section(section: Section) -> str:
    body = section.lines[0] if len(section.lines) == 1 else _bullets(section.lines)
    return f"## {section.title}\n\n{body}"


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
