"""Taps that lie: they show something else than what their readers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tapsect.replay.regions import Classes, Judgement, Replay

__all__ = ["liars"]

MOST_ACCUSED = 32


def liars(replay: Replay, judgements: Mapping[str, Judgement], classes: Classes) -> frozenset[str]:
    """Returns taps that show something else than their readers read.

    A tap is accused when it and all its readers are suspects.  It lied when its readers come
    clean once they replay from what the tap's own producer should have given them.  Each of the
    accused is tried alone, since a wrong operator before a lying tap is accused with it; then
    what is left together, since two taps in a row may both lie.

    Cost: one replay for each accused tap.
    """
    readers = _readers(replay, judgements)
    accused = [
        t for t, j in judgements.items()
        if j.suspect and t in replay.cut and readers.get(t)
        and all(judgements[r].suspect for r in readers[t])
    ]  # fmt: skip
    found = {t for t in accused[:MOST_ACCUSED] if t in _cleared(replay, readers, [t], classes)}
    left = [t for t in accused if t not in found]
    if not found and len(left) > 1:
        found |= _cleared(replay, readers, left, classes)
    return frozenset(found)


def _readers(replay: Replay, judgements: Mapping[str, Judgement]) -> dict[str, set[str]]:
    readers: dict[str, set[str]] = {}
    for tensor, judgement in judgements.items():
        for index in judgement.region:
            for source in replay.graph.nodes[index].reads:
                if source in replay.cut:
                    readers.setdefault(source, set()).add(tensor)
    return readers


def _cleared(
    replay: Replay, readers: Mapping[str, set[str]], uncut: Iterable[str], classes: Classes
) -> set[str]:
    """Returns which of the taps have readers that all come clean without these taps."""
    tried = list(uncut)
    asked = {r for t in tried for r in readers[t]}
    again, _ = Replay(replay.reference, replay.feeds, replay.values, uncut=tried).judge(
        asked, known=classes
    )
    return {t for t in tried if all(r in again and again[r].kind == "ok" for r in readers[t])}
