"""A trtexec command line in, engine options out, and the line again; options that cannot be."""

import pytest

from debugtaps.engines.trt.command import parse_command, reproduce
from debugtaps.engines.trt.settings import (
    BadOption,
    check_data,
    checked,
    covers,
    parse_bytes,
    read_profiles,
)

LINE = (
    "trtexec --onnx=m.onnx --fp16 --noTF32 --minShapes=x:1x3,y:4 --optShapes=x:2x3,y:4 "
    "--maxShapes=x:8x3,y:4 --memPoolSize=workspace:512 --builderOptimizationLevel=5 "
    "--precisionConstraints=obey --layerPrecisions=conv:fp32 --timingCacheFile=t.cache --verbose "
    "--iterations=10 --saveEngine=e.plan"
)


def test_what_decides_a_build_is_taken_over_and_what_measures_is_not() -> None:
    assert parse_command(LINE) == {
        "tf32": False,
        "memory_pool_limits": {"WORKSPACE": 512 << 20},
        "builder_optimization_level": 5,
        "layer_precisions": {"conv": "fp32"},
        "timing_cache": "t.cache",
        "save_timing_cache": "t.cache",
        "flags": ["FP16", "OBEY_PRECISION_CONSTRAINTS"],
        "strongly_typed": False,
        "profiles": [{"x": [[1, 3], [2, 3], [8, 3]], "y": [[4], [4], [4]]}],
    }


def test_a_strongly_typed_line_stays_strongly_typed() -> None:
    assert "strongly_typed" not in parse_command("trtexec --stronglyTyped --fp16")
    assert parse_command("trtexec --stronglyTyped") == {}


def test_profiles_are_kept_apart() -> None:
    line = "trtexec --profile=0 --shapes=x:1 --profile=1 --minShapes=x:2 --maxShapes=x:4"
    assert parse_command(line)["profiles"] == [{"x": [[1]] * 3}, {"x": [[2], [4], [4]]}]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("trtexec --loadEngine=e.plan", "--engine-file"),
        ("trtexec --noSuchFlag", "--noSuchFlag"),
        ("trtexec fp16", "'fp16'"),
        ("trtexec --shapes=x", "x:1x3x8x8"),
        ("trtexec --shapes=x:1xtwo", "x:1xtwo"),
        ("trtexec --tacticSources=-CUBLAS", "tactic_sources"),
        ("trtexec '--fp16", "cannot be read"),
    ],
)
def test_a_line_that_is_not_understood_is_refused(line: str, word: str) -> None:
    with pytest.raises(BadOption, match=word):
        parse_command(line)


def test_the_line_that_reproduces_says_the_same_again() -> None:
    again = reproduce(checked(parse_command(LINE)), {}, rtx=False)
    assert again.startswith("trtexec --onnx=model.onnx ")
    assert parse_command(again) == parse_command(LINE)


def test_a_strongly_typed_build_says_so_and_takes_its_shapes_from_the_data() -> None:
    data = {"x": {"min": [2, 3], "opt": [2, 3], "max": [4, 3]}}
    assert reproduce(checked({}), data, rtx=False) == (
        "trtexec --onnx=model.onnx --stronglyTyped --minShapes=x:2x3 --optShapes=x:2x3 "
        "--maxShapes=x:4x3"
    )
    assert reproduce(checked({"tf32": False}), {}, rtx=True) == (
        "tensorrt_rtx --onnx=model.onnx --noTF32"
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"profiles": "x"}, "profiles"),
        ({"profiles": [{"x": [[1], [2]]}]}, "min, opt, max"),
        ({"profiles": [{"x": [[4], [2], [8]]}]}, "min <= opt <= max"),
        ({"profiles": [{"x": [["a"], [2], [8]]}]}, "no shape"),
        ({"memory_pool_limits": {"workspace": "much"}}, "much"),
        ({"memory_pool_limits": [1]}, "mapping"),
        ({"flags": 3}, "flags"),
        ({"tap_mode": "spy"}, "spy"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, object], word: str) -> None:
    with pytest.raises(BadOption, match=word):
        checked(options)


def test_sizes_are_read_as_people_write_them() -> None:
    assert [parse_bytes(s, "m") for s in ("4G", "512MiB", "1.5K", "7", 8)] == [
        4 << 30, 512 << 20, 1536, 7, 8,
    ]  # fmt: skip


def test_nodes_to_keep_in_fp32_may_be_a_list() -> None:
    assert checked({"layer_precisions": ["a", "b"]}).layer_precisions == {"a": "fp32", "b": "fp32"}


def test_what_is_no_option_is_a_setting_of_the_builder() -> None:
    assert checked({"max_num_tactics": 3, "tf32": False}).config == {"max_num_tactics": 3}


PROFILES = read_profiles([{"x": [[1, 3], [2, 3], [4, 3]]}, {"x": [[8, 3], [8, 3], [9, 3]]}])


def ranges(low: list[int], high: list[int]) -> dict[str, dict[str, list[int]]]:
    return {"x": {"min": low, "opt": low, "max": high}}


def test_data_must_lie_within_one_profile() -> None:
    check_data(PROFILES, ranges([1, 3], [4, 3]))
    check_data(PROFILES, ranges([9, 3], [9, 3]))
    check_data((), ranges([99], [99]))
    with pytest.raises(BadOption, match=r"outside \[1, 3\] to \[4, 3\]"):
        check_data(PROFILES, ranges([4, 3], [8, 3]))


def test_a_shape_tensor_is_held_by_its_values() -> None:
    profile = read_profiles([{"s": [[1, 1], [2, 2], [4, 4]]}])[0]
    seen = {"min": [2], "opt": [2], "max": [2]}
    assert covers(profile, {"s": {**seen, "values": [[2, 3], [2, 3], [3, 4]]}}) is None
    assert covers(profile, {"s": {**seen, "values": [[2, 3], [2, 3], [3, 5]]}}) is not None
