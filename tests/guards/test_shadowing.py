"""Nothing here may stand in the place of a module of the standard library.

A package importable as ``bisect`` would break ``import random``; a test folder of that name would
break it inside tests only.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("taps", "bisect", "tests", "benchmarks", "examples")


def python_files() -> Iterator[Path]:
    for source in SOURCES:
        yield from (ROOT / source).rglob("*.py")


def test_no_package_bears_a_name_of_the_standard_library() -> None:
    packages = {p.parent for p in python_files() if p.name == "__init__.py"}
    assert [p for p in packages if p.name in sys.stdlib_module_names] == []


def test_no_module_file_bears_one_either() -> None:
    # A script run in place puts its folder first on the path.
    odd = {"__init__", "__main__"}
    named = {p for p in python_files() if p.stem in sys.stdlib_module_names}
    assert [p for p in named if p.stem not in odd] == []


def test_the_source_roots_are_no_packages() -> None:
    assert not (ROOT / "bisect" / "__init__.py").exists()
    assert not (ROOT / "taps" / "__init__.py").exists()


def test_the_standard_library_wins_at_the_root() -> None:
    program = "import random, bisect; assert bisect.bisect([1, 2], 1) == 1; random.random()"
    for place in (ROOT, ROOT / "bisect", ROOT / "tests"):
        subprocess.run([sys.executable, "-c", program], cwd=place, check=True)
