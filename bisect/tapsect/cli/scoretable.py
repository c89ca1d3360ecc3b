"""The table of a verification: a rich one on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from tapsect.escape import clean

if TYPE_CHECKING:
    from rich.table import Table

    from debugtaps import Compared, Row, Verification

__all__ = ["closing", "plain_table", "rich_table"]

_HEADS = ("tensor", "MAPE %", "MSE", "max diff", "cosine", "ULP", "p99", "SNR dB")
_MARK = ">"
_NAMES_BESIDE = 58  # what the other columns take of a terminal


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: a row of one build."""

    build: str
    name: str
    shown: str
    marked: bool
    cells: tuple[str, ...]
    note: str


def plain_table(verification: Verification, *, verbose: bool = False) -> str:
    """Returns the table as plain text; names stand in full, whatever the width."""
    several = len(verification.builds) > 1
    table = [["", *_heads(several=several)]]
    lines = list(_lines(verification, verbose=verbose))
    for line in lines:
        mark = _MARK if line.marked else ""
        table.append([mark, line.name, *([line.build] if several else []), *line.cells])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    rows = (_aligned(row, widths) for row in table)
    return "\n".join([*_legend(verification), *rows, *_notes(lines, several=several)])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return " ".join([*left, *right]).rstrip()


def rich_table(verification: Verification, *, width: int, verbose: bool = False) -> Table:
    """Returns the table for a terminal of ``width`` columns; long names are folded."""
    from rich.table import Table
    from rich.text import Text

    several = len(verification.builds) > 1
    lines = list(_lines(verification, verbose=verbose))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", caption_justify="left")
    table.add_column("", width=1)
    for place, head in enumerate(_heads(several=several)):
        if place:
            table.add_column(head, justify="right", no_wrap=True)
        else:
            table.add_column(head, overflow="fold", max_width=max(12, width - _NAMES_BESIDE))
    for line in lines:
        beside = [Text(line.build)] if several else []
        cells = [Text(cell) for cell in line.cells]
        style = "bold red" if line.marked else ""
        mark = Text(_MARK if line.marked else "")
        table.add_row(mark, Text(line.shown), *beside, *cells, style=style)
    legend, notes = _legend(verification), _notes(lines, several=several)
    table.title = Text("\n".join(legend)) if legend else None
    table.title_justify = "left"
    table.caption = Text("\n".join(notes)) if notes else None
    return table


def closing(build: Compared) -> str:
    """Returns in one sentence where a build falls off."""
    count = sum(row.paired for row in build.rows)
    tensors = "1 tensor" if count == 1 else f"{count} tensors"
    row = build.falls_off
    if row is None:
        return f"[{clean(build.name)}]: {tensors} compared, none falls off"
    what = {"output": "output", "manual": "tap", "plugin": "plugin tap"}.get(row.kind, "tensor")
    return f"[{clean(build.name)}]: {tensors} compared; first falls off: {what} {clean(row.name)}"


def _heads(*, several: bool) -> tuple[str, ...]:
    return (_HEADS[0], "", *_HEADS[1:]) if several else _HEADS


def _legend(verification: Verification) -> list[str]:
    """Returns which letter stands for which build; one build needs none."""
    if len(verification.builds) == 1:
        return []
    pairs = zip(_letters(), verification.builds, strict=False)
    return [f"{letter}  {clean(build.name)}" for letter, build in pairs]


def _letters() -> Iterator[str]:
    yield from ascii_uppercase
    for first in _letters():
        yield from (first + second for second in ascii_uppercase)


def _lines(verification: Verification, *, verbose: bool) -> Iterator[_Line]:
    """Gives the lines in model order, those of one tensor together."""
    names = dict.fromkeys(row.name for build in verification.builds for row in build.rows)
    order = {name: place for place, name in enumerate(names)}
    found = [
        (order[row.name], number, letter, row)
        for number, (letter, build) in enumerate(zip(_letters(), verification.builds, strict=False))
        for row in build.rows
        if verbose or row.paired
    ]
    shown = ""
    for _, _, letter, row in sorted(found, key=lambda each: each[:2]):
        name = clean(row.name)
        first = "" if name == shown else name
        yield _Line(letter, name, first, row.falls_off, _cells(row), row.note())
        shown = name


def _notes(lines: Sequence[_Line], *, several: bool) -> list[str]:
    """Returns what must be said beside the numbers, one line a row."""
    return [
        f"{f'{line.build}  ' if several else ''}{line.name}: {clean(line.note)}"
        for line in lines
        if line.note
    ]


def _cells(row: Row) -> tuple[str, ...]:
    scores = [_number(row.score(key)) for key in ("mape", "mse", "max_diff")]
    cosine, ulp, snr = row.score("cosine"), row.score("ulp"), row.score("snr_db")
    return (
        *scores,
        "-" if cosine is None else f"{cosine:.6f}"[:8],
        _count(ulp),
        _count(row.metrics.ulp_p99 if row.metrics.reason != "nonfinite" else ulp),
        "-" if snr is None else f"{snr:.1f}",
    )


def _number(value: float | None) -> str:
    """Returns three digits in at most eight characters."""
    if value is None:
        return "-"
    text = f"{value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e+")


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return str(int(value)) if math.isfinite(value) and value < 1e6 else _number(float(value))
