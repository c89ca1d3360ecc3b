"""What became of each tap in a build: shown by the engine, lost, or without a reference."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from debugtaps.errors import TapError
from debugtaps.graph import Graph
from debugtaps.manifest import Kind, Manifest, Origin, TapEntry

__all__ = ["Binding", "bindings", "check_bindings", "model_order"]

State = Literal["bound", "lost", "no reference"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One tap in one build.

    Attributes:
        name: Its name in tables.
        output: The graph output that shows it.
        tensor: The tensor of the model that it shows.
        kind: Placed by the user, or a boundary of a plugin.
        state: ``bound`` when the engine shows it and it has a reference; ``no reference`` when
            the engine shows it and it has none; ``lost`` when the engine does not show it.
        reference: Where its reference value comes from, ``none`` when there is none.
        reason: Why it is lost or has no reference; empty otherwise.
    """

    name: str
    output: str
    tensor: str
    kind: Kind
    state: State
    reference: Origin
    reason: str = ""

    @property
    def fatal(self) -> bool:
        """Returns whether the build must not be used: it lost what it was made to show."""
        return self.state == "lost" and (self.kind == "manual" or self.reference != "none")


def bindings(
    manifest: Manifest, shown: Collection[str], notes: Iterable[str] = ()
) -> tuple[Binding, ...]:
    """Returns what became of each tap, in model order.

    Args:
        manifest: The taps of the model.
        shown: The outputs that the engine's session returned.
        notes: What the session said of outputs it left out.
    """
    said = tuple(notes)
    return tuple(_binding(tap, shown, said) for tap in manifest.taps)


def _binding(tap: TapEntry, shown: Collection[str], notes: tuple[str, ...]) -> Binding:
    state: State = "bound" if tap.reference != "none" else "no reference"
    reason = tap.reason
    if tap.output not in shown:
        state = "lost"
        said = next((note for note in notes if repr(tap.output) in note), "")
        reason = said or "the built engine returned no such output"
    elif state == "no reference" and not reason:
        reason = "no reference value was recorded"
    return Binding(tap.name, tap.output, tap.tensor, tap.kind, state, tap.reference, reason)


def check_bindings(found: Iterable[Binding]) -> None:
    """Checks that no tap was lost that must not be.

    Raises:
        TapError: One was; the message names them.
    """
    lost = [each for each in found if each.fatal]
    if not lost:
        return
    first = lost[0]
    what = "tap" if first.kind == "manual" else "plugin tap"
    others = f" (and {len(lost) - 1} more: {_some(lost[1:])})" if lost[1:] else ""
    raise TapError(
        f"the build lost {what} '{first.name}' of tensor '{first.tensor}'{others}:"
        f" {first.reason}; tap a tensor beside it, or prepare the model without it"
    )


def _some(lost: list[Binding]) -> str:
    return ", ".join(f"'{each.name}'" for each in lost[:5]) + (" …" if len(lost) > 5 else "")


def model_order(graph: Graph, manifest: Manifest) -> tuple[str, ...]:
    """Returns the names of outputs and taps as the model computes them.

    A tap stands where its tensor is made, though the output that shows it comes last in the file;
    graph inputs and constants stand first.
    """
    places = {
        tensor: (node.index, number)
        for node in graph.nodes
        for number, tensor in enumerate(node.writes)
    }
    named = [(tap.name, tap.tensor) for tap in manifest.taps]
    named += [(output, output) for output in manifest.outputs]
    first = (-1, 0)
    return tuple(name for name, _ in sorted(named, key=lambda each: places.get(each[1], first)))
