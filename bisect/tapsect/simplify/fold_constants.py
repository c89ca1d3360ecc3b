"""Fold what derives from constants alone into one constant, where that is not too large.

Shape ─▶ Gather ─▶ Concat ─▶ Reshape        [2, 1, 8] ─▶ Reshape
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

import onnx

from tapsect.reduce import Asked
from tapsect.simplify.specimen import Specimen, changed

__all__ = ["DEFAULT_THRESHOLD", "fold_constants"]

DEFAULT_THRESHOLD = 1 << 24


def fold_constants(threshold: int) -> Callable[[Asked[Specimen]], None]:
    """Returns the pass that folds results of at most ``threshold`` bytes."""

    def run(problem: Asked[Specimen]) -> None:
        """Proposes the model with its constants folded.

        Guarantees to have tried: folding all at once.
        Cost: one question.
        """
        folded = _folded(problem.current, threshold)
        if folded is not None:
            problem.consider(folded)

    return run


def _folded(origin: Specimen, threshold: int) -> Specimen | None:
    graph = origin.proto.graph
    fixed = {t.name for t in graph.initializer}
    fixed |= {n.output[0] for n in graph.node if n.op_type == "Constant"}
    if not any(
        n.op_type != "Constant" and all(name in fixed or not name for name in n.input)
        for n in graph.node
    ):
        return None  # nothing to fold: graphsurgeon would take its time to find out
    import onnx_graphsurgeon as gs

    try:
        with redirect_stdout(StringIO()):
            surgeon = gs.import_onnx(origin.proto)
            surgeon.fold_constants(size_threshold=threshold).cleanup()
            made = gs.export_onnx(surgeon)
    except Exception:  # an operator it cannot import: the model stays as it is
        return None
    kept = onnx.ModelProto()
    kept.CopyFrom(origin.proto)
    kept.graph.CopyFrom(made.graph)
    return changed(origin, kept, "constants folded")
