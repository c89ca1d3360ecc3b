"""A first suite from a folder of models."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from debugtaps import InputError

__all__ = ["first_suite"]

_HEAD = """\
# Each model below is looked at on each engine: tapsect triage run {name}
# All keys: docs/triage.md
history: history.sqlite
out: triage
limits: {{time: 1800}}   # seconds for one entry; memory: 8GiB and builds: 200 are possible, too

engines:
- name: ort
  spec: ort
  # matrix: {{options: {{graph_optimization_level: [basic, all]}}}}

models:
"""
_TAIL = """
# expect:
# - {entries: "model/ort", answer: engine_defect, until: 2030-12-31, why: reported upstream}
"""


def first_suite(folder: Path, path: Path) -> str:
    """Returns the text of a suite for the models of a folder, each with the inputs beside it.

    Args:
        folder: Where ONNX files lie, at any depth.
        path: Where the suite will stand; paths in it are relative to that.

    Raises:
        InputError: The folder holds no model.
    """
    models = sorted(folder.rglob("*.onnx"))
    if not models:
        raise InputError(f"{folder} holds no .onnx file; name a folder of models.")
    stems = Counter(model.stem for model in models)
    rows = [_row(model, folder, path.parent, unique=stems[model.stem] == 1) for model in models]
    return _HEAD.format(name=path.name) + "".join(rows) + _TAIL


def _row(model: Path, folder: Path, base: Path, *, unique: bool) -> str:
    row = f"- path: {json.dumps(_relative(model, base))}\n"
    if not unique:
        name = "-".join(model.relative_to(folder).with_suffix("").parts)
        row += f"  name: {json.dumps(name)}\n"
    inputs = [model.with_suffix(suffix) for suffix in (".npz", ".json")]
    inputs += [model.with_name("inputs.npz")]
    found = next((p for p in inputs if p.is_file()), None)
    if found is None:
        return row + "  # inputs: [...]   without them random data is fed\n"
    return row + f"  inputs: [{json.dumps(_relative(found, base))}]\n"


def _relative(path: Path, base: Path) -> str:
    try:
        return str(path.absolute().relative_to(base.absolute()))
    except ValueError:
        return str(path.absolute())
