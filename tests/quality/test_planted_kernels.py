"""Faults in fused kernels of engines that tell their kernels: named, and found in few builds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tapsect
from debugtaps import SpecError
from support import zoo
from support.diagnosing import Diagnosed, diagnose, trail_of
from support.planting import PLACES
from tapsect.report import render_text

PLACE = PLACES["chain"]
LONG = ("block2/Relu", "block3/Conv", "block3/Relu", "block4/Conv", "block4/Relu", "block5/Conv")


def fused(path: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"kind": "fusion", "nodes": list(path), "told": True, **more}


def located_in(found: Diagnosed) -> int:
    """Returns the builds until the part was seen to fail alone, that one included."""
    steps = [s for s in found.finding.trail if s.step in ("build", "outputs", "taps", "confirm")]
    return sum(step.builds for step in steps)


@pytest.mark.parametrize(
    "name", ["chain", *(pytest.param(n, marks=pytest.mark.slow) for n in PLACES if n != "chain")]
)
def test_a_fusion_that_heals_is_found_in_six_builds(name: str, tmp_path: Path) -> None:
    place = PLACES[name]
    found = diagnose(place.build(), [fused(place.path)], tmp_path)
    first, why = found.finding.first_divergence, trail_of(found)
    assert first is not None, why
    assert first.kernel == "+".join(place.path), why
    assert found.places == [frozenset(place.path)], why
    assert found.minimal == frozenset(place.path), why
    assert located_in(found) <= 6, why
    assert first.evidence == "healed", why
    assert found.finding.coverage.fused_away == 2


def test_a_long_kernel_that_heals_at_every_look_is_the_culprit_whole(tmp_path: Path) -> None:
    found = diagnose(PLACE.build(), [fused(LONG)], tmp_path)
    first, why = found.finding.first_divergence, trail_of(found)
    assert first is not None, why
    assert (first.kernel, first.node) == ("+".join(LONG), LONG[-1]), why
    assert frozenset(found.finding.culprit_nodes) <= frozenset(LONG), why
    assert located_in(found) <= 6, why
    assert found.finding.coverage.fused_away == 5
    hidden = [u for u in found.finding.unseen if u.why == "healed"]
    assert [(len(u.tensors), u.kernel) for u in hidden] == [(5, "+".join(LONG))]
    assert "a look at them changes the failure in kernel" in render_text(found.finding).replace(
        "\n          ", " "
    )


def test_a_wrong_operator_in_a_kernel_that_may_be_looked_into_is_named_alone(
    tmp_path: Path,
) -> None:
    faults = [fused(PLACE.path, scale=1.0, offset=0.0), {"kind": "value", "nodes": ["block3/Relu"]}]
    found = diagnose(PLACE.build(), faults, tmp_path)
    first, why = found.finding.first_divergence, trail_of(found)
    assert first is not None, why
    assert found.finding.culprit_nodes == ("block3/Relu",), why
    assert (first.kernel, first.evidence) == ("+".join(PLACE.path), "tapped"), why
    assert located_in(found) <= 4, why
    assert found.finding.coverage.fused_away == 0


def test_what_a_good_kernel_holds_is_not_tapped(tmp_path: Path) -> None:
    """Taps that the builder refuses inside a kernel without fault are never asked for."""
    inside = ["block1/Conv_output_0"]
    faults = [
        fused(("block1/Conv", "block1/Relu"), scale=1.0, offset=0.0),
        {"kind": "value", "nodes": ["block5/Conv"]},
        {"kind": "refuses_taps", "tensors": inside},
    ]
    found = diagnose(PLACE.build(), faults, tmp_path)
    assert found.finding.culprit_nodes == ("block5/Conv",), trail_of(found)
    assert found.finding.coverage.untappable == 0
    seen = {(u.why, u.tensors, u.kernel) for u in found.finding.unseen}
    assert seen == {("fused_away", tuple(inside), "block1/Conv+block1/Relu")}
    assert located_in(found) == 3


def test_mark_taps_all_and_still_names_the_kernel(tmp_path: Path) -> None:
    found = diagnose(PLACE.build(), [fused(PLACE.path)], tmp_path, tap_mode="mark")
    first = found.finding.first_divergence
    assert first is not None
    assert first.kernel == "+".join(PLACE.path)
    assert "23 taps" in [s.decision for s in found.finding.trail if s.step == "taps"]


def test_border_without_kernels_says_so(tmp_path: Path) -> None:
    fault = {"kind": "value", "nodes": ["block5/Conv"]}
    found = diagnose(PLACE.build(), [fault], tmp_path, tap_mode="border")
    assert found.finding.culprit_nodes == ("block5/Conv",)
    assert any("tells of no fused kernels" in note for note in found.finding.notes)


@pytest.mark.parametrize(
    ("mode", "said"), [("debug", "has no debug tensors"), ("Border", "expected auto, border")]
)
def test_modes_that_cannot_be_are_refused(mode: str, said: str, tmp_path: Path) -> None:
    model, inputs = zoo.chain_cnn().save(tmp_path)
    with pytest.raises(SpecError, match=said):
        tapsect.bisect(model, inputs=[inputs], out=tmp_path / "out", tap_mode=mode)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
