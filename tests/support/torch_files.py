"""Torch model files for tests: text in, what prepare made of it out."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from debugtaps import Prepared, prepare

__all__ = ["HEAD", "prepared", "write_model"]

HEAD = """
import torch
from torch import nn
from debugtaps import Tap, tap
"""


def write_model(folder: Path, body: str, *, args: str = "torch.ones(4, 8)") -> Path:
    """Writes ``model.py`` with the class of ``body`` and one set of arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.py"
    given = f"\n\ndef get_fwd_args():\n    return ({args},)\n"
    path.write_text(HEAD + textwrap.dedent(body) + ("" if "get_fwd_args" in body else given))
    return path


def prepared(model: Path, *taps: str, **options: Any) -> Prepared:
    """Prepares a model into ``out`` beside it."""
    out = model.parent / "out"
    return prepare(
        model,
        onnx_out=out / "model.onnx",
        npz_out=out / "model.npz",
        reference_out=out / "model.reference.npz",
        debug_taps=taps,
        **options,
    )
