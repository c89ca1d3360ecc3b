"""Inputs from files, scripts and a seed; what does not fit is named with its mend."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

from debugtaps import (
    InputError,
    InputSpec,
    load_golden,
    load_inputs,
    parse_input_shapes,
    random_inputs,
    write_npz,
)

X = InputSpec("x", np.dtype(np.float32), ("N", 3))
MASK = InputSpec("mask", np.dtype(np.int64), ("N", None))
BF16 = np.dtype(ml_dtypes.bfloat16)


def x(n: int = 2) -> np.ndarray[Any, np.dtype[Any]]:
    return np.ones((n, 3), np.float32)


def encoded(array: np.ndarray[Any, Any]) -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=array.dtype.hasobject)
    text = base64.b64encode(stream.getvalue()).decode()
    return {"array": text, "polygraphy_class": "ndarray"}


def lazy(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"values": encoded(array), "polygraphy_class": "LazyArray"}


def results(*runners: str) -> dict[str, Any]:
    runs = [
        {
            "outputs": {"y": lazy(np.full(2, float(i)))},
            "runtime": None,
            "runner_name": "r",
            "polygraphy_class": "IterationResult",
        }
        for i in range(2)
    ]
    return {"lst": [[name, runs] for name in runners], "polygraphy_class": "RunResults"}


# ------------------------------------------------------------------ where samples come from


def test_each_npz_is_one_sample(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_npz(tmp_path / f"{name}.npz", {"x": x()})
    samples = load_inputs([tmp_path / "a.npz", str(tmp_path / "b.npz")], [X])
    assert [Path(s.origin).name for s in samples] == ["a.npz", "b.npz"]


def test_a_folder_gives_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_npz(tmp_path / f"{name}.npz", {"x": x()})
    assert [Path(s.origin).name for s in load_inputs([tmp_path], [X])] == ["a.npz", "b.npz"]


def test_polygraphy_json_may_hold_many(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"x": encoded(x(n))} for n in (1, 2)]))
    samples = load_inputs([path], [X])
    assert [s.feeds["x"].shape[0] for s in samples] == [1, 2]
    assert samples[1].origin.endswith("in.json, sample 1")


def test_older_polygraphy_files_are_read(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, x(1))
    marker = "polygraphy_serialized_json_type"
    entry = {"array": stream.getvalue().decode("latin-1"), "__polygraphy_encoded_ndarray": marker}
    (tmp_path / "in.json").write_text(json.dumps([{"x": entry}]))
    assert load_inputs([tmp_path / "in.json"], [X])[0].feeds["x"].shape == (1, 3)


def test_a_script_yields_samples(tmp_path: Path) -> None:
    script = tmp_path / "data.py"
    script.write_text(
        "import numpy as np\n"
        "def load_data():\n    for n in (1, 2):\n        yield {'x': np.ones((n, 3), np.float32)}\n"
        "def other():\n    return {'x': np.ones((5, 3), np.float32)}\n"
    )
    assert [s.feeds["x"].shape[0] for s in load_inputs([script], [X])] == [1, 2]
    assert load_inputs([f"{script}:other"], [X])[0].feeds["x"].shape[0] == 5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1/0", "data.py raised ZeroDivisionError"),
        ("x = 1", r"has no function load_data\(\)"),
        ("def load_data(): return []", "yielded no sample"),
        ("def load_data(): return [1]", "yielded a int, expected a dictionary"),
        ("def load_data(:", "raised SyntaxError"),
    ],
)
def test_bad_scripts_are_named(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "data.py").write_text(body)
    with pytest.raises(InputError, match=message):
        load_inputs([tmp_path / "data.py"], [X])


@pytest.mark.parametrize("name", ["none.npz", "none.json", "none.py", "none.bin"])
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} does not exist"):
        load_inputs([tmp_path / name], [X])


@pytest.mark.parametrize(
    "text", ["", "[", "3", '{"lst": 3}', '[{"x": 1}]', '[{"x": {"array": "?"}}]']
)
def test_bad_json_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "in.json").write_text(text)
    with pytest.raises(InputError, match=r"in\.json"):
        load_inputs([tmp_path / "in.json"], [X])


def test_pickles_in_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"x": encoded(np.array([{}], object))}]))
    with pytest.raises(InputError, match="'x' holds Python objects"):
        load_inputs([path], [X])
    path.write_text(json.dumps([{"x": {"tensor": "abc", "polygraphy_class": "Tensor"}}]))
    with pytest.raises(InputError, match=r"'x' is a torch tensor .*numpy\(\)"):
        load_inputs([path], [X])


def test_golden_values_of_both_kinds(tmp_path: Path) -> None:
    write_npz(tmp_path / "g.npz", {"y": np.ones(2)})
    (tmp_path / "g.json").write_text(json.dumps(results("trt")))
    assert load_golden(tmp_path / "g.npz")[0]["y"].tolist() == [1, 1]
    assert [s["y"][0] for s in load_golden(tmp_path / "g.json")] == [0, 1]
    (tmp_path / "two.json").write_text(json.dumps(results("trt", "ort")))
    with pytest.raises(InputError, match="'trt', 'ort'; keep one"):
        load_golden(tmp_path / "two.json")


# ------------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"inputs\[0\] lacks inputs 'x' \(float32 \[N,3\]\), 'mask' \(int64 \[N,\?\]\)"),
        ({"x": x(), "masc": 0}, "holds 'masc', which is no input.*did you mean 'mask'"),
        ({"x": x(), "mask": np.ones((3, 1), np.int64)}, "dimension 'N' is 2 in input 'x' and 3"),
        ({"x": np.ones((2, 4), np.float32)}, "lacks input 'mask'"),
        ({"x": x(), "mask": np.ones(2, np.int64)}, r"'mask' has shape \[2\], .* \[N,\?\]"),
        ({"x": np.ones((2, 3)), "mask": np.ones((2, 1), np.int64)}, r"is float64, .*float32; .*"),
        ({"x": np.array([[{}]]), "mask": np.ones((2, 1), np.int64)}, "Python objects"),
    ],
)
def test_misfits_are_named(feeds: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_inputs([feeds], [X, MASK])


def test_a_wrong_static_size_is_named() -> None:
    with pytest.raises(InputError, match=r"'x' has shape \[2, 4\], the model expects \[N,3\]"):
        load_inputs([{"x": np.ones((2, 4), np.float32)}], [X])


def test_inputs_with_a_default_may_be_left_out() -> None:
    weight = InputSpec("w", np.dtype(np.float32), (3,), optional=True)
    assert set(load_inputs([{"x": x()}], [X, weight])[0].feeds) == {"x"}


def test_only_the_representation_is_changed() -> None:
    spec = InputSpec("x", BF16, (2,))
    bits = np.ones(2, BF16).view(np.uint16)
    for given in (bits, bits.view("V2"), np.ones(2, BF16)):
        assert load_inputs([{"x": given}], [spec])[0].feeds["x"].dtype == BF16
    with pytest.raises(InputError, match="is float32, the model expects bfloat16; give it as"):
        load_inputs([{"x": np.ones(2, np.float32)}], [spec])
    swapped = np.ones((1, 3), ">f4")
    assert load_inputs([{"x": swapped}], [X])[0].feeds["x"].dtype.isnative


def test_text_inputs() -> None:
    spec = InputSpec("s", "string", (2,))
    for words in (["a", "b"], np.array([b"a", b"b"]), np.array(["a", "b"], object)):
        assert load_inputs([{"s": words}], [spec])[0].feeds["s"].tolist() == ["a", "b"]
    with pytest.raises(InputError, match="is int64, the model expects string"):
        load_inputs([{"s": np.ones(2, np.int64)}], [spec])


# ------------------------------------------------------------------------------- random data


def test_random_data_is_seeded_and_fits() -> None:
    first, warnings = random_inputs([X, MASK], {"x": [4, 3], "mask": [4, 2]}, seed=1)
    again, _ = random_inputs([X, MASK], {"x": [4, 3], "mask": [4, 2]}, seed=1)
    other, _ = random_inputs([X, MASK], {"x": [4, 3], "mask": [4, 2]}, seed=2)
    assert not warnings
    assert (first.feeds["x"] == again.feeds["x"]).all()
    assert (first.feeds["x"] != other.feeds["x"]).any()
    assert first.origin == "random data, seed 1"
    load_inputs([first.feeds], [X, MASK])


def test_a_dynamic_dimension_becomes_one_and_is_said() -> None:
    sample, warnings = random_inputs([X, MASK])
    assert sample.feeds["x"].shape == (1, 3)
    assert sample.feeds["mask"].shape == (1, 1)
    assert "'x': dynamic dimension N was taken as 1" in warnings[0]
    assert "--input-shapes x:[N,3]" in warnings[0]
    _, warnings = random_inputs([InputSpec("y", np.dtype("f4"), ("a", "b"))])
    assert "'y': dynamic dimensions a, b were taken as 1" in warnings[0]


def test_one_shape_fixes_the_dimension_of_the_others() -> None:
    sample, warnings = random_inputs([MASK, X], {"x": (5, 3)})
    assert sample.feeds["mask"].shape == (5, 1)
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        np.int8,
        np.uint8,
        np.int32,
        np.bool_,
        np.complex64,
        BF16,
        "string",
        ml_dtypes.int4,
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (50,)])
def test_every_type_is_drawn_within_itself(dtype: Any, shape: tuple[int, ...]) -> None:
    kind: np.dtype[Any] | Literal["string"] = "string" if dtype == "string" else np.dtype(dtype)
    spec = InputSpec("x", kind, shape)
    sample, _ = random_inputs([spec])
    assert load_inputs([sample.feeds], [spec])[0].feeds["x"].shape == shape


def test_wide_integers_stay_small() -> None:
    sample, _ = random_inputs([InputSpec("i", np.dtype(np.int64), (100,))])
    assert set(sample.feeds["i"].tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"y": [1]}, "--input-shapes names 'y'; its inputs are 'x'"),
        ({"x": [1, 4]}, r"--input-shapes: input 'x' has shape \[1, 4\]"),
        ({"x": [3]}, r"the model expects \[N,3\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: dict[str, list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        random_inputs([X], shapes)


@pytest.mark.parametrize("text", ["x", "x:1,2", "x:[1,-2]", ":[1]", "x:[a]", "x:[1,]"])
def test_bad_shape_texts_are_named(text: str) -> None:
    with pytest.raises(InputError, match="is not of the form"):
        parse_input_shapes([text])
