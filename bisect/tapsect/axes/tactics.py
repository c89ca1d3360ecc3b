"""What builders chose, written down: replays of good and of bad builds, and how they differ.

Two forms are read: this project's, and the replay files of Polygraphy, where a layer's algorithm
is an implementation, a tactic and the formats of its tensors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debugtaps import InputError, write_json_atomic
from tapsect.axes.repeat import Attempt
from tapsect.verdict import Verdict

__all__ = [
    "Difference",
    "Replays",
    "difference",
    "read_replay",
    "read_replays",
    "replays_of",
    "write_replay",
]

FORMAT = "tapsect-tactics"


def write_replay(path: Path, tactics: Mapping[str, str], about: Mapping[str, Any]) -> None:
    """Writes what one build chose.

    Args:
        path: The file.
        tactics: The choices, by key.
        about: Whose build it was.
    """
    body = {"format": FORMAT, "version": 1, **about, "tactics": dict(tactics)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, body)


def read_replay(path: Path) -> dict[str, str]:
    """Returns the choices that a replay file holds, by key.

    Raises:
        InputError: It is no replay file.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a replay of tactics: {error}") from None
    if isinstance(body, Mapping) and body.get("format") == FORMAT:
        found = body.get("tactics")
        if isinstance(found, Mapping):
            return {str(key): str(choice) for key, choice in found.items()}
    elif isinstance(body, Mapping):
        rows = {key: _algorithm(value) for key, value in body.items() if key != "_polygraphy_class"}
        if rows and all(rows.values()):
            return {key: str(choice) for key, choice in rows.items()}
    raise InputError(
        f"{path} is no replay of tactics; expected what --save-tactics writes, or Polygraphy's"
        " replay file"
    )


def _algorithm(value: Any) -> str | None:
    """Returns one layer's algorithm in Polygraphy's file as one word."""
    if not isinstance(value, Mapping) or not {"implementation", "tactic"} <= value.keys():
        return None
    tensors = [*value.get("inputs", ()), *value.get("outputs", ())]
    shown = [json.dumps(t, sort_keys=True) for t in tensors]
    return " ".join([f"{value['implementation']}:{value['tactic']}", *shown])


@dataclass(frozen=True, slots=True)
class Replays:
    """The choices of good builds and of bad ones, one mapping each."""

    good: Sequence[Mapping[str, str]]
    bad: Sequence[Mapping[str, str]]


def read_replays(folder: Path) -> Replays:
    """Returns the replays in ``good/`` and ``bad/`` of a folder; others' JSON files count as such.

    Raises:
        InputError: There is no such folder, or a file in it is no replay.
    """
    if not folder.is_dir():
        raise InputError(f"--dir {folder}: no such folder; expected one with good/ and bad/")
    if not any((folder / side).is_dir() for side in ("good", "bad")):
        raise InputError(f"--dir {folder} holds neither good/ nor bad/; name the folder above them")
    found = {
        s: [read_replay(p) for p in sorted((folder / s).glob("*.json"))] for s in ("good", "bad")
    }
    return Replays(found["good"], found["bad"])


def replays_of(attempts: Sequence[Attempt]) -> Replays:
    """Returns what good and bad builds chose; those that were not judged are left out."""
    by = {
        verdict: [a.tactics for a in attempts if a.verdict is verdict]
        for verdict in (Verdict.AGREES, Verdict.DIVERGES)
    }
    return Replays(by[Verdict.AGREES], by[Verdict.DIVERGES])


@dataclass(frozen=True, slots=True)
class Difference:
    """A choice that only bad builds made.

    Attributes:
        key: What was chosen for.
        choice: The choice.
        bad: How many bad builds made it.
        others: What good builds chose instead, most frequent first.
    """

    key: str
    choice: str
    bad: int
    others: tuple[str, ...]

    def words(self, bad: int) -> str:
        """Returns it for people, where there were ``bad`` bad builds."""
        instead = f"; good ones chose {', '.join(self.others[:3])}" if self.others else ""
        return (
            f"only bad builds chose {self.choice!r} for {self.key!r}"
            f" ({self.bad} of {bad} of them){instead}"
        )


def difference(replays: Replays) -> list[Difference]:
    """Returns the choices that bad builds made and no good one did, the most frequent first."""
    harmless = {item for each in replays.good for item in each.items()}
    counts = Counter(item for each in replays.bad for item in each.items())
    found = [
        Difference(key, choice, count, _instead(replays.good, key))
        for (key, choice), count in counts.items()
        if (key, choice) not in harmless
    ]
    return sorted(found, key=lambda d: (-d.bad, not d.others, d.key, d.choice))


def _instead(good: Sequence[Mapping[str, str]], key: str) -> tuple[str, ...]:
    return tuple(choice for choice, _ in Counter(g[key] for g in good if key in g).most_common())
