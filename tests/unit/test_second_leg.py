"""The independent implementation that is asked about the reference."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debugtaps import WorkerError, resolve
from tapsect.diagnose.second_leg import begun_leg


def subject(reference: str, work: Path) -> Any:
    return SimpleNamespace(specs=(resolve("ort", {}), resolve(reference, {})), work=work)


@pytest.mark.parametrize(
    ("reference", "other"), [("ort-reference", "onnx"), ("onnx", "ort-reference")]
)
def test_it_is_another_than_the_reference_and_loads_before_it_is_asked(
    tmp_path: Path, reference: str, other: str
) -> None:
    with begun_leg(subject(reference, tmp_path)) as leg:
        assert leg.spec.spec == other
        assert leg.alive(1)
    assert not leg.alive(1)


def test_one_that_cannot_begin_is_told_to_who_asks_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with (
        begun_leg(subject("ort-reference", tmp_path)) as leg,
        pytest.raises(WorkerError, match="worker"),
    ):
        leg.ready()
