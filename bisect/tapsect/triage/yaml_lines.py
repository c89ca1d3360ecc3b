"""YAML whose every value knows its line, so that an error can name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debugtaps import InputError

__all__ = ["Document", "read_yaml"]

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """What a YAML file holds.

    Attributes:
        path: The file.
        data: Its content: mappings, lists and plain values.
        lines: The line of each value, counted from 1, by the keys that lead to it.
    """

    path: Path
    data: Any
    lines: Mapping[Place, int]

    def line(self, place: Sequence[str | int]) -> int:
        """Returns the line of a value, or of the nearest one around it."""
        for end in range(len(place), -1, -1):
            if tuple(place[:end]) in self.lines:
                return self.lines[tuple(place[:end])]
        return 1

    def error(self, place: Sequence[str | int], what: str) -> InputError:
        """Returns an error about a value, with its file and line."""
        return InputError(f"{self.path}:{self.line(place)}: {what}")


def read_yaml(path: Path) -> Document:
    """Returns the one document of a YAML 1.2 file.

    Raises:
        InputError: It cannot be read, is no YAML, or says a key twice; the message has the line.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError:
        raise InputError(f"{path} is no UTF-8 text; a suite is a YAML file.") from None
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
        reader = _Reader(path, yaml.constructor)
        data = None if root is None else reader.value(root, ())
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: no YAML: {error.problem or error.context}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: no YAML: {error}") from None
    return Document(path, data, reader.lines)


class _Reader:
    def __init__(self, path: Path, constructor: Any) -> None:
        self.path, self.constructor = path, constructor
        self.lines: dict[Place, int] = {}

    def value(self, node: Any, place: Place) -> Any:
        """Returns a node's value and notes the lines below it."""
        self.lines.setdefault(place, node.start_mark.line + 1)
        if node.id == "mapping":
            return self._mapping(node, place)
        if node.id == "sequence":
            return [self.value(item, (*place, n)) for n, item in enumerate(node.value)]
        return self.constructor.construct_object(node)

    def _mapping(self, node: Any, place: Place) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for name, inner in node.value:
            key, line = self.constructor.construct_object(name), name.start_mark.line + 1
            if isinstance(key, dict | list) or key in found:
                raise InputError(f"{self.path}:{line}: the key {key!r} stands here twice.")
            self.lines[(*place, key)] = line
            found[key] = self.value(inner, (*place, key))
        return found
