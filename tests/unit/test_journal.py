"""What was probed is found again, unless it is torn; the disk is waited for where that pays."""

import gc
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from debugtaps.engines.crossing import map_file
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
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal = Journal(tmp_path, "who")
    journal.record("k" * 64, Outcome((VALUES,), seconds=seconds), "a test")
    journal.close(finished=True)
    assert len(synced) == waits


def crossed(folder: Path) -> tuple[Journal, Path]:
    """Returns a journal of a probe whose values came in a file, and that file."""
    raw = np.arange(64, dtype=np.float32)
    file = folder / "came.in"
    file.write_bytes(raw.tobytes())
    mapped = map_file(file, raw.nbytes, lent=True)
    values = {
        "low": mapped[:64].view(np.float32).reshape(4, 4),
        "small": np.array(7),
        "narrow": mapped[64:].view(ml_dtypes.bfloat16),
    }
    journal = Journal(folder / "out", "who")
    journal.record("k" * 64, Outcome((values,), seconds=DEAR_S), "a test")
    return Journal(folder / "out", "who"), file


@pytest.mark.parametrize("links", [True, False])
def test_values_that_came_in_a_file_are_kept_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:  # a disk that gives no file two names
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError()))
    (tmp_path / "out").mkdir()
    journal, file = crossed(tmp_path)
    gc.collect()
    assert not file.exists()
    assert len([each for each in journal.values.iterdir() if each.suffix == ".bin"]) == links
    known = journal.recall("k" * 64)
    assert known is not None
    raw, values = np.arange(64, dtype=np.float32), known.values[0]
    np.testing.assert_array_equal(values["low"], raw[:16].reshape(4, 4), strict=True)
    np.testing.assert_array_equal(values["narrow"], raw[16:].view(ml_dtypes.bfloat16), strict=True)
    assert values["small"] == 7


@pytest.mark.parametrize("torn", [b"", b"\0" * 256, b"\0" * 300, None])
def test_a_file_of_values_that_is_torn_is_not_believed(tmp_path: Path, torn: bytes | None) -> None:
    (tmp_path / "out").mkdir()
    journal, _ = crossed(tmp_path)
    (file,) = (each for each in journal.values.iterdir() if each.suffix == ".bin")
    file.unlink()
    if torn is not None:
        file.write_bytes(torn)
    assert journal.recall("k" * 64) is None
