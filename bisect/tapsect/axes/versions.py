"""Releases of a package, and an environment for each: made by pip, kept, never the user's own.

Only pip talks to an index, the one that it is configured for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from debugtaps import EnvironmentFailure, UsageError
from tapsect.folder import write_folder

__all__ = ["Releases", "between", "check_bounds", "environment", "releases", "version_key"]

PIP_SECONDS = 1200
OTHER_PYTHONS = ("3.8", "3.10", "3.11", "3.12", "3.13")
"""Whose wheels are listed as well, to tell a release without one for this Python from none."""

_PLAIN = re.compile(r"\d+(\.\d+)*(\.post\d+)?")

NUMPIES = ("numpy<2", "numpy")
"""What is tried: old releases were built for numpy 1 and crash under 2, though none says so."""


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases of a package, oldest first.

    Attributes:
        here: Those with a wheel for this Python.
        elsewhere: Those with wheels for other Pythons only.
    """

    here: tuple[str, ...]
    elsewhere: tuple[str, ...]


def version_key(version: str) -> tuple[int, ...]:
    """Returns a version as numbers.

    >>> version_key("1.17.1") < version_key("1.17.3.post1") < version_key("1.18")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", version))


def releases(package: str) -> Releases:
    """Returns what pip finds of a package.

    Raises:
        EnvironmentFailure: pip is not there, or finds nothing.
    """
    here, said = _listed(package, ())
    others: set[str] = set()
    for python in OTHER_PYTHONS:
        found, _ = _listed(package, ("--python-version", python))
        others |= set(found)
    if not here and not others:
        raise EnvironmentFailure(
            f"pip finds no release of {package!r}: {said}; check the name and the index that pip"
            " uses (pip config list)"
        )
    elsewhere = sorted(others - set(here), key=version_key)
    return Releases(tuple(sorted(here, key=version_key)), tuple(elsewhere))


def _listed(package: str, more: Sequence[str]) -> tuple[list[str], str]:
    """Returns the releases that have wheels, and what pip said otherwise."""
    done = _pip("index", "versions", package, "--only-binary=:all:", *more)
    match = re.search(r"Available versions:(.*)", done.stdout)
    found = re.split(r"[,\s]+", match[1].strip()) if match else []
    return [each for each in found if _PLAIN.fullmatch(each)], _last(done)


def check_bounds(first: str, last: str) -> None:
    """Checks what can be told of the bounds before any index is asked.

    Raises:
        UsageError: One is no version, or the first is the later one.
    """
    for flag, bound in (("--from", first), ("--to", last)):
        if not _PLAIN.fullmatch(bound):
            raise UsageError(f"{flag} {bound!r} is no version; write it as 1.17 or 1.17.3")
    low, high = version_key(first), version_key(last)
    if high < low[: len(high)]:
        raise UsageError(f"--from {first} is later than --to {last}; swap them")


def between(found: Releases, first: str, last: str, package: str) -> Releases:
    """Returns the releases from ``first`` to ``last``; 1.23 takes in 1.23.2.

    Raises:
        UsageError: No release lies there; the message names those there are.
    """
    low, high = version_key(first), version_key(last)
    every = sorted({*found.here, *found.elsewhere}, key=version_key)
    for flag, bound in (("--from", first), ("--to", last)):
        if not any(version_key(v)[: len(version_key(bound))] == version_key(bound) for v in every):
            near = ", ".join(every[-12:])
            raise UsageError(f"{flag}: there is no {package} {bound}; the latest are {near}")

    def inside(versions: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            v for v in versions if low <= version_key(v) and version_key(v)[: len(high)] <= high
        )

    chosen = Releases(inside(found.here), inside(found.elsewhere))
    if len(chosen.here) < 2:
        raise UsageError(
            f"{len(chosen.here)} releases of {package} from {first} to {last} have a wheel for"
            f" this Python ({sys.version_info.major}.{sys.version_info.minor}); a search needs two"
        )
    return chosen


def environment(package: str, version: str, cache: Path, works: Callable[[Path], str]) -> Path:
    """Returns the Python of an environment with that release, made on first use.

    Args:
        package: What is installed, and nothing beside what it needs.
        version: Of it.
        cache: Where environments are kept.
        works: Returns why the engine cannot be loaded under a Python, or nothing.

    Raises:
        EnvironmentFailure: It cannot be made; the reason in one line.
    """
    name = f"{package}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / name
    python = folder / "bin" / "python"
    if python.exists():
        return python

    def fill(draft: Path) -> None:
        inner = draft / "bin" / "python"
        _run([sys.executable, "-m", "venv", "--without-pip", str(draft)])
        why = ""
        for numpy in NUMPIES:
            why = _install(inner, f"{package}=={version}", numpy) or works(inner)
            if not why:
                return
        raise EnvironmentFailure(why)

    try:
        write_folder(folder, fill)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be made ({error.strerror or error})") from None
    return python


def _install(python: Path, *wanted: str) -> str:
    """Installs packages; returns why they cannot be, or nothing."""
    line = ["install", "--quiet", "--only-binary=:all:", *wanted]
    uv = shutil.which("uv")
    if not _has_pip() and uv is not None:
        done = _run([uv, "pip", *line, "--python", str(python)])
    else:
        done = _pip(*line, python=python)
    return f"{wanted[0]} cannot be installed: {_last(done)}" if done.returncode else ""


def _has_pip() -> bool:
    import importlib.util

    return importlib.util.find_spec("pip") is not None


def _pip(*words: str, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs this Python's pip, for another environment where one is named.

    Raises:
        EnvironmentFailure: This Python has no pip.
    """
    if not _has_pip():
        raise EnvironmentFailure(
            f"{sys.executable} has no pip, which lists the releases; python -m ensurepip adds it"
        )
    target = ["--python", str(python)] if python is not None else []
    return _run([sys.executable, "-m", "pip", *target, "--disable-pip-version-check", *words])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False,
            env=os.environ | {"PIP_NO_INPUT": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise EnvironmentFailure(f"pip was not done in {PIP_SECONDS} s") from None


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if "ERROR" in line]
    return (lines or [f"pip ended with {done.returncode}"])[-1].removeprefix("ERROR: ")[:300]
