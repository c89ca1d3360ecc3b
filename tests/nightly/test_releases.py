"""A fault that came with a release: the night names it, and the releases between prove it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from support.bug_models import CASES
from support.bugs import interpreter
from support.nights import Suite


@pytest.mark.bugs
def test_the_release_is_named_and_proved(tmp_path: Path) -> None:
    """AveragePool with a Pad before it: wrong in 1.20.1, right in 1.21.0."""
    good, bad = interpreter("1.21.0"), interpreter("1.20.1")
    if good is None or bad is None:
        pytest.skip("ONNX Runtime 1.20.1 and 1.21.0 cannot be installed here")
    next(c for c in CASES if c.id == "ort-pad-avgpool").build("small").save(tmp_path / "m")
    suite = Suite(tmp_path)
    nights = []
    for number, python in enumerate((good, bad), 1):
        suite.write({"e": []}, ["m"])
        body = json.loads(suite.path.read_text("utf-8"))
        body["engines"] = [{"name": "e", "spec": "ort", "python": str(python)}]
        suite.path.write_text(json.dumps(body), encoding="utf-8")
        nights.append(suite.night(number, versions=True))
    (group,) = nights[1].groups
    since = group.rows[0].since
    assert since is not None
    assert "engine.describe.versions.onnxruntime: 1.21.0 -> 1.20.1" in since.differs
    assert "onnxruntime 1.21.0 is the first good release, onnxruntime 1.20.1 the last bad" in (
        group.proof
    )  # fmt: skip
    bug = tmp_path / "out/runs" / nights[1].run.id / "bugs" / f"{group.digest}.md"
    assert "is the first good release" in bug.read_text("utf-8")
