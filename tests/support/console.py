"""The console blocks of a Markdown page, run as a reader would run them.

A command stands behind ``$``; it may go on over lines that end in a backslash, and ends in
``# exit N`` where another status than 0 is right.  What stands below it must be printed, in that
order; ``…`` stands for anything within a line, a line of it for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Command", "commands", "needs", "play"]

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.M | re.S)
_STATUS = re.compile(r"\s+# exit (\d+)$")
_NEEDS = re.compile(r"<!-- needs: ([\w ]+) -->")
PATIENCE = 300.0
"""Seconds after which a command of a page hangs."""


@dataclass
class Command:
    """One command of a page, the status it ends with, and lines that it prints."""

    words: str
    status: int = 0
    printed: list[str] = field(default_factory=list)


def needs(page: str) -> list[str]:
    """Returns the marks of what a page needs, from its comment ``<!-- needs: torch -->``."""
    found = _NEEDS.search(page)
    return found[1].split() if found else []


def commands(page: str) -> Iterator[Command]:
    """Yields the commands of a page in their order."""
    for block in _BLOCK.findall(page):
        command: Command | None = None
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                if command is not None:
                    yield command
                status = _STATUS.search(line)
                words = _STATUS.sub("", line[2:])
                command = Command(words, int(status[1]) if status else 0)
            elif command is not None and line.strip():
                command.printed.append(line)
        if command is not None:
            yield command


def play(page: str, folder: Path) -> None:
    """Runs the commands of a page in ``folder``.

    Raises:
        AssertionError: One ends with another status, or does not print what the page says.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for command in commands(page):
        done = subprocess.run(
            ["bash", "-c", command.words], cwd=folder, env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        told = f"$ {command.words}\n{done.stdout}"
        assert done.returncode == command.status, f"exit {done.returncode}, {told}"
        missing = _missing(command.printed, done.stdout)
        assert missing is None, f"not printed: {missing!r}\n{told}"


def _missing(expected: list[str], printed: str) -> str | None:
    """Returns the first line of a page that was not printed, in their order."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for each in expected:
        words = " ".join(each.split())
        if words == "…":
            continue
        pattern = re.compile(".*?".join(re.escape(part.strip()) for part in words.split("…")))
        if not any(pattern.search(line) for line in lines):
            return each
    return None
