"""What a failure without values is told by: its kind, and what of its message stays the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

from debugtaps import EngineFailure
from tapsect.verdict import Signature, operator_named

__all__ = ["ERRORS", "signature_of"]

ERRORS = frozenset({"build_error", "run_error", "crash", "timeout", "out_of_memory"})
"""Failures without values."""

_NOISE = re.compile(r"0x[0-9a-fA-F]+|'[^']*'|\"[^\"]*\"|/\S+|\S+\.onnx|\d+")


def signature_of(failure: EngineFailure, ops: Mapping[str, str]) -> Signature:
    """Returns an error's signature; ``ops`` are the types of the model's nodes, by name."""
    first = next((s for s in failure.message.splitlines() if s.strip()), "")
    if failure.kind == "timeout":
        first = ""
    detail = " ".join(_NOISE.sub("_", first).split())[:200]
    return Signature(failure.kind, detail, operator_named(first, ops))
