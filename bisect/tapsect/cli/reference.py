"""The reference of all commands, as the program itself tells it.

``python -m tapsect.cli.reference > docs/cli.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from tapsect.cli.app import app_for

__all__ = ["reference"]

_WIDTH = 96
_HEAD = """\
# Commands

Generated from the program (`python -m tapsect.cli.reference`, typer {version}). `tapsect COMMAND
--help` prints the same. Lists may follow one flag (`--inputs a.npz b.npz`) or the flag be repeated.
"""


def reference() -> str:
    """Returns the help of every command as one Markdown page."""
    parts = [_HEAD.format(version=typer.__version__)]
    for path, command in _walk("tapsect", typer.main.get_command(app_for())):
        context: Any = command.context_class(
            command, info_name=path, terminal_width=_WIDTH, max_content_width=_WIDTH,
            help_option_names=["-h", "--help"],
        )  # fmt: skip
        text = command.get_help(context).rstrip()
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"## {path}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yields every command below ``command`` with the words that call it."""
    yield path, command
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{path} {name}", each)


if __name__ == "__main__":
    sys.stdout.write(reference())
