"""What an engine says of itself, asked once; the part of a host that runs nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from debugtaps.engines.builds import ranges
from debugtaps.engines.child import Reply
from debugtaps.engines.contract import Feeds
from debugtaps.errors import SpecError

__all__ = ["Facts"]


class Facts(ABC):
    """The optional members of an engine."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}

    @abstractmethod
    def told(self) -> Mapping[str, Any]:
        """Returns what the worker told when it had loaded the engine; waits for that.

        Raises:
            WorkerError, MissingPackage, SpecError: It cannot be loaded.
        """

    @abstractmethod
    def ask(self, request: Mapping[str, Any]) -> Reply:
        """Sends one request to the worker and returns its answer."""

    def _fact(self, member: str) -> Any:
        if member not in self._facts:
            reply = self.ask({"op": "ask", "session": None, "member": member})
            self._facts[member] = reply.header["value"]
        return self._facts[member]

    def describe(self, samples: Sequence[Feeds] = ()) -> Mapping[str, Any]:
        """Returns what the engine says of itself, at least the version of its Python.

        Args:
            samples: Data that what it says is about, for an engine that builds for its data.
        """
        told = self.told()
        if samples and told["expects"]:
            self._facts.pop("describe", None)
            self.ask({"op": "expect", "ranges": ranges(samples)})
        described = self._fact("describe")
        own = described if isinstance(described, Mapping) else {}
        return {"python": told["python"], **own}

    def knobs(self) -> Mapping[str, Any]:
        """Returns the settings that can be turned one by one; empty when it names none.

        Raises:
            SpecError: The engine names them in another form.
        """
        named = self._fact("knobs") or {}
        if not isinstance(named, Mapping):
            raise SpecError(f"the engine's knobs() returns {named!r}; expected options by name")
        for option, values in named.items():
            names = values.get("any") if isinstance(values, Mapping) else values
            if not isinstance(names, list) and (names != "nodes" or names is values):
                raise SpecError(
                    f"the engine's knobs() has {values!r} for {option!r}; expected a list of"
                    " values, {'any': [names]} or {'any': 'nodes'}"
                )
        return named

    def unit_roundoff(self) -> float | None:
        """Returns u of the arithmetic the engine says it computes in, None when it is silent."""
        u: float | None = self.told()["unit_roundoff"]
        return u

    @property
    def promotes_taps(self) -> bool:
        """Whether the engine exposes taps itself and wants the model without them."""
        return bool(self.told()["promotes_taps"])

    @property
    def builds_only(self) -> bool:
        """Whether sessions of this engine do not run: it only tells whether models build."""
        return bool(self.told()["builds_only"])
