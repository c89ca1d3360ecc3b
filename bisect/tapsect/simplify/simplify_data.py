"""Plainer values: what a person can read, and what a report can show.

0.31 -1.27  2.06        0 0 0      1 1 1      0 -1 2      0.25 -1 2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import ModelProto, numpy_helper

from debugtaps import Array
from tapsect.reduction import Asked
from tapsect.simplify.specimen import (
    READ,
    Specimen,
    changed,
    constants,
    plainness,
    replace_values,
)

__all__ = ["simplify_constants", "simplify_inputs"]


def _powers(values: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = np.sign(values) * 2.0 ** np.round(np.log2(np.abs(values)))
    return np.where(np.isfinite(values) & (values != 0), rounded, values)


def _integers(values: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(values), np.clip(np.round(values), -9, 9) + 0.0, values)


def _few(values: Array) -> Array:
    """Returns the first four distinct values, each standing for its nearest."""
    kept = np.unique(values[np.isfinite(values)])
    if len(kept) <= 4:
        return values
    chosen = kept[np.linspace(0, len(kept) - 1, 4).astype(int)]
    nearest = np.abs(values[..., None] - chosen).argmin(axis=-1)
    return np.where(np.isfinite(values), chosen[nearest], values)


WAYS: Sequence[tuple[str, int, Callable[[Array], Array]]] = (
    ("zeros", 0, np.zeros_like),
    ("ones", 1, np.ones_like),
    ("small integers", 2, _integers),
    ("four values", 3, _few),
    ("powers of two", 4, _powers),
)
"""Each with how plain it is, the plainest first."""


def simplify_constants(problem: Asked[Specimen]) -> None:
    """Proposes plainer float constants, all at once, then one by one.

    Guarantees to have tried: every way for every constant by itself, down to one that fails.
    Cost: at most five questions a constant, and five more.
    """
    names = [t.name for t in constants(problem.current.proto) if _is_float(t)]
    _plainer(problem, names, _with_constants)


def simplify_inputs(problem: Asked[Specimen]) -> None:
    """Proposes plainer inputs, all at once, then one by one.

    Guarantees to have tried: every way for every input by itself, down to one that fails.
    Cost: at most five questions an input, and five more.
    """
    _plainer(problem, list(problem.current.feeds), _with_inputs)


Make = Callable[[Specimen, Sequence[str], Callable[[Array], Array], str], Specimen]


def _plainer(problem: Asked[Specimen], names: Sequence[str], make: Make) -> None:
    if len(names) > 1:
        _first_that_fails(problem, names, make)
    for name in names:
        _first_that_fails(problem, [name], make)


def _first_that_fails(problem: Asked[Specimen], names: Sequence[str], make: Make) -> None:
    origin = problem.current
    for words, _, way in WAYS:
        made = make(origin, names, way, words)
        if made != origin and problem.consider(made):
            return


def _with_constants(
    origin: Specimen, names: Sequence[str], way: Callable[[Array], Array], words: str
) -> Specimen:
    model = ModelProto()
    model.CopyFrom(origin.proto)
    for tensor in constants(model):
        if tensor.name in names and _is_float(tensor):
            values = numpy_helper.to_array(tensor)
            replace_values(tensor, _plain(values, way))
    return changed(origin, model, f"{_listed(names, 'constant')} became {words}")


def _with_inputs(
    origin: Specimen, names: Sequence[str], way: Callable[[Array], Array], words: str
) -> Specimen:
    feeds = {n: _plain(v, way) if n in names else v for n, v in origin.feeds.items()}
    made = changed(origin, origin.proto, f"{_listed(names, 'input')} became {words}", feeds)
    return Specimen(origin.model, made.feeds, made.change)


def _plain(values: Array, way: Callable[[Array], Array]) -> Array:
    """Returns plainer values of the same type and shape; the same where that is none."""
    if values.dtype.kind not in "fiub" and values.dtype.name != "bfloat16":
        return values
    if values.size > READ:  # shapes were shrunk before
        return values
    if values.dtype.kind in "iub" and way not in (np.zeros_like, np.ones_like):
        return values
    with np.errstate(all="ignore"):
        made = np.asarray(way(values.astype(np.float64))).astype(values.dtype)
    return made.reshape(values.shape) if plainness(made) < plainness(values) or (
        way is _powers and plainness(values) == 4
    ) else values  # fmt: skip


def _is_float(tensor: object) -> bool:
    return getattr(tensor, "data_type", 0) in (1, 10, 11, 16)


def _listed(names: Sequence[str], what: str) -> str:
    return f"{what} '{names[0]}'" if len(names) == 1 else f"{len(names)} {what}s"
