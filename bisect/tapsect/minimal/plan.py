"""What the user of ``tapsect reduce`` asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from debugtaps import UsageError
from tapsect.checks import Artifacts, Ask, CommandLine
from tapsect.diagnose.given import Options
from tapsect.diagnose.workers import Workers
from tapsect.reduction import BY_BISECTION, BY_STEPS, TABLE, Confirm, Pass
from tapsect.simplify import DEFAULT_THRESHOLD, ON_REQUEST, table

__all__ = ["MODES", "Chosen", "Plan", "choose", "passes_table"]

Mode = Literal["bisect", "linear", "full"]
MODES = ("bisect", "linear", "full")
GROUPS = ("nodes", "model")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for; see ``tapsect reduce --help``.

    Attributes:
        options: Model, inputs, engine and reference, as ``tapsect bisect`` has them.
        output: Where the reduced model is written.
        line: The check command; without it and without ``ask`` the engine is checked.
        ask: Asks a person.
        mode: Which search.
        passes: Names of passes, or the groups ``nodes`` and ``model``; all of the mode if empty.
        golden: Whether inputs of parts are recorded once, or drawn for each.
        keep_inputs: Whether the model's inputs stay as they are.
        keep_outputs: Whether its outputs do.
        fold_threshold: Bytes that a folded constant may have.
        confirm: How often the end must fail; given, the check may be flaky.
        jobs: Checks at a time.
        min_good: Where the nearest passing model is written.
        artifacts: Files of the check to sort.
        begun: Workers of engine and reference that load already.
    """

    options: Options
    output: Path = Path("reduced.onnx")
    line: CommandLine | None = None
    ask: Ask | None = None
    mode: Mode = "full"
    passes: tuple[str, ...] = ()
    golden: Literal["once", "each"] = "once"
    keep_inputs: bool = False
    keep_outputs: bool = False
    fold_threshold: int = DEFAULT_THRESHOLD
    confirm: Confirm | None = None
    jobs: int = 1
    min_good: Path | None = None
    artifacts: Artifacts | None = None
    begun: Workers | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The passes of one reduction: over parts of the graph, then over the small model."""

    parts: tuple[Pass, ...]
    models: tuple[Pass, ...] = field(default=())


def choose(plan: Plan) -> Chosen:
    """Returns the passes that a plan asks for, in the order of the tables.

    Raises:
        UsageError: There is no such pass; the nearest name is offered.
    """
    parts = {"bisect": BY_BISECTION, "linear": BY_STEPS, "full": TABLE}[plan.mode]
    models = table(plan.fold_threshold)
    if plan.mode != "full" and not plan.passes:
        return Chosen(parts)
    if not plan.passes:
        # A person is asked for what matters most, not for every plainer constant.
        return Chosen(parts, () if plan.ask is not None else models)
    known = {row.name: row for row in (*TABLE, *BY_STEPS, *models, *ON_REQUEST)}
    for name in plan.passes:
        if name not in known and name not in GROUPS:
            near = difflib.get_close_matches(name, [*known, *GROUPS], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(known)}"
            raise UsageError(f"--passes: there is no pass {name!r}; {hint}")
    wanted = set(plan.passes)
    return Chosen(
        tuple(r for r in (*TABLE, *BY_STEPS) if r.name in wanted or _of(r, "nodes", wanted)),
        tuple(r for r in (*models, *ON_REQUEST) if r.name in wanted or _of(r, "model", wanted)),
    )


def _of(row: Pass, group: str, wanted: set[str]) -> bool:
    rows = TABLE if group == "nodes" else table()
    return group in wanted and row.name in {each.name for each in rows}


def passes_table() -> str:
    """Returns the passes with their purposes, one a line."""
    groups: Sequence[tuple[str, Sequence[Pass]]] = (
        ("nodes: parts of the graph", TABLE),
        ("model: what is left, as a whole", table()),
        ("only by name", (*BY_STEPS, *ON_REQUEST)),
    )
    lines = []
    for title, rows in groups:
        lines.append(title)
        lines += [f"  {row.name:<20}{row.purpose}" for row in rows]
    return "\n".join(lines)
