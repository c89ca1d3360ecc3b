"""The examples: each command of their pages is run, in a copy of their folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from support import console

EXAMPLES = Path(__file__).parents[2] / "examples"
MARKS = {"network": ("published",), "slow": ("slow",)}


def _pages() -> list[Any]:
    pages = []
    for page in sorted(EXAMPLES.glob("*/README.md")):
        wanted = console.needs(page.read_text("utf-8"))
        names = [m for need in wanted for m in MARKS.get(need, (need, "engines"))]
        marks = [getattr(pytest.mark, name) for name in dict.fromkeys(names)]
        pages.append(pytest.param(page, id=page.parent.name, marks=marks))
    return pages


@pytest.mark.parametrize("page", _pages())
def test_the_commands_of_the_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    console.play(page.read_text("utf-8"), tmp_path / page.parent.name)


def test_a_page_is_read_as_a_reader_reads_it() -> None:
    page = "text\n```console\n$ echo one \\\n    two\none … o\n$ false  # exit 1\n```\n"
    read = list(console.commands(page))
    assert [(c.words, c.status, c.printed) for c in read] == [
        ("echo one      two", 0, ["one … o"]),
        ("false", 1, []),
    ]


@pytest.mark.parametrize(
    "page", ["```console\n$ false\n```\n", "```console\n$ echo no\nyes\n```\n"]
)
def test_a_page_that_is_wrong_is_noticed(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        console.play(page, tmp_path)
