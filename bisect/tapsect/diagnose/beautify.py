"""The minimal case made plain: sizes, values, bodies, as long as it fails the same way.

Runs within the budget, and within a number of looks, so that equal diagnoses make equal builds.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import onnx

from debugtaps import EngineFailure, ModelError, load_graph
from tapsect.candidate import Candidate
from tapsect.localize.examine import Examined, Examiner, Recorded
from tapsect.probe import Prober
from tapsect.reduction import Answer, Confirm, DoesNotFail, reduce
from tapsect.replay.reference import Reference
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
    prober = examiner.prober
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
    fresh = itertools.count(1)

    def look(candidate: Specimen, fresh: int = 0) -> Answer:
        seen = examine_specimen(candidate, prober, examiner.reference, examiner, folder, fresh)
        return seen.verdict, seen.signature

    problem = Simplification(
        specimen(model, final.feeds), look, signature=wanted,
        recheck=lambda s: look(s, next(fresh)),
        spent=lambda: problem.calls >= LOOKS or time.monotonic() >= deadline,
    )  # fmt: skip
    result = reduce(problem, passes=TABLE, confirm=Confirm(1, 1))
    if isinstance(result, DoesNotFail) or not result.confirmed:
        return final
    plain = examine_specimen(
        result.candidate, prober, examiner.reference, examiner, folder, next(fresh)
    )
    return plain if plain.verdict is Verdict.DIVERGES else final


def examine_specimen(
    specimen: Specimen, prober: Prober, reference: Reference, like: Examiner, folder: Path,
    fresh: int = 0,
) -> Examined:  # fmt: skip
    """Returns what one look at a whole model shows.

    Args:
        specimen: The model.
        prober: Probes the engine.
        reference: Whose worker runs the model's own reference.
        like: What to look for, and how strictly.
        folder: Where the model is written.
        fresh: Distinguishes repeated looks.
    """
    folder = specimen.outside or folder
    path = folder / "specimen.onnx"
    path.write_bytes(specimen.model)
    try:
        graph = load_graph(path, folder)
    except ModelError:
        return Examined(Verdict.INVALID, None)
    own = Reference(
        graph, reference.host, folder, stated=reference.stated, seed=reference.seed,
        largest=reference.largest,
    )  # fmt: skip
    shown = [t for t in graph.outputs if t in graph.producer]
    shown.sort(key=lambda t: graph.producer[t])
    if not shown or any(name not in specimen.feeds for name in graph.inputs):
        return Examined(Verdict.INVALID, None)
    try:
        own.complete(specimen.feeds)
        recorded = Recorded(own, specimen.feeds, {})
        examiner = Examiner(
            own, prober, recorded, folder, kind=like.kind, classes=like.classes,
            tolerance=like.tolerance,
        )  # fmt: skip
        examiner.bar, examiner.repeats = like.bar, like.repeats
        nodes = own.topology.ancestors(shown)
        return examiner.examine(Candidate(nodes, tuple(shown)), "reference", fresh=fresh)
    except (EngineFailure, ValueError):
        return Examined(Verdict.INVALID, None)
    finally:
        own.close()
