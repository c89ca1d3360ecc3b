"""What was probed is found again, unless it is torn; the disk is waited for where that pays."""

import os
from pathlib import Path

import numpy as np
import pytest

from tapsect.journal import DEAR_S, Journal, Outcome

VALUES = {"y": np.arange(4, dtype=np.float32)}


def kept(folder: Path) -> Journal:
    folder.mkdir(exist_ok=True)
    journal = Journal(folder, "who")
    journal.record("k" * 64, Outcome((VALUES,), seconds=0.01), "a test")
    return Journal(folder, "who")


def test_a_probe_is_recalled_with_its_values(tmp_path: Path) -> None:
    known = kept(tmp_path).recall("k" * 64)
    assert known is not None
    np.testing.assert_array_equal(known.values[0]["y"], VALUES["y"], strict=True)


@pytest.mark.parametrize("content", [b"", b"\0" * 400])
def test_values_that_a_power_cut_has_torn_are_not_believed(tmp_path: Path, content: bytes) -> None:
    journal = kept(tmp_path)
    (torn,) = journal.values.iterdir()
    torn.write_bytes(content)
    assert journal.recall("k" * 64) is None


@pytest.mark.parametrize(("seconds", "waits"), [(DEAR_S / 2, 0), (DEAR_S, 2)])
def test_the_disk_is_waited_for_after_a_dear_probe_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, waits: int
) -> None:
    journal = Journal(tmp_path, "who")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal.record("k" * 64, Outcome((VALUES,), seconds=seconds), "a test")
    assert len(synced) == waits
