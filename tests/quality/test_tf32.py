"""Contractions in TF32, nobody having asked: a limit of the precision, and no cover for faults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support import tf32_engine, zoo
from support.build import Built
from support.diagnosing import Diagnosed, diagnose, trail_of

TF32 = f"{Path(tf32_engine.__file__)}:Tf32Engine"
CUT = pytest.mark.parametrize("truncate", [False, True], ids=["rounded", "cut-off"])
NODE = {"transformer": "layer0/attention/MatMul_1", "chain_cnn": "block1/Conv"}
SLOW = pytest.mark.slow


def on_tf32(
    built: Built, folder: Path, fault: Mapping[str, Any] | None = None, **options: Any
) -> Diagnosed:
    """Returns the finding for an engine in TF32, with or without a fault beside it."""
    told = {"inner": TF32, "inner_options": options}
    return diagnose(built, [fault] if fault else [], folder, options=told)


def assert_precision(found: Diagnosed, contractions: str, **nodes: str) -> None:
    finding, why = found.finding, trail_of(found)
    assert (finding.status, finding.cause) == ("diverges", "precision_limit"), why
    assert not finding.culprit_nodes, why
    assert finding.precision["classes"] == {"contractions": contractions, "the rest": "fp32"}, why
    assert finding.precision["effective"] == "tf32", why
    assert finding.precision.get("nodes", {}) == nodes, why
    assert finding.contributors, why


@pytest.mark.parametrize(
    ("name", "truncate"),
    [
        ("transformer", False),
        ("chain_cnn", True),
        pytest.param("transformer", True, marks=SLOW),
        pytest.param("chain_cnn", False, marks=SLOW),
    ],
)
def test_contractions_in_tf32_are_a_limit_of_the_precision(
    name: str, truncate: bool, tmp_path: Path
) -> None:
    assert_precision(on_tf32(zoo.NETWORKS[name](), tmp_path, truncate=truncate), "tf32")


def test_roundings_of_one_way_are_seen_beside_fp32_kernels_that_differ(tmp_path: Path) -> None:
    """An activation 8 floors of fp32 off, as GPU kernels are, is nothing beside TF32."""
    faint = {"kind": "value", "nodes": ["block2/Relu"], "error": 1e-6}
    found = on_tf32(zoo.chain_cnn(), tmp_path, faint, truncate=True)
    assert_precision(found, "tf32")
    assert "point one way" in found.finding.message


@CUT
@pytest.mark.parametrize("name", list(NODE))
def test_one_contraction_in_tf32_is_named_and_no_defect(
    name: str, truncate: bool, tmp_path: Path
) -> None:
    found = on_tf32(zoo.NETWORKS[name](), tmp_path, nodes=[NODE[name]], truncate=truncate)
    assert_precision(found, "fp32", **{NODE[name]: "tf32"})
    assert found.finding.contributors[0].node == NODE[name]
    assert f"node '{NODE[name]}' in tf32" in found.finding.message


def test_a_contraction_in_tf32_inside_a_kernel_is_no_defect_of_the_kernel(tmp_path: Path) -> None:
    """The kernel as a whole is beyond fp32; a look inside tells that one product is in TF32."""
    built = zoo.transformer()
    names = [node.name for node in built.model.graph.node]
    first = names.index("layer0/mlp/MatMul")
    kernel = names[first : first + 8]  # from one product to the next: no operator stands for it
    found = on_tf32(built, tmp_path, nodes=kernel[:1], kernels=[kernel])
    assert_precision(found, "fp32", **{kernel[0]: "tf32"})


@CUT
@pytest.mark.parametrize("alone", [pytest.param(False, marks=SLOW), True], ids=["all", "one"])
def test_fault_of_five_percent_is_found_in_tf32(
    alone: bool, truncate: bool, tmp_path: Path
) -> None:
    """Beside operators in TF32, and in the very one that computes so."""
    node = NODE["chain_cnn"]
    fault = {"kind": "value", "nodes": [node], "error": 0.05}
    nodes = [node] if alone else None
    found = on_tf32(zoo.chain_cnn(), tmp_path, fault, nodes=nodes, truncate=truncate)
    assert found.finding.cause == "engine_defect", trail_of(found)
    assert found.places == [frozenset({node})], trail_of(found)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"kind": "value", "error": 1e-3}, marks=SLOW),
        {"kind": "value", "offset": 1e-4},
        pytest.param({"kind": "channel", "error": 1e-3, "index": 1, "axis": -1}, marks=SLOW),
        {"kind": "element", "error": 1e-3, "index": 3},
    ],
    ids=["scale", "offset", "channel", "element"],
)
def test_fault_as_small_as_tf32_is_still_a_fault_where_it_has_an_order(
    fault: Mapping[str, Any], tmp_path: Path
) -> None:
    node = NODE["transformer"]
    found = on_tf32(zoo.transformer(), tmp_path, {**fault, "nodes": [node]}, nodes=[])
    assert found.finding.cause == "engine_defect", trail_of(found)
    assert found.places == [frozenset({node})], trail_of(found)


@CUT
@SLOW
def test_weights_round_alike_wherever_they_are_used(truncate: bool, tmp_path: Path) -> None:
    """An average over positions cancels noise, and not the rounding of a weight."""
    from support import published

    assert_precision(
        on_tf32(published.architecture("squeezenet"), tmp_path, truncate=truncate), "tf32"
    )
