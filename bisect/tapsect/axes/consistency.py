"""Questions that an engine answers without any reference: is it the same model for equal rows?

=========  =====================================================================================
question   what must hold
=========  =====================================================================================
twice      a second run of the same data answers the same
equal      where all rows of a batch are one row, all rows of the answer are one
permuted   rows in another order answer in that order
single     a row alone answers as it does in the batch
static     a build for fixed sizes answers as the build for any size
=========  =====================================================================================

Rows are indices of axis 0 of those inputs and outputs that share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from debugtaps import Array, TensorType

__all__ = ["Batch", "Question", "batch_of", "questions"]

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], Feeds]


@dataclass(frozen=True, slots=True)
class Batch:
    """Which inputs and outputs hold one row for each entry of a batch.

    Attributes:
        inputs: Inputs that have rows; the others are fed as they are.
        outputs: Outputs that have rows; the others are not held against anything row by row.
        dynamic: Whether any number of rows may be fed.
    """

    inputs: frozenset[str]
    outputs: frozenset[str]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One question: another run, and what the first one says it must answer.

    Attributes:
        name: As in the table above.
        what: The question in words.
        ask: Returns the other answer, in the order and size of the first.
        expect: Returns what the first answer says it is.
        rowwise: Whether only outputs with rows are asked about.
    """

    name: str
    what: str
    ask: Callable[[Run, Feeds], Feeds]
    expect: Callable[[Feeds], Feeds]
    rowwise: bool = True


def batch_of(inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]) -> Batch | None:
    """Returns what has rows; None when nothing says so.

    The first axis is the batch where inputs and outputs name it alike, or where all of them have
    the same fixed size of 2 or more there.
    """
    first = {n: t.shape[0] for n, t in (*inputs.items(), *outputs.items()) if t.shape}
    named = [first[n] for n in inputs if isinstance(first.get(n), str)]
    for size in dict.fromkeys(named):
        ins = frozenset(n for n in inputs if first.get(n) == size)
        outs = frozenset(n for n in outputs if first.get(n) == size)
        if ins and outs:
            return Batch(ins, outs, dynamic=True)
    sizes = {first.get(n) for n in (*inputs, *outputs)}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    if isinstance(size, int) and size >= 2:
        return Batch(frozenset(inputs), frozenset(outputs), dynamic=False)
    return None


def questions(batch: Batch | None, rows: int) -> list[Question]:
    """Returns what can be asked of a model.

    Args:
        batch: What has rows, if anything.
        rows: How many rows are fed.
    """
    found = [Question("twice", "two runs of the same data", _again, _same, rowwise=False)]
    if batch is None or rows < 2:
        return found
    order = np.roll(np.arange(rows), 1)
    ins, outs = batch.inputs, batch.outputs
    first = np.zeros(rows, np.intp)

    def equal(run: Run, feeds: Feeds) -> Feeds:
        return run(_rows(feeds, ins, first))

    def permuted(run: Run, feeds: Feeds) -> Feeds:
        return _rows(run(_rows(feeds, ins, order)), outs, np.argsort(order))

    def single(run: Run, feeds: Feeds) -> Feeds:
        alone = [run(_rows(feeds, ins, np.array([row]))) for row in range(rows)]
        return {n: np.concatenate([each[n] for each in alone]) for n in outs if n in alone[0]}

    found += [
        Question("equal", "equal rows of a batch", equal, lambda y: _rows(y, outs, first)),
        Question("permuted", "rows in another order", permuted, _same),
    ]
    if batch.dynamic:
        found.append(Question("single", "each row alone", single, _same))
    return found


def _again(run: Run, feeds: Feeds) -> Feeds:
    return run(feeds)


def _same(values: Feeds) -> Feeds:
    return values


def _rows(values: Feeds, names: frozenset[str], rows: Sequence[int] | Array) -> dict[str, Array]:
    """Returns values with these rows of those that have any."""
    return {n: np.ascontiguousarray(v[rows]) if n in names else v for n, v in values.items()}
