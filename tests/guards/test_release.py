"""One version, one licence, and no trace of the machine a file was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tapsect

ROOT = Path(__file__).resolve().parents[2]
MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|Users|work|tmp/[a-z]+/[a-z]+)/[\w.]"  # a folder of somebody's machine
    r"|https?://(?:localhost|127\.0\.0\.1|10\.\d)"
)
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".json", ".cfg", ""}


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        return [p for p in ROOT.rglob("*") if p.is_file() and ".venv" not in p.parts]
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == tapsect.__version__


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_file_names_the_machine_it_was_written_on() -> None:
    found = []
    for path in repository_files():
        if path.suffix not in TEXT or path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {m[0]}" for m in MACHINE.finditer(text)]
    assert found == []


@pytest.mark.parametrize("target", ["install", "check", "test", "demo", "bench", "calibrate"])
def test_the_makefile_has_the_words(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
