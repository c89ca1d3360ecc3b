"""What a diagnosis keeps for its pictures, by outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tapsect
from support import zoo
from tapsect.finding import Finding
from tapsect.traced import Profile, read_profile

NODE = "block5/Conv"


def diagnosed(folder: Path, **fault: Any) -> tuple[Finding, Profile | None]:
    model, inputs = zoo.chain_cnn().save(folder)
    finding = tapsect.bisect(
        model, inputs=[inputs], out=folder / "o", budget=0.0,
        engine="planted" if fault else "ort", engine_options=fault or None,
    )  # fmt: skip
    return finding, read_profile(folder / "o")


def test_a_wrong_node_has_the_error_before_and_after_it(tmp_path: Path) -> None:
    finding, profile = diagnosed(tmp_path, kind="value", nodes=NODE, error=0.05)
    assert profile is not None
    assert [o.name for o in profile.operators] == zoo.chain_cnn().names
    assert [p.node for p in profile.points] == list(range(len(profile.operators)))
    at = [o.name for o in profile.operators].index(NODE)
    bad = profile.points[at]
    assert (bad.kind, bad.cut) == ("accuracy", True)
    assert bad.introduced == pytest.approx(0.05, rel=1e-3)
    assert bad.ratio is not None
    assert bad.limit is not None
    assert bad.ratio > bad.limit
    for point in profile.points:
        assert point.floor is not None
        assert 0 < point.floor < 1e-5
        assert point.inherited is not None
        assert (point.inherited > 1e-3) is (point.node > at), point.tensor
        assert point.low is not None
        assert point.high is not None
        assert point.low < point.high
    place, culprit = finding.first_divergence, profile.culprit
    assert place is not None
    assert culprit is not None
    assert (culprit.tensor, culprit.source) == (place.tensor, "tapped")
    assert place.propagated == bad.inherited
    first = culprit.worst[0]
    assert first.engine == pytest.approx(1.05 * first.expected, rel=1e-5)
    assert sum(culprit.engine) == sum(culprit.expected) == culprit.elements


def test_what_runs_as_one_kernel_is_kept(tmp_path: Path) -> None:
    path = ("block3/Conv", "block3/Relu", "block4/Conv")
    finding, profile = diagnosed(tmp_path, kind="fusion", nodes=",".join(path), told=True)
    assert profile is not None
    names = [o.name for o in profile.operators]
    assert tuple(names[n] for n in profile.fused[0]) == path
    assert finding.first_divergence is not None
    assert profile.culprit is not None


def test_a_crash_has_the_graph_alone(tmp_path: Path) -> None:
    _, profile = diagnosed(tmp_path, kind="crash", nodes=NODE)
    assert profile is not None
    assert len(profile.operators) == len(zoo.chain_cnn().names)
    assert (profile.points, profile.culprit) == ((), None)


def test_where_nothing_fails_there_is_nothing_to_draw_and_nothing_old_stays(
    tmp_path: Path,
) -> None:
    diagnosed(tmp_path, kind="value", nodes=NODE)
    assert (tmp_path / "o" / "profile.json").is_file()
    (tmp_path / "o" / "report.html").write_text("old")
    finding, profile = diagnosed(tmp_path)
    assert (finding.status, profile) == ("agrees", None)
    assert not (tmp_path / "o" / "report.html").exists()
