"""Replays of good and bad builds: read, compared, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debugtaps import InputError
from tapsect.axes.tactics import (
    Difference,
    Replays,
    difference,
    read_replay,
    read_replays,
    write_replay,
)

POLYGRAPHY = {
    "_polygraphy_class": "TacticReplayData",
    "conv1": {
        "implementation": 2147483648, "tactic": -3733131497395236857,
        "inputs": [{"format": "LINEAR", "dtype": "FLOAT"}], "outputs": [],
    },
}  # fmt: skip


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_replay(tmp_path / "deep" / "t.json", {"a": "x", "b/c": "y"}, {"engine": "mine"})
    assert read_replay(tmp_path / "deep" / "t.json") == {"a": "x", "b/c": "y"}


def test_replay_files_of_polygraphy_are_read(tmp_path: Path) -> None:
    path, other = tmp_path / "p.json", tmp_path / "q.json"
    path.write_text(json.dumps(POLYGRAPHY), encoding="utf-8")
    changed = json.loads(json.dumps(POLYGRAPHY))
    changed["conv1"]["inputs"][0]["dtype"] = "HALF"
    other.write_text(json.dumps(changed), encoding="utf-8")
    choice = read_replay(path)["conv1"]
    assert choice.startswith("2147483648:-3733131497395236857 ")
    assert read_replay(other)["conv1"] != choice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": 1}', '{"format": "tapsect-tactics"}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="replay"):
        read_replay(tmp_path / "x.json")


def test_choices_of_bad_builds_only_are_named_the_most_frequent_first() -> None:
    good = [{"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "c": "1"}]
    bad = [{"a": "2", "b": "2", "c": "1"}, {"a": "2", "b": "3", "c": "1"}, {"a": "2", "d": "9"}]
    assert difference(Replays(good, bad)) == [
        Difference("a", "2", 3, ("1",)),
        Difference("b", "3", 1, ("1", "2")),
        Difference("d", "9", 1, ()),
    ]
    assert difference(Replays(good, good)) == []


def test_both_sides_are_read_from_a_folder(tmp_path: Path) -> None:
    for name, choice in (("good/1", "x"), ("good/2", "y"), ("bad/1", "z"), ("other/1", "q")):
        write_replay(tmp_path / f"{name}.json", {"a": choice}, {})
    assert read_replays(tmp_path) == Replays([{"a": "x"}, {"a": "y"}], [{"a": "z"}])


def test_a_folder_without_either_side_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither good/ nor bad/"):
        read_replays(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_replays(tmp_path / "nowhere")
