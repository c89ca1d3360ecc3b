"""Why a build failed, read from its log; which tactics it timed."""

import pytest

from debugtaps.engines.trt.log import (
    BuildStopped,
    NoMemory,
    NotTaken,
    TensorRtError,
    build_failure,
    errors_of,
    parse_failure,
    profiled,
)
from support.trt_logs import CANCELLED, MEMORY, MYELIN, NO_GPU, SPAN, TACTICS

LAYERS = {"node_of_a": "a", "n0": "n0", "tail": "tail", "helper": ""}


def failure(*texts: str, stopped: str = "") -> BaseException:
    return build_failure([("ERROR", text) for text in texts], LAYERS, stopped=stopped)


def test_lines_that_only_tell_of_the_missing_gpu_are_dropped() -> None:
    assert errors_of([("ERROR", NO_GPU), ("WARNING", "w"), ("INTERNAL_ERROR", "e")]) == ["e"]


def test_a_refusal_is_told_as_one_with_the_node() -> None:
    error = failure(MYELIN, NO_GPU)
    assert isinstance(error, NotTaken)
    assert str(error).startswith("not supported: Myelin: [pass.cpp:337")
    assert str(error).endswith("(ONNX node 'n0')")


def test_the_ends_of_a_fused_span_are_named_by_their_onnx_names() -> None:
    error = failure(SPAN)
    assert isinstance(error, NotTaken)
    assert str(error).endswith("(ONNX node 'a', 'tail')")


def test_memory_and_time_have_kinds_of_their_own() -> None:
    assert isinstance(failure(MEMORY, SPAN), NoMemory)
    assert isinstance(failure(CANCELLED), BuildStopped)
    assert str(failure("x", stopped="too long")) == "too long"


def test_a_build_that_needs_a_gpu_says_so_and_a_silent_one_says_that() -> None:
    assert "needs a GPU" in str(failure(NO_GPU))
    assert "logged no error" in str(failure())


def parser_error(**given: str) -> dict[str, str]:
    return {"code": "INVALID_NODE", "desc": "", "name": "n", "op": "Foo", **given}


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ({"code": "UNSUPPORTED_NODE", "desc": "false"}, NotTaken,
         "node 'n' (Foo): unsupported operator"),
        ({"desc": "creator && \"Plugin not found, are the name…\"", "name": "node_of_y"}, NotTaken,
         "node 'y' (Foo): unsupported operator: creator"),
        ({"desc": "Invalid Node - n\nSUM must have same input types"}, TensorRtError,
         "node 'n' (Foo): INVALID_NODE: Invalid Node - n SUM must have"),
        ({"code": "MODEL_DESERIALIZE_FAILED", "desc": "no", "op": ""}, TensorRtError,
         "the model: MODEL_DESERIALIZE_FAILED: no"),
    ],
)  # fmt: skip
def test_parser_errors_name_node_and_reason(
    error: dict[str, str], kind: type[TensorRtError], text: str
) -> None:
    told = parse_failure([parser_error(**error)], [], {"node_of_y": "y"})
    assert type(told) is kind
    assert str(told).startswith(text)


def test_a_parser_without_an_error_is_not_taken_for_success() -> None:
    assert "no network" in str(parse_failure([], [("ERROR", NO_GPU)], {}))
    assert str(parse_failure([], [("ERROR", "why")], {})) == "why"


def test_timed_tactics_are_read_by_key() -> None:
    (timed,) = profiled([("VERBOSE", TACTICS)])
    assert timed.op == "matMul1"
    assert timed.key == "0x1814870c44ff0f8574df6e3dda04cbd7"
    assert timed.tactics == {
        0x6660000000001: "sm80_xmma_gemm_A",
        0x6660000000002: "sm80_xmma_gemm_B",
    }
    assert timed.selected == 0x6660000000001
