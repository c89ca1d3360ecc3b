"""What the documents say exists does, and the reference of commands is the program's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from tapsect.cli.reference import reference

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_reference_of_commands_is_what_the_program_says() -> None:
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    if f"typer {typer.__version__})" not in written:
        pytest.skip("written with another release of typer, which breaks lines elsewhere")
    assert written == reference(), "run: python -m tapsect.cli.reference > docs/cli.md"


def test_documents_name_only_documents_that_are_there() -> None:
    gone = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(r"`(docs/[\w-]+\.md)`", page.read_text(encoding="utf-8"))
        if not (ROOT / name).is_file()
    ]
    assert not gone
