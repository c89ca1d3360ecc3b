"""Parts once more, of the plain model: smaller sizes and plainer values may need fewer nodes.

    4 nodes, proved minimal ─▶ sizes 1, values 0 ─▶ are all 4 still needed? ─▶ proved again

What is written is what was proved, not what it was made from.
"""

from __future__ import annotations

from dataclasses import replace

from debugtaps import EngineFailure, load_graph
from tapsect.minimal.builtin import Builtin
from tapsect.minimal.ground import Ground, ground_of
from tapsect.minimal.judges import ByTrial, Judge
from tapsect.minimal.models import made_whole
from tapsect.minimal.parts import reduce_parts
from tapsect.minimal.tally import Tally
from tapsect.reduction import DoesNotFail, Pass, Reduced
from tapsect.replay.reference import Reference
from tapsect.simplify import Specimen

__all__ = ["parts_again"]


def parts_again(
    tally: Tally, small: Specimen, passes: tuple[Pass, ...], number: int
) -> tuple[Specimen, bool] | None:
    """Returns the model with the nodes that it still needs, and whether that was proved.

    Args:
        tally: The reduction under way.
        small: The plain model.
        passes: Passes over parts.
        number: Tells the working folders of several rounds apart.

    Returns:
        ``None`` when the plain model cannot be cut, or does not fail when it is.
    """
    folder = tally.ground.work / f"again{number}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(small.model)
    old = tally.ground.reference
    reference = Reference(
        load_graph(path, folder), old.host, folder, stated=old.stated, seed=old.seed,
        largest=old.largest,
    )  # fmt: skip
    plan = replace(tally.plan, golden="once", jobs=1, confirm=None)
    try:
        ground = ground_of(
            plan, reference, [small.feeds], folder, tally.ground.journal, tally.ground.notes
        )
    except EngineFailure:
        return None
    inner = Tally(plan, ground, _judge(tally, ground), tally.progress, best=tally.best)
    start = ground.start()
    if isinstance(inner.judge, Builtin):
        inner.judge.settle(start)
    result = reduce_parts(inner, start, passes).result
    tally.calls += inner.calls
    tally.trail += inner.trail
    if isinstance(result, DoesNotFail):
        return None
    assert isinstance(result, Reduced)
    made = made_whole(inner, result.candidate, 0)
    return None if made is None else (made, result.one_minimal)


def _judge(tally: Tally, ground: Ground) -> Judge:
    judge = tally.judge
    if isinstance(judge, ByTrial):
        return ByTrial(judge.check, ground, fed=judge.fed)
    assert isinstance(judge, Builtin)
    # What the user said of the whole says nothing of the part that is left.
    subject = replace(
        judge.subject, reference=ground.reference, graph=ground.graph, golden=None, original=None,
        judge=None,
    )  # fmt: skip
    return Builtin(ground, subject)
