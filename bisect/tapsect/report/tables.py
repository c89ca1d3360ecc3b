"""The tables of a report, each as rows of cells that a renderer has made harmless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tapsect.finding import Finding
from tapsect.report.content import Style
from tapsect.report.cures import effect, milliseconds
from tapsect.report.words import number

__all__ = ["Table", "facts", "fixes", "outputs", "plain", "trail"]


@dataclass(frozen=True, slots=True)
class Table:
    """A title, the words above the columns, and the rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __bool__(self) -> bool:
        """Returns whether there is any row."""
        return bool(self.rows)


def outputs(finding: Finding, style: Style, *, most: int = 1000) -> Table:
    """Returns the outputs in numbers; the failing ones first where not all fit."""
    held = sorted(finding.outputs, key=lambda o: not o.failing)[:most]
    kept = {id(o) for o in held}
    rows = tuple(
        (
            style.name(o.name), str(o.sample), "fails" if o.failing else "agrees",
            number(o.rel_rms), number(o.floor), number(o.max_abs), number(o.cosine),
        )
        for o in finding.outputs if id(o) in kept
    )  # fmt: skip
    head = ("output", "sample", "verdict", "error (rms)", "rounding", "largest", "cosine")
    return Table("Outputs in numbers", head, rows)


def trail(finding: Finding, style: Style, *, most: int = 1000) -> Table:
    """Returns the decisions of the flow, in order."""
    rows = tuple(
        (style.text(s.step), style.text(s.decision), style.text(s.why), str(s.builds))
        for s in finding.trail[:most]
    )
    return Table("How it was found", ("step", "decision", "why", "builds"), rows)


def fixes(finding: Finding, style: Style) -> Table:
    """Returns the changes that were tried, with what they did."""
    rows = tuple(
        (
            style.text(f.kind), style.name(f.setting), effect(f), number(f.error_before),
            number(f.error_after), milliseconds(f.latency_before), milliseconds(f.latency_after),
        )
        for f in finding.fixes
    )  # fmt: skip
    head = ("kind", "setting", "effect", "error before", "after", "latency before", "after")
    return Table("What avoids it", head, rows)


def facts(finding: Finding, style: Style) -> Table:
    """Returns who met where: tool, command, model, engine, reference and machine."""
    rows = [("tapsect", style.name(finding.tool_version))]
    if finding.command:
        rows.append(("command", style.name(" ".join(finding.command))))
    groups: Sequence[tuple[str, Mapping[str, object]]] = (
        ("model", finding.model),
        ("engine", finding.engine),
        ("reference", finding.reference),
        ("environment", finding.environment),
    )
    for group, held in groups:
        rows += [
            (style.text(f"{group} {key}"), style.name(plain(value))) for key, value in held.items()
        ]
    return Table("Environment", ("what", "value"), tuple(rows))


def plain(value: object) -> str:
    """Returns a fact as a person would write it.

    >>> plain({"onnx": "1.20", "numpy": "2.3"}), plain([])
    ('onnx 1.20, numpy 2.3', 'none')
    """
    return ", ".join(_pieces(value)) or "none"


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{key} {plain(item)}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from (plain(item) for item in value)
    else:
        yield str(value)
