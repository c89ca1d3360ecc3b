"""The framing that both ends share, the noise, and the promise of Python 3.8 syntax."""

import ast
import io
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from debugtaps.engines import worker
from debugtaps.engines.worker import Spread, decode, encode, factors, plain

ENGINES = Path(worker.__file__).parent


@pytest.mark.parametrize("name", ["worker.py", "ort.py", "onnx_reference.py"])
def test_files_for_old_interpreters_are_python_3_8(name: str) -> None:
    source = (ENGINES / name).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))
    assert "from __future__ import annotations" in source


def test_the_worker_imports_nothing_but_numpy_and_the_library() -> None:
    tree = ast.parse((ENGINES / "worker.py").read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"numpy"}


def reader(data: bytes) -> Callable[[memoryview], None]:
    stream = io.BytesIO(data)

    def read(view: memoryview) -> None:
        assert stream.readinto(view) == len(view)

    return read


def across(array: Any) -> Any:
    data = b"".join(bytes(piece) for piece in encode({"op": "x"}, {"feed": {"t": array}}))
    header, groups = decode(reader(data))
    assert header == {"op": "x", "notes": []}
    return groups["feed"]["t"]


def same(one: Any, other: Any) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
    )


KINDS = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.floating_dtypes(sizes=(16, 32, 64), endianness="="),
    hnp.complex_number_dtypes(sizes=(64, 128), endianness="="),
)


@given(hnp.arrays(KINDS, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)))
def test_arrays_cross_bit_by_bit(array: Any) -> None:
    assert same(across(array), array)


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    + ["int4", "uint4", "float4_e2m1fn"],
)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 2)])
def test_types_that_numpy_lacks_cross(name: str, shape: tuple[int, ...]) -> None:
    array = np.array([1, 0, 1, 1]).astype(getattr(ml_dtypes, name))
    array = np.resize(array, shape) if shape else array[0].reshape(())
    assert same(across(array), array)


def test_without_ml_dtypes_bits_come_tagged_and_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "ml_dtypes", None)
        tagged = across(array)
        assert tagged.dtype.names == ("bfloat16",)
    assert same(across(tagged), array)


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3).T, np.arange(6)[::-2]])
def test_strided_arrays_cross_in_c_order(array: Any) -> None:
    assert np.array_equal(across(array), array)


def test_foreign_byte_order_is_turned() -> None:
    seen = across(np.array([1, 2], ">i4"))
    assert seen.dtype == np.int32
    assert seen.tolist() == [1, 2]


@given(
    hnp.arrays(
        object, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.text(max_size=4)
    )
)
def test_text_crosses_as_objects(array: Any) -> None:
    seen = across(array)
    assert seen.dtype == object
    assert seen.shape == array.shape
    assert seen.tolist() == array.tolist()


def test_bytes_and_fixed_width_text_become_str() -> None:
    assert across(np.array([b"a", b"\xff"])).tolist() == ["a", "\udcff"]
    assert across(np.array(["a", "bcd"])).tolist() == ["a", "bcd"]


@pytest.mark.parametrize(
    "value", [None, [np.ones(2)], {"a": 1}, np.array([{}], object), np.array(["2020"], "M8[D]")]
)
def test_what_is_no_tensor_is_left_out_with_a_note(value: object) -> None:
    arrays = {"odd": value, "even": np.ones(2)}
    data = b"".join(bytes(piece) for piece in encode({}, {"output": arrays}))
    header, groups = decode(reader(data))
    assert list(groups["output"]) == ["even"]
    assert "'odd'" in header["notes"][0]


def test_plain_makes_json_of_what_engines_say() -> None:
    said = {1: np.float32(0.5), "s": {"b", "a"}, "t": (None, True), "o": Path("x")}
    assert plain(said) == {"1": 0.5, "s": ["a", "b"], "t": [None, True], "o": "x"}


class TestFactors:
    def test_uniform_is_the_documented_stream(self) -> None:
        random = np.random.Generator(np.random.PCG64(7)).random(5)
        wanted = (1 + 0.25 * (2 * random - 1)).astype(np.float32)
        assert np.array_equal(factors(5, "float32", "uniform", 0.25, 7), wanted)

    @pytest.mark.parametrize(("mode", "value"), [("plus", 1.25), ("minus", 0.75), ("one", 1.0)])
    def test_coherent_modes(self, mode: str, value: float) -> None:
        assert factors(3, "float64", mode, 0.25, 0).tolist() == [value] * 3


class TestSpread:
    def test_is_the_rms_deviation(self) -> None:
        spread = Spread(np.array([1.0, 2.0], np.float32))
        spread.add(np.array([4.0, 2.0], np.float32))
        spread.add(np.array([5.0, 2.0], np.float32))
        assert spread.kept == 2
        assert spread.result().dtype == np.float32
        assert spread.result().tolist() == pytest.approx([math.sqrt(12.5), 0.0])

    def test_keeps_float64(self) -> None:
        spread = Spread(np.array([1.0]))
        spread.add(np.array([1.0 + 2**-40]))
        assert spread.result().dtype == np.float64
        assert spread.result()[0] == 2**-40

    def test_equal_nonfinite_values_do_not_deviate(self) -> None:
        spread = Spread(np.array([np.nan, np.inf, -np.inf, np.inf, 1.0, np.nan], np.float32))
        spread.add(np.array([np.nan, np.inf, -np.inf, -np.inf, np.nan, 1.0], np.float32))
        assert spread.result().tolist() == [0, 0, 0, np.inf, np.inf, np.inf]

    def test_one_sided_nonfinite_values_stay_infinite(self) -> None:
        spread = Spread(np.array([1.0], np.float32))
        spread.add(np.array([np.inf], np.float32))
        spread.add(np.array([1.0], np.float32))
        assert spread.result().tolist() == [np.inf]

    @pytest.mark.parametrize("base", [np.array([1, 2, 3]), np.array(["a", "b", "c"], object)])
    def test_discrete_values_give_the_mask_of_any_change(self, base: Any) -> None:
        spread = Spread(base)
        for at in (0, 2):
            other = base.copy()
            other[at] = base[1]
            spread.add(other)
        assert spread.result().tolist() == [True, False, True]
        assert spread.result().dtype == bool

    def test_bfloat16_counts_as_float(self) -> None:
        spread = Spread(np.array([1.0], ml_dtypes.bfloat16))
        spread.add(np.array([1.5], ml_dtypes.bfloat16))
        assert spread.result().tolist() == [0.5]

    @pytest.mark.parametrize("base", [1 + 1j, 3.0])
    def test_scalars_of_every_float_type_have_one(self, base: complex) -> None:
        spread = Spread(np.array(base))
        spread.add(np.array(base + 2))
        spread.add(np.array(np.nan if base == 3 else base))
        assert spread.result().shape == ()
        assert spread.result() == (np.inf if base == 3 else math.sqrt(2))

    def test_another_shape_or_type_is_not_kept(self) -> None:
        spread = Spread(np.ones(2, np.float32))
        spread.add(np.ones(3, np.float32))
        spread.add(np.ones(2, np.float64))
        assert spread.kept == 0
        assert np.isinf(spread.result()).all()

    def test_the_base_is_a_copy(self) -> None:
        buffer = np.ones(2, np.float32)  # an engine may hand out the buffer it writes to
        spread = Spread(buffer)
        buffer[:] = 3
        spread.add(buffer)
        assert spread.result().tolist() == [2, 2]
