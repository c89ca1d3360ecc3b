"""The question that a person answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

__all__ = ["Ask", "ask_verdict"]

Ask = Callable[[str], str]
"""Shows a text and returns what was typed; an empty line when nobody answers."""

Said = Literal["good", "bad", "skip"]
_WORDS: tuple[Said, ...] = ("good", "bad", "skip")


def ask_verdict(ask: Ask, text: str) -> Said:
    """Shows ``text`` and asks until the answer is good, bad or skip, or begins one of them."""
    while True:
        word = ask(f"{text}\n   good, bad or skip? ").strip().lower()
        for full in _WORDS:
            if word and full.startswith(word):
                return full
        text = "   one of: good (g), bad (b), skip (s); Ctrl-C keeps the best so far"
