"""Polygraphy's JSON: lists of feeds, and the results of a run, without Polygraphy.

    [{"x": ARRAY}, …]                                                  feeds, one entry a sample
    {"lst": [[RUNNER, [{"outputs": {"y": {"values": ARRAY}}}, …]]]}    results of a run
    ARRAY = {"array": base64 of a .npy, "polygraphy_class": "ndarray"}

Older files mark classes otherwise and may hold the array as latin-1 text or as an archive; both
are read.  A torch tensor in such a file is a pickle and is refused.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from debugtaps.errors import InputError
from debugtaps.store import read_npz, write_json_atomic

__all__ = ["load_golden", "read_polygraphy", "write_polygraphy"]

Array = npt.NDArray[Any]

_MARKERS = ("polygraphy_class", "__polygraphy_encoded_")


def load_golden(path: Path) -> list[dict[str, Array]]:
    """Returns golden tensors by name, one dictionary a sample.

    Args:
        path: An ``.npz`` (one sample) or Polygraphy's JSON (as many as it holds).

    Raises:
        InputError: The file is missing, damaged, neither of the two, or holds pickles.
    """
    if path.suffix == ".json":
        return read_polygraphy(path)
    if path.suffix == ".npz":
        return [read_npz(path)]
    raise InputError(f"{path}: golden values are read from .npz or Polygraphy's .json.")


def read_polygraphy(path: Path) -> list[dict[str, Array]]:
    """Returns the tensors of a Polygraphy JSON file, one dictionary a sample.

    Raises:
        InputError: The file cannot be read as such, or holds results of several runners.
    """
    samples = [_sample(path, entry) for entry in _entries(path, _read(path))]
    if not samples:
        raise InputError(f"{path} holds no sample.")
    return samples


def write_polygraphy(path: Path, samples: Sequence[Mapping[str, Array]]) -> None:
    """Writes samples as Polygraphy reads them with ``--load-inputs``; whole or not at all.

    Args:
        path: Where.
        samples: Arrays of numpy's own types by name, one mapping a sample.
    """
    entries = [{name: _written(value) for name, value in sample.items()} for sample in samples]
    write_json_atomic(path, entries)


def _written(value: Array) -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    text = base64.b64encode(stream.getvalue()).decode("ascii")
    return {"array": text, "polygraphy_class": "ndarray"}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON or is truncated ({error}).") from None


def _entries(path: Path, value: Any) -> list[Any]:
    if isinstance(value, Mapping) and isinstance(value.get("lst"), list):
        value = value["lst"]
        if value and all(isinstance(v, list) and len(v) == 2 for v in value):
            if len(value) > 1:
                runners = ", ".join(repr(str(v[0])) for v in value)
                raise InputError(f"{path} holds the results of {runners}; keep one of them.")
            value = value[0][1]
    if isinstance(value, Mapping):  # one sample, written without the list
        value = [value]
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise InputError(
            f"{path} is JSON of another kind; expected a list of feeds or the results of a run,"
            " as Polygraphy writes them with --save-inputs or --save-outputs."
        )
    return value


def _sample(path: Path, entry: Mapping[str, Any]) -> dict[str, Array]:
    inner = entry.get("outputs")
    tensors = inner if isinstance(inner, Mapping) and not _is_array(inner) else entry
    return {
        str(name): _array(path, str(name), value)
        for name, value in tensors.items()
        if not str(name).startswith(_MARKERS)
    }


def _is_array(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("array"), str) or "values" in value


def _array(path: Path, name: str, value: Any) -> Array:
    while isinstance(value, Mapping) and "values" in value:  # LazyArray, FormattedArray
        value = value["values"]
    if isinstance(value, Mapping) and "tensor" in value:
        raise InputError(
            f"{path}: '{name}' is a torch tensor (pickled), which is never loaded;"
            " save numpy arrays instead (x.numpy())."
        )
    if not isinstance(value, Mapping) or not isinstance(value.get("array"), str):
        raise InputError(f"{path}: '{name}' is no array as Polygraphy writes it.")
    text = value["array"]
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        data = text.encode("latin-1", "replace")  # files of Polygraphy before 0.27
    try:
        return _npy(data)
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if "bject array" in str(error):
            raise InputError(
                f"{path}: '{name}' holds Python objects (pickled), which are never loaded;"
                " save it with a number, boolean or string type."
            ) from None
        raise InputError(f"{path}: '{name}' is damaged ({error}).") from None


def _npy(data: bytes) -> Array:
    stream = io.BytesIO(data)
    if data.startswith(b"PK"):
        with zipfile.ZipFile(stream) as archive:
            stream = io.BytesIO(archive.read(archive.namelist()[0]))
    array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array
