"""Which operators the engine runs as one kernel, and which tensors pass between kernels.

What passes between kernels is written to memory whatever happens, so that a tap on it leaves the
kernels as they are; a tap on what stays inside one takes it apart::

    [ Conv  bias  Relu ] ──▶ r ──▶ [ MatMul  Add ] ──▶ y        r is a border, the rest is inside

The engine tells its kernels of the *untapped* build: the one under suspicion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from debugtaps import Graph

__all__ = ["Kernels"]


class Kernels:
    """The kernels of one build.

    Args:
        graph: The model.
        told: Sets of names that run as one: of nodes, or of what they write, as some engines
            call a node; names the model does not know are skipped.

    Attributes:
        groups: Kernels of two or more operators of the model, each once.
    """

    def __init__(self, graph: Graph, told: Iterable[Collection[str]] = ()) -> None:
        self.graph = graph
        place = {**graph.producer, **{node.name: node.index for node in graph.nodes}}
        known = (frozenset(place[name] for name in group if name in place) for group in told)
        self.groups = tuple(dict.fromkeys(group for group in known if len(group) > 1))

    def __bool__(self) -> bool:
        """Returns whether anything is known to run together."""
        return bool(self.groups)

    def alike(self, other: Kernels) -> bool:
        """Returns whether another build runs the same operators together."""
        return set(self.groups) == set(other.groups)

    @cached_property
    def _of(self) -> dict[int, list[frozenset[int]]]:
        homes: dict[int, list[frozenset[int]]] = {}
        for group in self.groups:
            for index in group:
                homes.setdefault(index, []).append(group)
        return homes

    def border(self, tensor: str) -> bool:
        """Returns whether a tensor is made in one kernel and read in other ones only."""
        homes = self._of.get(self.graph.producer[tensor], [])
        if len(homes) > 1:
            return False  # made again in each kernel that needs it
        readers = self.graph.consumers.get(tensor, ())
        return not homes or not any(reader in homes[0] for reader in readers)

    def holding(self, nodes: Iterable[int]) -> frozenset[int] | None:
        """Returns the kernel that runs most of the operators; None when none runs two of them.

        One operator alone is asked for its own kernel.
        """
        asked = frozenset(nodes)
        held = max(self.groups, key=lambda group: len(group & asked), default=frozenset())
        return held if len(held & asked) >= min(2, len(asked)) and held & asked else None

    def name(self, nodes: Iterable[int]) -> str | None:
        """Returns what reports call the kernel of operators: its nodes in model order."""
        held = self.holding(nodes)
        return None if held is None else "+".join(self.graph.nodes[i].name for i in sorted(held))

    def inside(self, nodes: Collection[int], tensors: Sequence[str]) -> tuple[str, ...]:
        """Returns those tensors that operators write within a kernel, in their order."""
        produced = self.graph.producer
        return tuple(t for t in tensors if produced[t] in nodes and not self.border(t))
