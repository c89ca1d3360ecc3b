"""A model whose planted builds choose: one choice is bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support import zoo

__all__ = ["BAD", "GUILTY", "VARIANTS", "chooses", "given"]

GUILTY = "block5/Conv"
BAD = "winograd"
VARIANTS = {GUILTY: ["direct", BAD], "block7/Conv": ["a", "b"]}


def given(folder: Path) -> list[str]:
    """Returns the words that name a model and its sample, written to ``folder``."""
    model, inputs = zoo.chain_cnn().save(folder)
    return [str(model), "--inputs", str(inputs)]


def chooses(state: Path, *, seed: int = 3, variants: Any = None, **more: Any) -> list[str]:
    """Returns the words for a planted engine whose fault strikes where ``BAD`` was chosen."""
    fault = {"kind": "value", "nodes": [GUILTY], "error": 0.05, "tactic": {GUILTY: BAD}}
    options = {
        "variants": variants or VARIANTS, "faults": [fault], "seed": seed, "state": str(state),
        **more,
    }  # fmt: skip
    words = [f"{key}={json.dumps(value)}" for key, value in options.items()]
    return ["--engine", "planted", "--engine-option", *words]
