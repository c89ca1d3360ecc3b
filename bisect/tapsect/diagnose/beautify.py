"""The minimal case made plain: sizes, values, bodies, as long as it fails the same way.

Runs within the budget, and within a number of looks, so that equal diagnoses make equal builds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx

from debugtaps import EngineFailure, ModelError, load_graph
from tapsect.candidate import Candidate
from tapsect.localize.examine import Examined, Examiner, Recorded
from tapsect.reduction import Answer, Confirm, DoesNotFail, Reduced, reduce
from tapsect.replay.reference import Reference
from tapsect.request import Request
from tapsect.search.foresight import begun_early
from tapsect.simplify import TABLE, Simplification, Specimen, TooLarge, specimen, whole
from tapsect.verdict import Signature, Verdict

__all__ = ["beautify", "examine_specimen"]

LOOKS = 24


def beautify(
    examiner: Examiner, final: Examined, wanted: Signature | None, budget: float
) -> Examined:
    """Returns the plainest case found in time; ``final`` itself when there is no plainer one.

    Args:
        examiner: Examined the case.
        final: The case as it was run last; it failed.
        wanted: The fault that it shows.
        budget: Seconds that it may take.
    """
    deadline = time.monotonic() + budget
    flaky = examiner.repeats > 1 or examiner.kind == "timeout"
    if final.model is None or flaky or final.verdict is not Verdict.DIVERGES:
        return final
    folder = examiner.folder / "models"
    folder.mkdir(exist_ok=True)
    try:
        model = whole(onnx.load(final.model, load_external_data=False), examiner.folder)
    except TooLarge:
        return final
    asked, start = _Asked(examiner, folder), specimen(model, final.feeds)

    def search(ask: Callable[[_Look], Answer]) -> Reduced[Specimen] | DoesNotFail:
        fresh = itertools.count(1)
        problem = Simplification(
            start, lambda s: ask((s, 0)), signature=wanted, recheck=lambda s: ask((s, next(fresh))),
            spent=lambda: problem.calls >= LOOKS or time.monotonic() >= deadline,
        )  # fmt: skip
        return reduce(problem, passes=TABLE, confirm=Confirm(1, 1))

    either: tuple[Answer, ...] = ((Verdict.AGREES, None), (Verdict.DIVERGES, wanted))
    result = begun_early(search, asked, asked.begin, lambda _: either)
    if isinstance(result, DoesNotFail) or not result.confirmed or asked.last is None:
        return final
    return asked.last  # the fresh look that confirmed the result


_Look = tuple[Specimen, int]
"""A whole model, and which of several looks at it."""


class _Asked:
    """What whole models show, as the examiner of a part judges them.

    Attributes:
        last: The last look.
    """

    def __init__(self, like: Examiner, folder: Path) -> None:
        self.like, self.folder = like, folder
        self.last: Examined | None = None

    def __call__(self, look: _Look) -> Answer:
        candidate, fresh = look
        self.last = examine_specimen(candidate, self.like, self.folder, fresh)
        return self.last.verdict, self.last.signature

    def begin(self, looks: Iterable[_Look]) -> None:
        """Begins builds that are near."""
        self.like.prober.begin(itertools.starmap(self._request, looks))

    def _request(self, candidate: Specimen, fresh: int) -> Request | None:
        opened = _opened(candidate, self.like, self.folder)
        with suppress(EngineFailure, ModelError, ValueError), opened as (examiner, part):
            return examiner.request(part, "reference", fresh)
        return None


def examine_specimen(specimen: Specimen, like: Examiner, folder: Path, fresh: int = 0) -> Examined:
    """Returns what one look at a whole model shows.

    Args:
        specimen: The model.
        like: Whose engine and reference are asked, what to look for, and how strictly.
        folder: Where the model is written.
        fresh: Distinguishes repeated looks.
    """
    try:
        with _opened(specimen, like, folder) as (examiner, candidate):
            return examiner.examine(candidate, "reference", fresh=fresh)
    except (EngineFailure, ModelError, ValueError):
        return Examined(Verdict.INVALID, None)


@contextmanager
def _opened(
    specimen: Specimen, like: Examiner, folder: Path
) -> Iterator[tuple[Examiner, Candidate]]:
    """Gives a whole model as a part of itself, and who examines it.

    Raises:
        ModelError, EngineFailure, ValueError: It is no model that can be run.
    """
    folder, reference = specimen.outside or folder, like.reference
    path = folder / "specimen.onnx"
    path.write_bytes(specimen.model)
    graph = load_graph(path, folder)
    own = Reference(
        graph, reference.host, folder, stated=reference.stated, seed=reference.seed,
        largest=reference.largest,
    )  # fmt: skip
    try:
        shown = [t for t in graph.outputs if t in graph.producer]
        shown.sort(key=lambda t: graph.producer[t])
        if not shown or any(name not in specimen.feeds for name in graph.inputs):
            raise ValueError("nothing is shown, or an input has no value")
        own.complete(specimen.feeds)
        examiner = Examiner(
            own, like.prober, Recorded(own, specimen.feeds, {}), folder, kind=like.kind,
            classes=like.classes, tolerance=like.tolerance,
        )  # fmt: skip
        examiner.bar, examiner.repeats = like.bar, like.repeats
        yield examiner, Candidate(own.topology.ancestors(shown), tuple(shown))
    finally:
        own.close()
