"""The folder that reproduces a failure of a command: model, inputs and the command itself."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import Array, write_json_atomic, write_npz, write_polygraphy, write_text_atomic
from tapsect.escape import code, md
from tapsect.folder import write_folder
from tapsect.onefile import copy_model

__all__ = ["CommandCase", "write_command_case"]

_SLOT = "SETTINGS: Dict[str, Any] = {}"


@dataclass(frozen=True, slots=True)
class CommandCase:
    """What the folder is written from.

    Attributes:
        model: The ONNX file's bytes, or its path; weights that lie beside it are taken in.
        inputs: What it is fed.
        expected: What its outputs should be, where the reference says it.
        settings: The command and its rule; without a command a person judges.
        message: One sentence that says what fails.
        facts: What a reader wants to know, by title.
        environment: Versions and machine.
        extra: Further files, by name.
    """

    model: bytes | Path
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    settings: Mapping[str, Any]
    message: str
    facts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, bytes] = field(default_factory=dict)


def write_command_case(folder: Path, case: CommandCase) -> Path:
    """Returns ``folder`` after writing the case there, whole or not at all.

    Raises:
        OutputError: The folder cannot be written.
    """
    return write_folder(folder, lambda draft: _fill(draft, case))


def _fill(draft: Path, case: CommandCase) -> None:
    copy_model(draft / "model.onnx", case.model)
    write_npz(draft / "inputs.npz", case.inputs)
    if any("{inputs_json}" in word for word in case.settings.get("command") or ()):
        write_polygraphy(draft / "inputs.json", [case.inputs])
    if case.expected:
        write_npz(draft / "expected.npz", case.expected)
    if case.settings.get("command"):
        template = Path(__file__).with_name("case_command_check.py").read_text(encoding="utf-8")
        settings = pprint.pformat(dict(case.settings), width=96, sort_dicts=False)
        text = template.replace(_SLOT, f"SETTINGS: Dict[str, Any] = {settings}")
        write_text_atomic(draft / "check.py", text)
    write_json_atomic(draft / "environment.json", dict(case.environment))
    write_text_atomic(draft / "README.md", _readme(case))
    for name, data in case.extra.items():
        (draft / name).write_bytes(data)


def _readme(case: CommandCase) -> str:
    parts = ["# A failing case", md(case.message)]
    if case.settings.get("command"):
        parts += [
            "    python check.py",
            "Exits with 1 while it fails, 0 when it does not any more, 2 when it cannot run here."
            " It runs the command that judged the model, and needs what that needs.",
        ]
    else:
        parts.append("A person judged the model; there is no check to run.")
    parts.append("\n".join(f"- {md(title)}: {code(text)}" for title, text in case.facts.items()))
    parts.append("`model.onnx` is the model, `inputs.npz` what it is fed.")
    return "\n\n".join(part for part in parts if part) + "\n"
