"""Every name of TensorRT that the adapter uses exists in the real bindings of each version.

What the runtime half does has not run on a GPU here; that it calls what there is, has.
"""

import importlib.util
from pathlib import Path

import pytest

from support.trt_api import absent, bindings, names_used

pytestmark = [pytest.mark.engines]

ONLY_RTX = {
    "ComputeCapability", "DynamicShapesKernelSpecializationStrategy",
    "IBuilderConfig.num_compute_capabilities", "IBuilderConfig.set_compute_capability",
}  # fmt: skip
ONLY_WEAK = {"ILayer.precision", "ILayer.set_output_type"}
"""Asked for with ``hasattr`` before they are used."""

SINCE_10_11 = {"ICudaEngine.create_runtime_config"}
SINCE_10_8 = {"BuilderFlag.EDITABLE_TIMING_CACHE", "TimingCacheKey", "TimingCacheKey.parse",
              "TimingCacheValue", "ITimingCache.queryKeys", "ITimingCache.query",
              "ITimingCache.update"}  # fmt: skip


@pytest.mark.published
@pytest.mark.parametrize(
    ("requirement", "lacks"),
    [
        ("tensorrt-cu12-bindings==10.3.0", ONLY_RTX | SINCE_10_8 | SINCE_10_11),
        ("tensorrt-cu12-bindings==10.16.1.11", ONLY_RTX),
        ("tensorrt-cu13-bindings==11.4.0.106", ONLY_RTX | ONLY_WEAK),
    ],
)
def test_full_tensorrt_has_what_is_used(requirement: str, lacks: set[str], tmp_path: Path) -> None:
    try:
        folder = bindings(requirement, tmp_path)
    except RuntimeError as error:
        pytest.skip(f"no bindings here: {error}")
    version, missing = absent(names_used(), "tensorrt_bindings", folder)
    assert requirement.endswith(version.split(".post")[0])
    assert missing <= lacks
    assert missing >= ONLY_RTX & lacks - {"ComputeCapability"}


@pytest.mark.tensorrt_rtx
@pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="no tensorrt_rtx")
def test_tensorrt_rtx_has_what_is_used() -> None:
    _, missing = absent(names_used(), "tensorrt_rtx")
    assert missing <= ONLY_WEAK | {"init_libnvinfer_plugins"}


def test_a_name_that_went_away_would_be_seen() -> None:
    used = names_used()
    assert len(used) > 60
    assert {"BuilderFlag.TF32", "IExecutionContext.execute_async_v3", "ITensor.is_shape_tensor",
            "OnnxParser.supports_operator", "Builder.build_serialized_network"} <= used  # fmt: skip
