"""Which nodes must stay in fp32: the smallest set over real builds, and what it gains.

An engine that takes names of nodes keeps them itself.  For one that computes in the types of the
model, the fp32 original is converted with those nodes left out, and the mixed model is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from debugtaps import FLOATS, EngineFailure
from tapsect.axes.knobs import Turn, Turns, setting
from tapsect.axes.precision import HALF_MAX, Mixed, mixed, needed
from tapsect.diagnose.cured import CureTest, Tried
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.simplify import TooLarge, whole

__all__ = ["Keeper", "Kept", "node_option"]

Tell = Callable[[str, str, str], None]

FEW = 4
"""A small set is no more than this part of the nodes; beside a larger one that cures, one that
halves the error is looked for."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes that stay in fp32, and what that did.

    Attributes:
        nodes: Their names.
        setting: What to give the engine; the mixed model's path for one that takes no names.
        tried: What a fresh process showed.
        model: The mixed model.
    """

    nodes: tuple[str, ...]
    setting: str
    tried: Tried
    model: Path | None = None


def node_option(knobs: Mapping[str, object]) -> str | None:
    """Returns the option that takes names of nodes to keep in fp32, where an engine has one."""
    return next(
        (o for o, v in knobs.items() if isinstance(v, Mapping) and v.get("any") == "nodes"), None
    )


@dataclass
class Keeper:
    """Looks for the nodes to keep.

    Attributes:
        subject: The diagnosis' material.
        told: What was decided so far.
        test: Builds and judges.
        tell: Writes one step to the trail.
        option: The engine's option that takes names; None where casts in the model decide.
    """

    subject: Subject
    told: Told
    test: CureTest
    tell: Tell
    option: str | None
    origin: onnx.ModelProto | None = field(default=None, init=False)
    seen: dict[frozenset[str], Tried] = field(default_factory=dict, init=False)

    def find(self) -> list[Kept]:
        """Returns sets that cure, or that halve the error; empty with the reason in the trail."""
        if self.option is None and not self._original():
            return []
        ranked = self.ranked()
        before, after = self.look(()), self.look(ranked)
        if frozenset(ranked) not in self.seen:
            self.tell("precision", "time was up", "no set of nodes was tried; --budget gives more")
            return []
        said = (
            f"error {_text(before.error)}, with all {len(ranked)} nodes kept {_text(after.error)}"
        )
        goals: list[tuple[str, Callable[[tuple[str, ...]], bool]]] = []
        if after.cures:
            goals.append(("cures", lambda some: self.look(some).cures))
        half = (before.error or 0.0) / 2
        if after.error is not None and 0 < half < float("inf") and after.error <= half:
            goals.append(("halves the error", lambda some: _below(self.look(some), half)))
        found: list[Kept] = []
        for goal, good in goals:
            if found and len(found[-1].nodes) <= len(ranked) / FEW:
                break
            found += self._reached(goal, needed(ranked, good), len(ranked))
        if not found:
            self.tell("precision", "no set of nodes helps", said)
        return found

    def _reached(self, goal: str, nodes: tuple[str, ...] | None, of: int) -> list[Kept]:
        """Returns the set after a fresh look at it, and tells what it does."""
        if nodes is None:
            self.tell("precision", f"no set was found that {goal}", "builds disagree")
            return []
        kept = [self._kept(nodes)] if len(nodes) < of else []
        large = len(nodes) > of / FEW and not self.test.spent
        small = "no small set does: keeping" if large else "keeping"
        why = f"{len(self.regions(nodes))} region(s), {self.test.tries} builds so far"
        if self.test.spent:
            why += "; time was up, fewer may do: --budget gives more"
        self.tell("precision", f"{small} {len(nodes)} of {of} nodes in fp32 {goal}", why)
        return kept

    # -- candidates, the likeliest first --------------------------------------------------------

    def ranked(self) -> tuple[str, ...]:
        """Returns the nodes that touch floats: overflow first, then what the replay blamed."""
        graph, told = self.subject.graph, self.told
        bodies: set[str] = set() if self.origin is None else _with_bodies(self.origin)
        floats = [
            n.name for n in graph.nodes
            if n.op != "Cast" and n.name not in bodies
            and any(graph.elem(t) in FLOATS for t in n.writes)
        ]  # fmt: skip
        first = self._overflowing()
        if told.blame is not None:
            first += [graph.nodes[n].name for n in told.blame.nodes]
        evidence = told.located.evidence if told.located else None
        suspects = [*told.contributors, *(evidence.culprits if evidence else ())]
        first += [graph.nodes[n].name for s in suspects for n in s.nodes]
        judged = evidence.judgements.values() if evidence else ()
        worst = sorted(judged, key=lambda j: -(j.introduced or 0.0))
        first += [graph.nodes[graph.producer[j.tensor]].name for j in worst]
        known = set(floats)
        return tuple(dict.fromkeys(name for name in (*first, *floats) if name in known))

    def _overflowing(self) -> list[str]:
        """Returns the nodes around tensors that fp16 cannot hold: both sides must stay."""
        subject, graph = self.subject, self.subject.graph
        largest = subject.original or subject.reference
        tensors = [t for t in subject.reference.topology.tappable if t in largest.graph.producer]
        values: Mapping[str, np.ndarray] = {}
        with suppress(EngineFailure):
            values = largest.capture(subject.samples[self.told.sample], tensors)
        floats = {t: v for t, v in values.items() if v.dtype.kind == "f" and t in graph.producer}
        over = [t for t, v in floats.items() if _beyond(v)]
        touching = {graph.producer[t] for t in over}
        touching |= {c for t in over for c in graph.consumers.get(t, ())}
        return [graph.nodes[n].name for n in sorted(touching)]

    def regions(self, nodes: Sequence[str]) -> list[frozenset[str]]:
        """Returns the connected parts that kept nodes form."""
        import networkx as nx

        graph = self.subject.graph
        index = {graph.nodes[n].name: n for n in range(len(graph.nodes))}
        joined = nx.Graph()
        joined.add_nodes_from(nodes)
        for name in nodes:
            for tensor in graph.nodes[index[name]].writes:
                after = (graph.nodes[c].name for c in graph.consumers.get(tensor, ()))
                joined.add_edges_from((name, other) for other in after if other in joined)
        return [frozenset(part) for part in nx.connected_components(joined)]

    # -- builds ---------------------------------------------------------------------------------

    def look(self, nodes: Sequence[str]) -> Tried:
        """Returns what keeping these nodes does; after the deadline, that it does nothing."""
        key = frozenset(nodes)
        if key not in self.seen:
            if self.test.spent:
                return Tried(cures=False, error=float("inf"))
            self.seen[key] = self._built(nodes, timed=False)
        return self.seen[key]

    def _built(self, nodes: Sequence[str], *, timed: bool) -> Tried:
        if self.option is not None:
            return self.test.look(self._turns(nodes), timed=timed)
        return self.test.look(model=self._write(nodes), timed=timed)

    def _turns(self, nodes: Sequence[str]) -> Turns:
        assert self.option is not None
        return tuple(Turn(self.option, name, name=True) for name in nodes)

    def _kept(self, nodes: tuple[str, ...]) -> Kept:
        tried = self._built(nodes, timed=True)
        if self.option is not None:
            return Kept(nodes, setting(self._turns(nodes)), tried)
        return Kept(nodes, ", ".join(nodes), tried, self._write(nodes))

    def _write(self, nodes: Sequence[str]) -> Path:
        path = self.subject.work / "mixed.onnx"
        path.write_bytes(self._mixed(nodes).model.SerializeToString())
        return path

    def _mixed(self, nodes: Sequence[str]) -> Mixed:
        assert self.origin is not None
        graph = self.subject.graph
        ends = {**graph.inputs, **graph.outputs}
        wide = [n for n, kind in ends.items() if kind.elem == onnx.TensorProto.FLOAT]
        made = mixed(self.origin, nodes, wide)
        if made.clamped:
            note = f"weights that fp16 cannot hold were cut off: {', '.join(made.clamped[:5])}"
            if note not in self.subject.notes:
                self.subject.notes.append(note)
        return made

    def _original(self) -> bool:
        """Reads the fp32 original; tells why there is none."""
        path = self.subject.options.reference_model
        if path is None:
            self.tell(
                "precision", "needs the fp32 original",
                "give --reference-model; or convert by ranges: python -m modelopt.onnx.autocast"
                " --onnx_path MODEL (package nvidia-modelopt)",
            )  # fmt: skip
            return False
        try:
            self.origin = whole(onnx.load(path, load_external_data=False), path.parent)
        except TooLarge:
            self.tell("precision", "too large", "the converter takes models up to 2 GB")
            return False
        for node in self.origin.graph.node:
            node.name = node.name or next(iter(node.output), "")
        try:
            self._mixed(())
        except Exception as error:  # the converter's own, of any kind
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            self.tell("precision", "onnxruntime's converter cannot take this model", said[:300])
            return False
        return True


def _with_bodies(model: onnx.ModelProto) -> set[str]:
    """Returns the nodes with bodies, which the converter cannot leave out: it skips the bodies."""
    return {n.name for n in model.graph.node if any(a.g.node or a.graphs for a in n.attribute)}


def _beyond(value: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.abs(value).max(initial=0) > HALF_MAX)


def _below(tried: Tried, bar: float) -> bool:
    return tried.error is not None and tried.error <= bar


def _text(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.3g}"
