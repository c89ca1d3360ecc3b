"""Tensors on disk: whole or not at all, any name, never a pickle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from debugtaps import (
    InputError,
    read_meta,
    read_npz,
    write_atomic,
    write_json_atomic,
    write_npz,
    write_text_atomic,
)


@pytest.mark.parametrize("name", ["x", "file", "a/b", "../up", "x.npy", "", "ünï", "a b", "arr_0"])
def test_any_tensor_name_survives(tmp_path: Path, name: str) -> None:
    write_npz(tmp_path / "t.npz", {name: np.arange(3)})
    assert read_npz(tmp_path / "t.npz")[name].tolist() == [0, 1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["t.npz"]


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        np.float64,
        np.int8,
        np.uint64,
        np.bool_,
        np.complex64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.int4,
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_type_and_shape_comes_back(
    tmp_path: Path, dtype: type, shape: tuple[int, ...]
) -> None:
    array: np.ndarray[Any, Any] = np.ones(shape, dtype)
    write_npz(tmp_path / "t.npz", {"x": array})
    back = read_npz(tmp_path / "t.npz")["x"]
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert (back == array).all()


def test_bfloat16_stands_as_bits_that_numpy_reads(tmp_path: Path) -> None:
    write_npz(tmp_path / "t.npz", {"x": np.ones(2, ml_dtypes.bfloat16), "y": np.zeros(1)})
    with np.load(tmp_path / "t.npz", allow_pickle=False) as archive:
        assert archive["x"].dtype == np.uint16
        assert archive["y"].dtype == np.float64


def test_text_needs_no_pickle(tmp_path: Path) -> None:
    words = np.array([["a", "bc"], ["", "ü"]], dtype=object)
    write_npz(tmp_path / "t.npz", {"x": words})
    assert read_npz(tmp_path / "t.npz")["x"].tolist() == words.tolist()


def test_order_and_transposed_arrays_survive(tmp_path: Path) -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    write_npz(tmp_path / "t.npz", {"x": array})
    assert (read_npz(tmp_path / "t.npz")["x"] == array).all()


def test_a_path_may_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz("values.npz", {"x": np.arange(3)}, meta={"of": 1})
    assert read_npz("values.npz")["x"].tolist() == [0, 1, 2]
    assert read_meta("values.npz") == {"of": 1}


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_npz(tmp_path / name, {"x": np.arange(3)}, meta={"k": 1})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert read_meta(tmp_path / "a.npz") == {"k": 1}


def test_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'x' holds Python objects"):
        write_npz(tmp_path / "t.npz", {"x": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("boom",))


def test_a_pickle_is_named_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "t.npz", bad=np.array([_Bomb()], dtype=object))
    with pytest.raises(InputError, match=r"'bad'.*pickled.*never loaded.*astype"):
        read_npz(tmp_path / "t.npz")
    assert not (tmp_path / "boom").exists()


def test_truncated_files_are_input_errors(tmp_path: Path) -> None:
    write_npz(tmp_path / "t.npz", {"x": np.arange(1000), "y": np.ones(50)}, meta={})
    whole = (tmp_path / "t.npz").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"cut\.npz is not an \.npz archive or is truncated"):
            read_npz(tmp_path / "cut.npz")


@pytest.mark.parametrize("entry", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr': 1}"])
def test_damaged_entries_are_input_errors(tmp_path: Path, entry: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("x.npy", entry)
    with pytest.raises(InputError, match="array 'x' is damaged"):
        read_npz(tmp_path / "t.npz")


def test_missing_files_and_folders_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_npz(tmp_path / "none.npz")
    with pytest.raises(InputError, match="is a folder"):
        read_npz(tmp_path)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    write_text_atomic(path, "before")

    def fail(_: Any) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, fail)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["t.txt"]


def test_json_is_strict_and_takes_what_engines_say(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "j.json", {"n": np.float32(0.5), "p": Path("a"), "s": "\ud800"})
    assert json.loads((tmp_path / "j.json").read_text()) == {"n": 0.5, "p": "a", "s": "\ud800"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_atomic(tmp_path / "j.json", {"n": float("nan")})
