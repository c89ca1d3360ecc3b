"""Where a long diagnosis says what it is doing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Progress", "Silent"]


@runtime_checkable
class Progress(Protocol):
    """Hears of each step as it begins, and of its details as they change."""

    def step(self, name: str, detail: str) -> None:
        """Takes note that step ``name`` is going on, with ``detail`` of how far it is."""


class Silent:
    """A listener that says nothing."""

    def step(self, name: str, detail: str) -> None:
        """Does nothing."""
