"""The evaluator of the ``onnx`` package: slow, plain numpy, and nobody's kernels."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator


class OnnxReferenceSession:
    """A loaded model."""

    def __init__(self, evaluator: Any) -> None:
        self._evaluator = evaluator

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Returns every output."""
        names = self._evaluator.input_names
        known = {name: feeds[name] for name in names if name in feeds}
        values = self._evaluator.run(None, known)
        return dict(zip(self._evaluator.output_names, values))  # noqa: B905 - Python 3.8

    def close(self) -> None:
        """Frees the model; the evaluator's objects hold one another, and only gc undoes that."""
        self._evaluator = None
        gc.collect()


class OnnxReference:
    """The ONNX reference evaluator; it takes no options."""

    def build(self, model: Path, taps: Sequence[str] = ()) -> OnnxReferenceSession:
        """Returns a session; taps are outputs of the model already."""
        return OnnxReferenceSession(ReferenceEvaluator(onnx.load(str(model))))

    def describe(self) -> dict[str, Any]:
        """Returns the name and the versions."""
        return {
            "name": "onnx reference evaluator",
            "versions": {"onnx": onnx.__version__, "numpy": np.__version__},
            "device": "CPU",
        }
