"""How a tensor is written on the command line: ``name:shape:dtype``, either of them ``auto``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from debugtaps import InputError, UsageError, dtype_from_name

__all__ = ["Dim", "TensorSpec", "elem_of", "parse_input", "parse_output"]

Dim = int | str | None

_AUTO = "auto"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as the user writes it.

    Attributes:
        name: Its name.
        shape: Its dimensions (a name or ``None`` for a dynamic one); ``None`` means ``auto``.
        elem: Its ONNX element type; ``None`` means ``auto``.
    """

    name: str
    shape: tuple[Dim, ...] | None = None
    elem: int | None = None


def parse_input(text: str, known: Callable[[str], bool]) -> TensorSpec:
    """Returns what ``name``, ``name:shape:dtype`` or ``name:auto:auto`` says.

    Args:
        text: The word; the name may hold colons.
        known: Whether the model has a tensor of a name.

    >>> parse_input("x:[1,3,-1,N]:float32", lambda _: False)
    TensorSpec(name='x', shape=(1, 3, None, 'N'), elem=1)

    Raises:
        UsageError: Shape or type cannot be read.
    """
    if known(text):
        return TensorSpec(text)
    name, colon, dtype = text.rpartition(":")
    rest, second, shape = name.rpartition(":")
    if not colon or not second or not rest:
        if colon and not known(text):
            raise UsageError(f"{text!r} is not of the form name:shape:dtype, as x:[1,3]:float32")
        return TensorSpec(text)
    return TensorSpec(rest, _shape(shape, text), _elem(dtype, text))


def parse_output(text: str, known: Callable[[str], bool]) -> TensorSpec:
    """Returns what ``name``, ``name:dtype`` or ``name:auto`` says; see ``parse_input``.

    >>> parse_output("z:auto", lambda _: False)
    TensorSpec(name='z', shape=None, elem=None)
    """
    if known(text):
        return TensorSpec(text)
    name, colon, dtype = text.rpartition(":")
    if not colon or not name:
        return TensorSpec(text)
    return TensorSpec(name, None, _elem(dtype, text))


def elem_of(dtype: np.dtype[Any]) -> int:
    """Returns the ONNX element type of a numpy type."""
    if dtype.kind in "OUST":
        return int(TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _shape(text: str, whole: str) -> tuple[Dim, ...] | None:
    if text == _AUTO:
        return None
    match = re.fullmatch(r"\[(.*)\]", text.strip())
    if match is None:
        raise UsageError(f"{whole!r}: shape {text!r} is neither auto nor a list, as [1,3,224,224]")
    dims: list[Dim] = []
    for part in (p.strip().strip("'\"") for p in match[1].split(",")):
        if re.fullmatch(r"-?\d+", part):
            dims.append(int(part) if int(part) >= 0 else None)
        elif part.isidentifier():
            dims.append(part)
        elif part or len(match[1].strip()) > 0:
            raise UsageError(f"{whole!r}: {part!r} is no dimension; give a number, a name or -1")
    return tuple(dims)


def _elem(text: str, whole: str) -> int | None:
    if text == _AUTO:
        return None
    try:
        return elem_of(dtype_from_name(text))
    except (InputError, KeyError, TypeError, ValueError):
        raise UsageError(
            f"{whole!r}: {text!r} is no type; give auto or one as float32, float16, int64"
        ) from None
