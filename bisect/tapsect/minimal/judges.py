"""One face for the three checks: parts of the graph, and whole small models, judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

import onnx
from onnx import helper

from tapsect.candidate import Candidate
from tapsect.minimal.checks import CommandCheck
from tapsect.minimal.ground import Ground, Unfed
from tapsect.minimal.person import PersonCheck
from tapsect.minimal.trial import Trial
from tapsect.reduction import Answer
from tapsect.simplify import Specimen
from tapsect.verdict import Signature, Verdict

__all__ = ["ByTrial", "Judge", "empty_model"]


class Judge(Protocol):
    """Says what a candidate does."""

    @property
    def builds(self) -> int:
        """Returns how often the engine, the command or the person was asked."""

    def part(
        self, candidate: Candidate, *, samples: Sequence[int] | None = None, fresh: int = 0,
        lane: int = 0,
    ) -> Answer:  # fmt: skip
        """Returns what a part of the graph does: bad when it is for any sample."""

    def model(self, specimen: Specimen, *, fresh: int = 0, lane: int = 0) -> Answer:
        """Returns what a whole small model does."""

    def wants(self, signature: Signature | None) -> None:
        """Takes note of what is being reduced."""

    def hint(self) -> tuple[int, ...]:
        """Returns operators that seem to be at fault."""

    def announce(self, coming: Iterable[Candidate]) -> None:
        """Takes note of what is asked next, and what will be if the answer is no."""

    def close(self) -> None:
        """Frees what it holds."""


class ByTrial:
    """Judges by a command or by a person.

    Args:
        check: The command or the person.
        ground: What is cut.
        fed: Whether what the inputs hold matters.
    """

    def __init__(self, check: CommandCheck | PersonCheck, ground: Ground, *, fed: bool) -> None:
        self.check, self.ground, self.fed = check, ground, fed
        self.builds = 0

    def part(
        self, candidate: Candidate, *, samples: Sequence[int] | None = None, fresh: int = 0,
        lane: int = 0,
    ) -> Answer:  # fmt: skip
        """Returns what a part of the graph does."""
        self.builds += 1
        chosen = samples if self.fed or samples is not None else (0,)
        try:
            trial = self.ground.trial(candidate, chosen, fed=self.fed)
        except Unfed:
            return Verdict.INVALID, None
        return self.check(trial, fresh=fresh, lane=lane)

    def model(self, specimen: Specimen, *, fresh: int = 0, lane: int = 0) -> Answer:
        """Returns what a whole small model does; one that is no valid ONNX is not asked."""
        if specimen.outside is None and not _is_valid(specimen.proto):
            return Verdict.INVALID, None
        self.builds += 1
        words = f"{specimen.nodes} nodes; {specimen.change}"
        folder = specimen.outside or self.ground.work
        trial = Trial(specimen.proto, folder, [specimen.feeds], specimen.nodes, words)
        return self.check(trial, fresh=fresh, lane=lane)

    def wants(self, signature: Signature | None) -> None:
        """Takes note of what is being reduced."""
        if isinstance(self.check, CommandCheck):
            self.check.wanted = signature

    def hint(self) -> tuple[int, ...]:
        """Returns none: a command and a person see outputs only."""
        return ()

    def announce(self, coming: Iterable[Candidate]) -> None:
        """Lets a person see what will be asked after this question."""
        if isinstance(self.check, PersonCheck):
            later = list(islice(coming, 2))[1:]
            self.check.coming = [f"{len(c.nodes)} node{'s' * (len(c.nodes) != 1)}" for c in later]

    def empty(self) -> Answer:
        """Returns what the check says of a model that does nothing."""
        model = empty_model(self.ground)
        return self.check(Trial(model, self.ground.work, [{}], 1, "nothing at all"))

    def close(self) -> None:
        """Holds nothing."""


def _is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model)
    except Exception:  # the checker's errors, and those of protobuf
        return False
    return True


def empty_model(ground: Ground) -> onnx.ModelProto:
    """Returns a model of the same kind that only hands a number on."""
    model = onnx.ModelProto()
    model.CopyFrom(ground.graph.shell)
    del model.functions[:]
    graph = model.graph
    for name, rows in (("tapsect_in", graph.input), ("tapsect_out", graph.output)):
        rows.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]))
    graph.node.append(helper.make_node("Identity", ["tapsect_in"], ["tapsect_out"]))
    return model
