"""Tensors and texts on disk: whole or not at all, and never unpickled.

A ``.npz`` written here is read by ``numpy.load``.  Types that numpy lacks (bfloat16, float8 …)
stand in it as their raw bits, unsigned; the entry ``__tapsect__.json`` then names their type.
Equal content gives equal bytes: the entries carry no time.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from debugtaps.errors import InputError

__all__ = [
    "as_storable",
    "dtype_from_name",
    "dtype_name",
    "read_meta",
    "read_npz",
    "write_atomic",
    "write_json_atomic",
    "write_npz",
    "write_text_atomic",
]

Array = npt.NDArray[Any]

EXTRA = "__tapsect__.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_BITS: dict[int, np.dtype[Any]] = {n: np.dtype(f"<u{n}") for n in (1, 2, 4, 8)}


def write_atomic(
    path: str | Path, write: Callable[[IO[bytes]], None], *, sync: bool = True
) -> None:
    """Writes a file that appears whole or not at all.

    Args:
        path: Where it shall stand; what stood there is replaced.
        write: Called with the open file.
        sync: Whether it must outlive a power cut, too, and not only the end of this process.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text_atomic(path: str | Path, text: str) -> None:
    """Writes UTF-8 text, whole or not at all; lone surrogates become ``?``."""
    write_atomic(path, lambda file: _write_bytes(file, text.encode("utf-8", "replace")))


def write_json_atomic(path: str | Path, value: Any) -> None:
    """Writes JSON without NaN or infinity, whole or not at all.

    Raises:
        ValueError: ``value`` holds a number that is not finite.
    """
    text = json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False, default=_jsonable)
    write_text_atomic(path, text + "\n")


def write_npz(
    path: str | Path, tensors: Mapping[str, Array], *, meta: Mapping[str, Any] | None = None,
    sync: bool = True,
) -> None:  # fmt: skip
    """Writes named tensors into one ``.npz``, whole or not at all.

    Any name is possible, ``file`` and ``a/b`` too.

    Args:
        path: The file.
        tensors: Arrays by name; strings may be unicode or object arrays of ``str``.
        meta: JSON data to keep beside them, given back by `read_meta`.
        sync: As in ``write_atomic``.

    Raises:
        InputError: An array holds Python objects that are no strings.
    """
    stored = {name: as_storable(name, np.asarray(array)) for name, array in tensors.items()}
    note: dict[str, Any] = {"dtypes": {n: t for n, (_, t) in stored.items() if t is not None}}
    if meta is not None:
        note["meta"] = dict(meta)
    write_atomic(path, lambda file: _write_zip(file, stored, note), sync=sync)


def read_npz(path: str | Path) -> dict[str, Array]:
    """Returns the tensors of an ``.npz`` by name.

    Nothing is unpickled.

    Raises:
        InputError: The file is missing, truncated or no archive, or an array holds objects.
    """
    with _open(path) as archive:
        note = _note(path, archive)
        names = note.get("dtypes", {})
        found: dict[str, Array] = {}
        for entry in archive.namelist():
            if entry == EXTRA or not entry.endswith(".npy"):
                continue
            name = entry[: -len(".npy")]
            array = _read_entry(path, archive, entry, name)
            if name in names:
                array = array.view(dtype_from_name(str(names[name])))
            found[name] = array
        return found


def read_meta(path: str | Path) -> dict[str, Any]:
    """Returns the JSON data that `write_npz` was given, or an empty dictionary."""
    with _open(path) as archive:
        meta = _note(path, archive).get("meta", {})
        return meta if isinstance(meta, dict) else {}


def as_storable(name: str, array: Array) -> tuple[Array, str | None]:
    """Returns what stands in the file for ``array``, and its type's name if numpy lacks it.

    >>> as_storable("x", np.zeros(2, np.float32))[1] is None
    True
    >>> import ml_dtypes
    >>> bits, name = as_storable("x", np.ones(2, ml_dtypes.bfloat16))
    >>> bits.tolist(), name
    ([16256, 16256], 'bfloat16')
    """
    if array.dtype.hasobject or array.dtype.kind == "T":
        return _as_text(name, array), None
    if array.dtype.isbuiltin == 1:
        return array, None
    if array.dtype.fields is None and array.dtype.kind in "SU":
        return array, None
    if array.dtype.isbuiltin == 2:
        bits = array.copy(order="C").view(_BITS[array.dtype.itemsize])  # keeps a shape of ()
        return bits, array.dtype.name
    if array.dtype.kind in "biufc":  # a byte order that is not this machine's
        return array.astype(array.dtype.newbyteorder("=")), None
    raise InputError(f"Tensor '{name}' has type {array.dtype}, which cannot be stored.")


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Returns the name of a type, as `dtype_from_name` reads it.

    >>> dtype_name(np.dtype("<f4"))
    'float32'
    """
    return "string" if dtype.kind in "OUST" else dtype.name


def dtype_from_name(name: str) -> np.dtype[Any]:
    """Returns the numpy type of a name, those of ``ml_dtypes`` included.

    >>> dtype_from_name("bfloat16").itemsize
    2

    Raises:
        InputError: No such type.
    """
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        pass
    import ml_dtypes

    kind = getattr(ml_dtypes, name, None)
    if not isinstance(kind, type):
        raise InputError(f"'{name}' is no tensor type that is known here.")
    return np.dtype(kind)


def _jsonable(value: Any) -> Any:
    """Engines describe themselves with what they have: numpy numbers, paths, enums."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_bytes(file: IO[bytes], data: bytes) -> None:
    file.write(data)


def _as_text(name: str, array: Array) -> Array:
    flat = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.ravel()]
    if not all(isinstance(v, str) for v in flat):
        raise InputError(
            f"Tensor '{name}' holds Python objects; give an array of numbers, booleans or strings."
        )
    return np.array(flat, dtype=np.str_).reshape(array.shape)


def _write_zip(
    file: IO[bytes], stored: Mapping[str, tuple[Array, str | None]], note: Mapping[str, Any]
) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, (array, _) in stored.items():
            if "\0" in name:
                raise InputError(f"Tensor name {name!r} holds a zero byte and cannot be stored.")
            info = zipfile.ZipInfo(name + ".npy", _EPOCH)
            with archive.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
        if note["dtypes"] or "meta" in note:
            archive.writestr(zipfile.ZipInfo(EXTRA, _EPOCH), json.dumps(note, sort_keys=True))


def _open(path: str | Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; name an .npz file in it.") from None
    except zipfile.BadZipFile:
        raise InputError(
            f"{path} is not an .npz archive or is truncated; write it again with numpy.savez."
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None


def _note(path: str | Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    if EXTRA not in archive.namelist():
        return {}
    try:
        note = json.loads(archive.read(EXTRA))
    except (ValueError, RecursionError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: the entry {EXTRA} is damaged ({error}).") from None
    return note if isinstance(note, dict) else {}


def _read_entry(path: str | Path, archive: zipfile.ZipFile, entry: str, name: str) -> Array:
    try:
        with archive.open(entry) as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        if "bject array" in str(error):
            raise InputError(
                f"{path}: array '{name}' holds Python objects (pickled), which are never loaded;"
                " save it with a number, boolean or string type (x.astype(...))."
            ) from None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: array '{name}' is damaged ({reason}).") from None
    return array
