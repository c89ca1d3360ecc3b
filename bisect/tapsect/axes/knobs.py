"""The smallest set of an engine's settings that cures a failure, by group testing.

An engine's ``knobs()`` says what can be turned.  A *turn* is one option at one value, or one name
of an option that takes any subset of names.  Turns are tried in groups: all names of an option at
once, then every other option at its most careful value, then the other values one by one.  A
group that cures is shrunk to a set from which no turn can be spared.

Cures are not always monotone: a pass that is left out may let another one fire that has its own
fault.  So nothing is concluded from a group that does not cure, and with ``thorough`` its parts
are tried as well.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debugtaps import UsageError
from tapsect.search.subsets import minimal_subset

__all__ = ["Turn", "Turns", "applied", "find_cures", "groups", "setting"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One setting turned.

    Attributes:
        option: The engine's option.
        value: The value as JSON, so that turns can be told apart; the bare name for ``name``.
        name: Whether the option takes any subset of names, of which ``value`` is one.
    """

    option: str
    value: str
    name: bool = False


ALIKE = 3
"""Most sets of names that are told where each of them cures."""

Turns = tuple[Turn, ...]
Test = Callable[[Turns], bool]


def groups(
    knobs: Mapping[str, Any], options: Mapping[str, Any], only: Sequence[str] = ()
) -> list[Turns]:
    """Returns the turns to try, in groups that are on together.

    Args:
        knobs: What the engine says can be turned.
        options: The options as they are; what is set already is no turn.
        only: The options that may be turned; all when empty.

    Raises:
        UsageError: The engine has no such knob; the message lists those it has.
    """
    unknown = [name for name in only if name not in knobs]
    if unknown:
        listed = ", ".join(knobs) or "none"
        raise UsageError(f"the engine has no knob {unknown[0]!r}; it has {listed}")
    named: list[Turns] = []
    first: list[Turn] = []
    others: list[Turns] = []
    for option, values in knobs.items():
        if only and option not in only:
            continue
        if isinstance(values, Mapping):
            if values.get("any") == "nodes":
                continue  # one for each node of the model: `tapsect.axes.precision` looks there
            left = [n for n in values.get("any", ()) if n not in _names(options.get(option))]
            named.append(tuple(Turn(option, str(n), name=True) for n in left))
            continue
        turns = [
            Turn(option, json.dumps(v, sort_keys=True))
            for v in values
            if option not in options or options[option] != v
        ]
        first += turns[:1]
        others += [(turn,) for turn in turns[1:]]
    return [group for group in (*named, tuple(first), *others) if group]


def applied(options: Mapping[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns the engine's options with the turns made; names join those that are there.

    >>> applied({"off": "A"}, [Turn("off", "B", name=True), Turn("threads", "1")])
    {'off': ['A', 'B'], 'threads': 1}
    """
    turned = dict(options)
    for turn in turns:
        if turn.name:
            turned[turn.option] = [*_names(turned.get(turn.option)), turn.value]
        else:
            turned[turn.option] = json.loads(turn.value)
    return turned


def _names(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return [str(part) for part in value] if isinstance(value, list | tuple) else [str(value)]


def setting(turns: Sequence[Turn]) -> str:
    """Returns turns as a user writes them in a shell after ``--engine-option``.

    >>> setting([Turn("off", "A", name=True), Turn("off", "B", name=True), Turn("level", '"x"')])
    'off=A,B level=x'
    >>> setting([Turn("off", "a b", name=True)])
    "'off=a b'"
    """
    parts: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for turn in turns:
        if turn.name:
            names.setdefault(turn.option, []).append(turn.value)
            parts[turn.option] = _listed(names[turn.option])
            continue
        told = json.loads(turn.value)
        # A text that reads as JSON keeps its quotes: the engine shall get the text.
        parts[turn.option] = told if isinstance(told, str) and not _is_json(told) else turn.value
    return shlex.join(f"{option}={value}" for option, value in parts.items())


def _listed(names: Sequence[str]) -> str:
    """Returns names between commas; as JSON where that would not be read back as these names."""
    plain = ",".join(names)
    return plain if _names(plain) == list(names) and not _is_json(plain) else json.dumps(names)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def find_cures(
    grouped: Sequence[Turns], test: Test, *, most: int = 1, thorough: bool = False,
    kept: Turns = (),
) -> list[Turns]:  # fmt: skip
    """Returns sets of turns that each cure, none of which can spare a turn.

    Args:
        grouped: From `groups`.
        test: Whether the engine answers right with these turns.
        most: How many groups with a cure to look for.
        thorough: Whether to try parts of a group that does not cure, down to single turns, and
            at last all groups together.
        kept: Turns that are known to help; tried together with each group first.

    Notes:
        Cost: for one knob among n about ``2 * log2(n) + 1`` tests beside one a group.
    """
    seen = _Seen(test)
    found: list[Turns] = []
    for group in grouped:
        same = [turns for turns in found if _option(group) and _option(turns) == _option(group)]
        if len(found) >= most and not same:
            continue
        start = next((s for s in _starts(group, kept, thorough=thorough) if seen(s)), None)
        if start is not None:
            # A less careful value of the same option takes the place of the more careful one.
            found = [turns for turns in found if turns not in same]
            found += _disjoint(start, group, kept, seen)
    if not found and thorough and len(grouped) > 1:
        together = _together(grouped)
        if seen(together):
            found.append(_shrunk(together, kept, seen))
    return found


def _disjoint(start: Turns, group: Turns, kept: Turns, seen: _Seen) -> list[Turns]:
    """Returns a set from ``start`` and, of names, further sets that share none with it.

    Where one pass prepares what another spoils, leaving out either cures: both are told.
    """
    found = [_shrunk(start, kept, seen)]
    while len(found) < ALIKE and group[0].name and not kept:
        used = {turn for turns in found for turn in turns}
        left = tuple(turn for turn in group if turn not in used)
        if not left or not seen(left):
            break
        found.append(_shrunk(left, kept, seen))
    return found


def _option(turns: Turns) -> str | None:
    """Returns the option of a single turn."""
    return turns[0].option if len(turns) == 1 else None


def _starts(group: Turns, kept: Turns, *, thorough: bool) -> Iterator[Turns]:
    """Yields the group with what is known to help, alone, and then ever smaller parts."""
    yield _joined(kept, group)
    if kept:
        yield group
    size = len(group)
    while thorough and size > 1:
        size = (size + 1) // 2
        yield from (group[at : at + size] for at in range(0, len(group), size))


def _together(grouped: Sequence[Turns]) -> Turns:
    """Returns all turns that can be on at once: one value an option."""
    turned: dict[tuple[str, str], Turn] = {}
    for turn in (turn for group in grouped for turn in group):
        turned.setdefault((turn.option, turn.value if turn.name else ""), turn)
    return tuple(turned.values())


def _joined(kept: Turns, more: Turns) -> Turns:
    return (*kept, *(turn for turn in more if turn not in kept))


def _shrunk(start: Turns, kept: Turns, seen: _Seen) -> Turns:
    """Returns a part of ``start`` that cures and cannot spare a turn."""
    held = tuple(turn for turn in start if turn in kept)
    rest = tuple(turn for turn in start if turn not in kept)
    if held and rest:
        if seen(held):
            return minimal_subset(held, seen).items
        rest = minimal_subset(rest, lambda some: seen((*held, *some))).items
    return minimal_subset((*held, *rest), seen).items


@dataclass(slots=True)
class _Seen:
    """Answers of the test by set, each asked once."""

    test: Test
    known: dict[frozenset[Turn], bool] = field(default_factory=dict)

    def __call__(self, turns: Turns) -> bool:
        key = frozenset(turns)
        if key not in self.known:
            self.known[key] = self.test(turns)
        return self.known[key]
