"""What a model is fed: samples from files and scripts, checked against its inputs.

Accepted are ``.npz`` (one sample a file), Polygraphy's JSON (many), a Python script with
``load_data()`` that yields dictionaries, a folder of such files, and dictionaries of arrays.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from debugtaps.errors import InputError
from debugtaps.polygraphy import read_polygraphy
from debugtaps.store import dtype_name, read_npz

__all__ = [
    "InputSpec",
    "Sample",
    "check_sample",
    "check_shape",
    "load_inputs",
    "nearest",
    "shown_shape",
]

Array = npt.NDArray[Any]
Dim = int | str | None
Source = str | Path | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model.

    Attributes:
        name: Its name.
        dtype: Its numpy type (``ml_dtypes`` included), or ``"string"``.
        shape: Sizes; a name for a symbolic dimension, ``None`` for an unknown one.  ``None``
            instead of the whole when not even the rank is known.
        optional: Whether the model has a default for it (an initializer of the same name).
    """

    name: str
    dtype: np.dtype[Any] | Literal["string"]
    shape: tuple[Dim, ...] | None
    optional: bool = False

    @property
    def type_name(self) -> str:
        """Returns the name of the type, as messages show it."""
        return self.dtype if isinstance(self.dtype, str) else dtype_name(self.dtype)


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of feeds, and where it came from."""

    feeds: Mapping[str, Array]
    origin: str


def load_inputs(sources: Sequence[Source], specs: Sequence[InputSpec]) -> list[Sample]:
    """Returns the samples of ``sources`` in their order, each checked against ``specs``.

    Raises:
        InputError: A source is missing, damaged or of another kind, or does not fit the model.
    """
    samples: list[Sample] = []
    for number, source in enumerate(sources):
        if isinstance(source, Mapping):
            found = [Sample(source, f"inputs[{number}]")]
        else:
            found = _read_source(str(source))
        samples += [check_sample(sample, specs) for sample in found]
    return samples


def check_sample(sample: Sample, specs: Sequence[InputSpec]) -> Sample:
    """Returns the sample with every array in the type its input has.

    Only the representation changes: byte order, raw bits of types that numpy lacks, bytes or
    unicode for text.  No value is ever converted.

    Raises:
        InputError: An input is missing, unknown, or of another type or shape.
    """
    known = {spec.name: spec for spec in specs}
    for name in sample.feeds:
        if name not in known:
            raise InputError(
                f"{sample.origin} holds '{name}', which is no input of the model;"
                f" {nearest(name, list(known))}."
            )
    missing = [s for s in specs if s.name not in sample.feeds and not s.optional]
    if missing:
        wanted = ", ".join(f"'{s.name}' ({s.type_name} {shown_shape(s.shape)})" for s in missing)
        plural = "inputs" if len(missing) > 1 else "input"
        raise InputError(f"{sample.origin} lacks {plural} {wanted}.")
    sizes: dict[str, tuple[int, str]] = {}
    feeds: dict[str, Array] = {}
    for spec in specs:
        if spec.name in sample.feeds:
            array = _typed(spec, np.asarray(sample.feeds[spec.name]), sample.origin)
            check_shape(spec, array.shape, sizes, sample.origin)
            feeds[spec.name] = array
    return Sample(feeds, sample.origin)


def _read_source(source: str) -> list[Sample]:
    script, _, function = source.rpartition(":")
    if script.endswith(".py") and not Path(source).exists():
        return _from_script(Path(script), function)
    path = Path(source)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".json"))
        if not files:
            raise InputError(f"{path} is a folder without .npz or .json files.")
        return [sample for file in files for sample in _read_source(str(file))]
    if path.suffix == ".py":
        return _from_script(path, "load_data")
    if path.suffix == ".npz":
        return [Sample(read_npz(path), str(path))]
    if path.suffix == ".json":
        found = read_polygraphy(path)
        if len(found) == 1:
            return [Sample(found[0], str(path))]
        return [Sample(feeds, f"{path}, sample {i}") for i, feeds in enumerate(found)]
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    raise InputError(f"{path}: inputs are read from .npz, Polygraphy's .json or a .py script.")


def _from_script(path: Path, function: str) -> list[Sample]:
    if not path.is_file():
        raise InputError(f"{path} does not exist.")
    spec = importlib.util.spec_from_file_location("tapsect_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        load = getattr(module, function, None)
        if not callable(load):
            raise InputError(f"{path} has no function {function}(); it shall yield dictionaries.")
        loaded = load()
        found = [loaded] if isinstance(loaded, Mapping) else list(loaded)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise InputError(f"{path} raised {type(error).__name__}: {error}") from error
    if not found:
        raise InputError(f"{path}: {function}() yielded no sample.")
    for feeds in found:
        if not isinstance(feeds, Mapping):
            kind = type(feeds).__name__
            raise InputError(f"{path}: {function}() yielded a {kind}, expected a dictionary.")
    return [Sample(feeds, f"{path}, sample {i}") for i, feeds in enumerate(found)]


def _typed(spec: InputSpec, array: Array, origin: str) -> Array:
    if isinstance(spec.dtype, str):
        if array.dtype.kind in "USTO" and all(isinstance(v, str | bytes) for v in array.flat):
            text = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.flat]
            return np.array(text, dtype=object).reshape(array.shape)
    elif array.dtype == spec.dtype:
        return array
    elif array.dtype.newbyteorder("=") == spec.dtype:
        return array.astype(spec.dtype)
    elif spec.dtype.isbuiltin != 1 and _may_be_bits(array, spec.dtype):
        return array.copy(order="C").view(spec.dtype)
    given = "Python objects" if array.dtype.kind == "O" else dtype_name(array.dtype)
    mend = f"convert it with .astype('{spec.type_name}')"
    if not isinstance(spec.dtype, str) and spec.dtype.isbuiltin != 1:
        mend = f"give it as {spec.type_name} of ml_dtypes, or as its raw bits in unsigned integers"
    raise InputError(
        f"{origin}: input '{spec.name}' is {given}, the model expects {spec.type_name}; {mend}."
    )


def _may_be_bits(array: Array, dtype: np.dtype[Any]) -> bool:
    """``numpy.savez`` writes bfloat16 as nameless bytes; others write it as uint16."""
    return array.dtype.kind in "Vu" and array.dtype.itemsize == dtype.itemsize


def check_shape(
    spec: InputSpec, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]], origin: str
) -> None:
    """Checks one input's shape against its static and symbolic dimensions.

    Args:
        spec: The input.
        shape: The shape it is given.
        sizes: Size and first owner of each symbolic dimension so far; added to.
        origin: What to call the source in messages.

    Raises:
        InputError: It does not fit.
    """
    if spec.shape is None:
        return
    misfit = len(shape) != len(spec.shape) or any(
        isinstance(want, int) and want != size for want, size in zip(spec.shape, shape, strict=True)
    )
    if misfit:
        raise InputError(
            f"{origin}: input '{spec.name}' has shape {list(shape)},"
            f" the model expects {shown_shape(spec.shape)}."
        )
    for want, size in zip(spec.shape, shape, strict=True):
        if isinstance(want, str) and want.strip("?"):  # exporters call every unknown one "?"
            before, owner = sizes.setdefault(want, (size, spec.name))
            if before != size:
                raise InputError(
                    f"{origin}: dimension '{want}' is {before} in input '{owner}'"
                    f" and {size} in input '{spec.name}'; it must be one size."
                )


def shown_shape(shape: tuple[Dim, ...] | None) -> str:
    """Writes a shape as models do: ``[1,N,?]``."""
    if shape is None:
        return "of any shape"
    return "[" + ",".join("?" if d is None or d == "" else str(d) for d in shape) + "]"


def nearest(name: str, known: Sequence[str]) -> str:
    """Returns half a sentence that helps to find the right name.

    >>> nearest("imput", ["input", "mask"])
    "did you mean 'input'"
    """
    if not known:
        return "the model has no inputs"
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean '{near[0]}'"
    listed = ", ".join(repr(k) for k in known[:5]) + (" …" if len(known) > 5 else "")
    return f"its inputs are {listed}"
