"""``report.md``: the report for a bug tracker or a colleague."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tapsect.escape import code, md
from tapsect.finding import Finding
from tapsect.report.content import Style, number, sections

__all__ = ["render_markdown"]


def render_markdown(finding: Finding, *, folder: Path | None = None) -> str:
    """Returns the report as Markdown; names of the model show as they are, nothing is markup."""
    style = Style(name=code, text=md)
    parts = [f"# {finding.status.capitalize()}", md(finding.message)]
    for section in sections(finding, style, folder):
        body = section.lines[0] if len(section.lines) == 1 else _bullets(section.lines)
        parts.append(f"## {section.title}\n\n{body}")
    parts += _outputs_table(finding) + _trail(finding) + _facts(finding)
    return "\n\n".join(parts) + "\n"


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _outputs_table(finding: Finding) -> list[str]:
    if not finding.outputs:
        return []
    rows = [
        (
            code(o.name, table=True),
            str(o.sample),
            "fails" if o.failing else "agrees",
            number(o.rel_rms),
            number(o.floor),
            number(o.max_abs),
            number(o.cosine),
        )
        for o in finding.outputs
    ]
    head = ("output", "sample", "verdict", "error (rms)", "rounding", "largest", "cosine")
    return ["## Outputs in numbers\n\n" + _table(head, rows)]


def _trail(finding: Finding) -> list[str]:
    if not finding.trail:
        return []
    rows = [(md(s.step), md(s.decision), md(s.why), str(s.builds)) for s in finding.trail]
    return ["## How it was found\n\n" + _table(("step", "decision", "why", "builds"), rows)]


def _facts(finding: Finding) -> list[str]:
    rows = [("tapsect", code(finding.tool_version, table=True))]
    if finding.command:
        rows.append(("command", code(" ".join(finding.command), table=True)))
    groups: Sequence[tuple[str, Mapping[str, object]]] = (
        ("model", finding.model),
        ("engine", finding.engine),
        ("reference", finding.reference),
        ("environment", finding.environment),
    )
    for group, facts in groups:
        rows += [
            (md(f"{group} {key}"), code(_plain(value), table=True)) for key, value in facts.items()
        ]
    return ["## Environment\n\n" + _table(("what", "value"), rows)]


def _plain(value: object) -> str:
    """Returns a fact as a person would write it: ``onnx 1.20, numpy 2.3``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value) or "none"
    return str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
