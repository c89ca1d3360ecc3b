"""One tensor of a build against its reference: a row, its scores, and where rows fall off.

**Falling off.**  A tensor's *correct bits* are ``-log2(error)``, the error being the rms
difference over the rms of the reference, and never below the unit roundoff of the types at hand
(and of the precision the build states): what a type cannot hold is not lost.  Walking in model
order, a row falls off when it has less than two thirds of the correct bits of the worst row
before it that differs at all, or, where none does, of what its type can hold.  So a float32
tensor (24 bits) may lose 8 of them before it stands out, a float16 one (11) between 3 and 4,
a bfloat16 one (8) between 2 and 3: factors of 256, 13 and 6, which rounding does not
reach from one tapped tensor to the next and a wrong operator does.  A one-sided non-finite
element, another shape, or text against numbers leaves no correct bit.

The rule says where to look, not what is wrong: it knows nothing of what lies between two taps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from debugtaps.compare import Metrics, measure_fully
from debugtaps.store import dtype_name
from debugtaps.ulp import unit_roundoff

__all__ = [
    "PRECISIONS",
    "SCORES",
    "Row",
    "Score",
    "State",
    "described",
    "mark_fall",
    "row_of",
]

Array = npt.NDArray[Any]
State = Literal["compared", "nonfinite", "shape", "dtype", "no reference", "no output"]

PRECISIONS: Mapping[str, float] = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
}
_KEPT = 2 / 3
_EXACT_BITS = 53.0


@dataclass(frozen=True, slots=True)
class Score:
    """One way to score a row.

    Attributes:
        key: Its field in JSON and CSV.
        label: What tables call it.
        flag: The option that limits it.
        worst: What a row has that cannot be scored; its sign tells which way is bad.
    """

    key: str
    label: str
    flag: str
    worst: float

    def beyond(self, value: float, limit: float) -> bool:
        """Returns whether a value is on the bad side of a limit."""
        return not (value <= limit if self.worst > 0 else value >= limit)


SCORES: tuple[Score, ...] = (
    Score("mape", "MAPE %", "--max-mape", math.inf),
    Score("mse", "MSE", "--max-mse", math.inf),
    Score("max_diff", "max diff", "--max-diff", math.inf),
    Score("cosine", "cosine", "--min-cosine", -1.0),
    Score("ulp", "max ULP", "--max-ulp", math.inf),
    Score("snr_db", "SNR dB", "--min-snr", -math.inf),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor of one build.

    Attributes:
        name: Its name in both files.
        state: ``compared``, or what stands before the numbers: one-sided ``nonfinite`` elements,
            another ``shape`` or ``dtype``, ``no reference`` or ``no output`` to pair it with.
        kind: ``output``, ``manual`` or ``plugin``; empty where nothing tells.
        engine: Type and shape of the engine's tensor, as ``float16[1,3]``; empty when missing.
        reference: The same of the reference's.
        metrics: The numbers.
        roundoff: The largest unit roundoff of the two types.
        reason: Why it has no reference, where that is known.
        falls_off: Whether it is the first row that falls off.
    """

    name: str
    state: State
    kind: str = ""
    engine: str = ""
    reference: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    roundoff: float = 0.0
    reason: str = ""
    falls_off: bool = False

    @property
    def paired(self) -> bool:
        """Returns whether both sides have the tensor."""
        return self.state not in ("no reference", "no output")

    def score(self, key: str) -> float | None:
        """Returns the row's value of one of `SCORES`, the worst where it cannot be scored.

        ``None`` for a row that nothing pairs with.
        """
        if not self.paired:
            return None
        m = self.metrics
        worst = next(s.worst for s in SCORES if s.key == key)
        if m.max_abs is None or self.state == "nonfinite":
            return worst
        equal = m.max_abs == 0
        undefined = {"cosine": 1.0 if equal else 0.0, "ulp": 0.0 if equal else worst}
        known: dict[str, float | None] = {
            "mape": m.mape,
            "mse": m.mse,
            "max_diff": m.max_abs,
            "cosine": m.cosine,
            "ulp": m.ulp_max,
            "snr_db": m.snr_db,
        }
        value = known[key]
        return undefined.get(key, worst) if value is None else value

    def note(self) -> str:
        """Returns what must be said before any number, or nothing."""
        if self.state in ("no reference", "no output"):
            said = {"no reference": "not in the reference", "no output": "not in the build"}
            return said[self.state] + (f": {self.reason}" if self.reason else "")
        m, words = self.metrics, []
        if self.engine != self.reference:
            words.append(f"{self.engine}, the reference is {self.reference}")
        if m.nonfinite_engine or m.nonfinite_reference:
            words.append(
                f"non-finite: {m.nonfinite_engine} here, {m.nonfinite_reference} in the "
                f"reference, {m.nonfinite_differs} differ"
            )
        return "; ".join(words)


def row_of(name: str, engine: Array, reference: Array, *, kind: str = "") -> Row:
    """Returns the row of a tensor that both sides have.

    >>> import numpy as np
    >>> row = row_of("y", np.array([1.0, np.nan]), np.array([1.0, 2.0]))
    >>> row.state, row.score("mape"), row.score("cosine")
    ('nonfinite', inf, -1.0)
    """
    metrics = measure_fully(engine, reference)
    states: dict[str, State] = {"": "compared", "shape": "shape", "dtype": "dtype"}
    state = states.get(metrics.reason, "nonfinite")
    if metrics.nonfinite_differs:
        state = "nonfinite"
    return Row(
        name,
        state,
        kind,
        described(engine),
        described(reference),
        metrics,
        max(unit_roundoff(engine.dtype), unit_roundoff(reference.dtype)),
    )


def described(array: Array) -> str:
    """Returns type and shape of a tensor.

    >>> import numpy as np
    >>> described(np.zeros((1, 3), np.float16))
    'float16[1,3]'
    """
    return f"{dtype_name(array.dtype)}[{','.join(map(str, array.shape))}]"


def mark_fall(rows: Sequence[Row], precision: float = 0.0) -> tuple[Row, ...]:
    """Returns the rows with the first one that falls off marked; see above for the rule.

    Args:
        rows: In model order; those that nothing pairs with are passed over.
        precision: The unit roundoff of the precision the build states, 0 when it states none.
    """
    before, scale = math.inf, 0.0
    for place, row in enumerate(rows):
        if not row.paired:
            continue
        scale = row.metrics.rms_reference or scale
        at_hand = _bits(max(row.roundoff, precision, _whole_number(row, scale)))
        bits = min(at_hand, _bits(_error(row, scale)))
        if bits < _KEPT * min(before, at_hand):
            found = dataclasses.replace(row, falls_off=True)
            return (*rows[:place], found, *rows[place + 1 :])
        if row.metrics.max_abs:
            before = min(before, bits)
    return tuple(rows)


def _error(row: Row, scale: float) -> float:
    """Returns the relative error; a reference of zero is measured by the last scale before it."""
    if row.state == "nonfinite" or row.metrics.rms is None:
        return math.inf
    if row.metrics.rms == 0:
        return 0.0
    return row.metrics.rms / scale if scale else math.inf


def _whole_number(row: Row, scale: float) -> float:
    """Returns what half a step of an integer is worth; 0 for floats."""
    whole = row.engine.startswith(("int", "uint")) and row.reference.startswith(("int", "uint"))
    return 0.5 / scale if whole and scale else 0.0


def _bits(error: float) -> float:
    if error <= 0:
        return _EXACT_BITS
    return 0.0 if not error < 1 else min(_EXACT_BITS, -math.log2(error))
