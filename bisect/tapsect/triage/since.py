"""Since when: the last run without a failure, the first with it, and what differs between them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tapsect.triage.states import Seen

__all__ = ["Look", "Since", "borders", "differences"]

LISTED = 12


@dataclass(frozen=True, slots=True)
class Look:
    """One look at an entry: its run, its time, and what the answer depended on."""

    run: str
    when: dt.datetime
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Since:
    """Since when an entry fails as it does.

    Attributes:
        good: The last look without this failure; ``None`` when the history has none.
        bad: The first with it; ``None`` when the history has forgotten it.
    """

    good: Look | None
    bad: Look | None

    @property
    def differs(self) -> tuple[str, ...]:
        """Returns what differs between the two, as ``engine.describe.version: 1.2 -> 1.3``."""
        if self.good is None or self.bad is None:
            return ()
        return tuple(differences(self.good.facts, self.bad.facts))


def borders(run: str, signature: str | None, last: Seen | None) -> tuple[str | None, str | None]:
    """Returns the last run without a failure and the first with it.

    Args:
        run: The run that sees it now.
        signature: What it sees; ``None`` when the engine agrees.
        last: What was seen of the entry before.
    """
    if signature is None:
        return None, None
    if last is None:
        return None, run
    return (last.good, last.bad) if last.signature == signature else (last.run, run)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns what differs between two sets of facts, one line each.

    >>> differences({"engine": {"version": "1.2", "x": 1}}, {"engine": {"version": "1.3", "x": 1}})
    ['engine.version: 1.2 -> 1.3']
    """
    old, new = dict(_flat("", before)), dict(_flat("", after))
    found = [
        f"{key}: {_short(old.get(key))} -> {_short(new.get(key))}"
        for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)
    ]  # fmt: skip
    return found[:LISTED]


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    else:
        yield prefix, value


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "…"
