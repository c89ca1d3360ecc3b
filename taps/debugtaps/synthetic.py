"""Seeded random inputs, for when nobody gave any."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps.errors import InputError
from debugtaps.feeds import InputSpec, Sample, check_shape, nearest, shown_shape

__all__ = ["parse_input_shapes", "random_inputs"]

Array = npt.NDArray[Any]

_SHAPE = re.compile(r"\[\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)\]")
_WORDS = ("tap", "sect", "floor", "edge", "node", "noise")


def parse_input_shapes(
    texts: Iterable[str], flag: str = "--input-shapes"
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of ``NAME:[D,D,…]`` texts by name.

    Args:
        texts: The texts.
        flag: Where they were given, for the message.

    >>> parse_input_shapes(["x:[1,3,8,8]", "a:b:[]"])
    {'x': (1, 3, 8, 8), 'a:b': ()}

    Raises:
        InputError: A text is of another form.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, rest = text.rpartition(":")
        match = _SHAPE.fullmatch(rest.strip())
        if not colon or not name or not match:
            raise InputError(f"{flag} '{text}' is not of the form x:[1,3,8,8].")
        shapes[name] = tuple(int(size) for size in match[1].split(",") if size.strip())
    return shapes


def random_inputs(
    specs: Sequence[InputSpec],
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    seed: int = 0,
) -> tuple[Sample, list[str]]:
    """Returns one seeded random sample and warnings about what had to be assumed.

    Floats are drawn from N(0, 1).  Integers are 0 or 1, since most are indices, masks or lengths
    for which a larger value may be out of range; 8-bit ones are quantized data more often and
    take their whole range.  A dynamic dimension that ``shapes`` does not fix becomes 1.

    Raises:
        InputError: ``shapes`` names no input, or does not fit its static dimensions.
    """
    wanted = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
    known = [spec.name for spec in specs]
    for name in wanted:
        if name not in known:
            raise InputError(f"--input-shapes names '{name}'; {nearest(name, known)}.")
    sizes: dict[str, tuple[int, str]] = {}
    for spec in specs:
        if spec.name in wanted:
            check_shape(spec, wanted[spec.name], sizes, "--input-shapes")
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    warnings: list[str] = []
    for spec in specs:
        if spec.optional and spec.name not in wanted:
            continue
        given = wanted.get(spec.name)
        shape = _assumed(spec, sizes, warnings) if given is None else given
        feeds[spec.name] = _random(spec, shape, generator)
    return Sample(feeds, f"random data, seed {seed}"), warnings


def _assumed(
    spec: InputSpec, sizes: Mapping[str, tuple[int, str]], warnings: list[str]
) -> tuple[int, ...]:
    if spec.shape is None:
        warnings.append(
            f"Input '{spec.name}' states no shape; a scalar was used."
            f" Give one with --input-shapes {spec.name}:[...]."
        )
        return ()
    shape: list[int] = []
    assumed: list[str] = []
    for position, want in enumerate(spec.shape):
        if isinstance(want, int):
            shape.append(want)
        elif want and want in sizes:
            shape.append(sizes[want][0])
        else:
            shape.append(1)
            assumed.append(want or f"#{position}")
    if assumed:
        many = len(assumed) > 1
        said = f"dynamic dimension{'s' * many} {', '.join(assumed)} {'were' if many else 'was'}"
        warnings.append(
            f"Input '{spec.name}': {said} taken as 1."
            f" Give it with --inputs or --input-shapes {spec.name}:{shown_shape(spec.shape)}."
        )
    return tuple(shape)


def _random(spec: InputSpec, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if isinstance(spec.dtype, str):
        words: Array = np.array(_WORDS, dtype=object)
        return np.asarray(words[generator.integers(0, len(_WORDS), shape)], dtype=object)
    kind, small = spec.dtype.kind, spec.dtype.itemsize == 1
    if kind == "b":
        return np.asarray(generator.integers(0, 2, shape)).astype(np.bool_)
    if kind in "iu" and small:
        low, high = (-128, 128) if kind == "i" else (0, 256)
        return np.asarray(generator.integers(low, high, shape)).astype(spec.dtype)
    if kind in "iu" or "int" in spec.dtype.name:
        return np.asarray(generator.integers(0, 2, shape)).astype(spec.dtype)
    values = np.asarray(generator.standard_normal(shape))
    if kind == "c":
        values = values + 1j * np.asarray(generator.standard_normal(shape))
    return values.astype(spec.dtype)
