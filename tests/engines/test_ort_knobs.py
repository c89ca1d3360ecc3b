"""ONNX Runtime names its own graph passes, and each of them can be left out by that name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from debugtaps import Host, resolve
from support.bugs import interpreter
from tapsect.published_faults import layernorm_keepdims0


def test_the_passes_are_those_that_this_version_logs() -> None:
    with Host(resolve("ort", {})) as engine:
        knobs = engine.knobs()
        assert engine.tail() == ""  # the log went to a file of its own
    names = knobs["disabled_optimizers"]["any"]
    assert {"ConstantFolding", "MatMulAddFusion", "SkipLayerNormFusion"} <= set(names)
    assert {"EliminateIdentity", "GemmTransposeFusion"} <= set(names)  # rules, which are not logged
    assert len(names) == len(set(names)) > 60
    assert not any("RuleBased" in name for name in names)


def test_every_option_it_names_is_one_the_engine_takes() -> None:
    with Host(resolve("ort", {})) as engine:
        knobs = dict(engine.knobs())
        for option, values in knobs.items():
            for value in values["any"][:1] if isinstance(values, dict) else values:
                engine.turn({option: value})
                engine.ready()


def test_a_fusion_is_left_out_by_its_name(tmp_path: Path) -> None:
    model, feeds = layernorm_keepdims0()
    onnx.save(model, tmp_path / "m.onnx")
    with Host(resolve("ort", {})) as engine:
        fused = engine.build(tmp_path / "m.onnx").run(feeds)["scores"]
        names = [n for n in engine.knobs()["disabled_optimizers"]["any"] if "LayerNorm" in n]
        engine.turn({"disabled_optimizers": names})
        plain = engine.build(tmp_path / "m.onnx").run(feeds)["scores"]
        engine.turn({"graph_optimization_level": "disable"})
        right = engine.build(tmp_path / "m.onnx").run(feeds)["scores"]
    assert np.abs(plain - right).max() < 1e-6 < np.abs(fused - right).max()


@pytest.mark.bugs
@pytest.mark.parametrize("version", ["1.16.3", "1.19.2"])
def test_old_versions_name_theirs(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no interpreter with ONNX Runtime {version} can be made here")
    with Host(resolve("ort", {}), python=python) as engine:
        assert "LayerNormFusion" in engine.knobs()["disabled_optimizers"]["any"]
