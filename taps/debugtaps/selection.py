"""Which taps were asked for, and why one that was cannot be had."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from debugtaps.errors import TapError
from debugtaps.recording import Recorder
from debugtaps.survival import Followed
from debugtaps.user_code import shown_path

__all__ = ["Chosen", "choose", "static_taps"]

ALL = "all"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tap that was asked for and can be had.

    Attributes:
        name: Its name.
        tensor: The tensor of the exported model that holds its value.
        place: ``file:line`` of the tap.
    """

    name: str
    tensor: str
    place: str


def choose(
    wanted: Sequence[str], recorder: Recorder, traced: Mapping[str, Followed], path: Path
) -> list[Chosen]:
    """Returns the taps that were asked for, in the order the model meets them.

    Args:
        wanted: Names; ``all`` among them means every tap.
        recorder: What the eager run met.
        traced: What became of the taps of the trace.
        path: The model's file, where taps that were not met can be seen.

    Raises:
        TapError: One cannot be had; the message names each such tap, its reason and the mend.
    """
    names = _expanded(wanted, recorder, traced)
    found, lost = [], []
    for name in names:
        reason = _obstacle(name, recorder, traced, path)
        if reason:
            lost.append(f"--debug-taps {name}: {reason}")
            continue
        tap = traced[name]
        found.append(Chosen(name, tap.tensor, _place(name, recorder, path)))
    if lost:
        raise TapError("; ".join(lost))
    if not found and ALL in wanted:
        raise TapError(f"--debug-taps all: {path} has no tap(x, name) that forward meets")
    return found


def _expanded(
    wanted: Sequence[str], recorder: Recorder, traced: Mapping[str, Followed]
) -> list[str]:
    met = list(dict.fromkeys([*recorder.names, *traced]))
    if ALL in wanted:
        return met
    asked: dict[str, None] = {}
    for name in wanted:
        asked.update(dict.fromkeys(recorder.parts.get(name, [name])))
    return sorted(asked, key=lambda n: met.index(n) if n in met else len(met))


def _place(name: str, recorder: Recorder, path: Path) -> str:
    """Returns ``file:line`` of a tap; compiled code does not tell, its text may."""
    met = recorder.places.get(name, "")
    if met:
        return shown_path(met, path.parent)
    line = static_taps(path).get(name)
    return f"{path.name}:{line}" if line else path.name


def _obstacle(name: str, recorder: Recorder, traced: Mapping[str, Followed], path: Path) -> str:
    if name in recorder.refused:
        return recorder.refused[name]
    place = _place(name, recorder, path)
    if name in traced and traced[name].reason:
        return f"{place}: {traced[name].reason}"
    if name in traced and name in recorder.values:
        return ""
    if name in recorder.values:
        return (
            f"{place}: the eager run meets it, the exported trace does not: the branch is not "
            "taken while the model is exported (torch.compiler.is_exporting, is_compiling); tap "
            "a value that both compute"
        )
    if name in traced:
        return (
            "the exported trace meets it, the eager run does not: that branch is taken only "
            "while the model is exported; tap a value that both compute"
        )
    return _unknown(name, recorder, traced, path)


def _unknown(name: str, recorder: Recorder, traced: Mapping[str, Followed], path: Path) -> str:
    written = static_taps(path)
    if name in written:
        return (
            f"{path.name}:{written[name]}: the branch it stands on is not taken for these "
            "arguments; change get_fwd_args(), or tap a value that is computed"
        )
    have = list(dict.fromkeys([*recorder.names, *traced]))
    near = difflib.get_close_matches(name, have, 3, 0.5)
    listed = ", ".join(have[:20]) + (" …" if len(have) > 20 else "")
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return f"no such tap in the traced graph; {guess}it has {listed or 'none'}"


def static_taps(path: Path) -> dict[str, int]:
    """Returns the taps with literal names that a file holds, with their lines.

    >>> static_taps(Path("no-such-file.py"))
    {}
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        words = [*node.args, *(k.value for k in node.keywords if k.arg == "name")]
        if called in ("tap", "Tap") and words and isinstance(words[-1], ast.Constant):
            found.setdefault(str(words[-1].value), node.lineno)
    return found
