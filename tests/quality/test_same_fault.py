"""One fault in other models is one signature; other faults of one operator are others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tapsect
from support.build import Built, Net
from support.nights import tiny
from tapsect.triage.signatures import of_finding

NORM = "LayerNormalization"
FAULTS: Mapping[str, Mapping[str, Any]] = {
    "scaled": {"kind": "value", "nodes": NORM},
    "shifted": {"kind": "value", "nodes": NORM, "scale": 1.0, "offset": 0.2},
    "one column": {"kind": "channel", "nodes": NORM, "axis": 1, "index": 2},
    "one element": {"kind": "element", "nodes": NORM, "scale": -3.0},
    "not finite": {"kind": "nonfinite", "nodes": NORM, "limit": 0.5, "becomes": "nan"},
    "crash": {"kind": "crash", "nodes": NORM},
    "refused": {"kind": "build_error", "nodes": NORM, "message": "no tactic for node {node}"},
    "another operator": {"kind": "value", "nodes": "Tanh"},
    "two operators": {"kind": "fusion", "nodes": f"{NORM},Tanh"},
}


def digest(built: Built, scope: str, fault: Mapping[str, Any], folder: Path) -> str:
    model, inputs = built.save(folder)
    nodes = [f"{scope}/{name}" for name in fault["nodes"].split(",")]
    options = {"faults": [{**fault, "nodes": nodes}], "strict": False}
    finding = tapsect.bisect(
        model, inputs=[inputs], engine="planted", engine_options=options, out=folder / "out",
        budget=0,
    )  # fmt: skip
    signature = of_finding(finding)
    assert signature is not None, finding.message
    return signature.digest


@pytest.mark.slow
def test_one_fault_joins_and_others_stay_apart(tmp_path: Path) -> None:
    """Each fault in two models that share no name, weight or size."""
    models = {"a": tiny("a", size=6), "b": tiny("b", seed=5, size=16)}
    found = {
        name: {digest(b, scope, fault, tmp_path / name / scope) for scope, b in models.items()}
        for name, fault in FAULTS.items()
    }
    assert {name: len(digests) for name, digests in found.items()} == dict.fromkeys(FAULTS, 1)
    assert len(frozenset().union(*found.values())) == len(FAULTS), found


def test_a_neighbour_of_another_type_is_no_other_fault(tmp_path: Path) -> None:
    """What stands around the operator at fault differs from model to model."""

    def between(before: str, after: str) -> Built:
        net = Net()
        with net.scope("s"):
            x = net.op(before, net.input("x", (3, 8)))
            y = net.op("Softmax", net.op("MatMul", x, net.weight(8, 8)), axis=-1)
            net.output(net.op(after, y))
        return net.build()

    fault = {"kind": "value", "nodes": "MatMul", "scale": 1.5}
    one = digest(between("Relu", "Tanh"), "s", fault, tmp_path / "1")
    assert one == digest(between("Sigmoid", "Neg"), "s", fault, tmp_path / "2")
