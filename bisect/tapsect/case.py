"""The folder that reproduces a failure alone: model, inputs, expected values and a check.

``check.py`` exits with 1 while the bug is there, 0 when it is gone, 2 when it cannot run.  It is
``case_check`` with its settings filled in; the engine's own file lies beside it as ``engine.py``,
so that numpy, onnx and the engine's package are all it needs.
"""

from __future__ import annotations

import math
import pprint
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import (
    Array,
    EngineSpec,
    write_json_atomic,
    write_npz,
    write_text_atomic,
)
from tapsect.escape import code, md
from tapsect.folder import write_folder
from tapsect.onefile import copy_model

__all__ = ["SLOT", "Case", "Limit", "case_readme", "write_case"]

_OURS = re.compile(r"^\s*(?:from|import)\s+(?:debugtaps|tapsect)\b", re.MULTILINE)
SLOT = "SETTINGS: Dict[str, Any] = {}"
"""What stands in the check where its settings go."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How far one output may be from its expected value; the bug is there above any of them.

    Attributes:
        rms: Root mean square error over the tensor, in the tensor's own unit.
        max_abs: Error of a single element.
        atol: With ``rtol``: an element fails above both.
        rtol: See ``atol``.
    """

    rms: float | None = None
    max_abs: float | None = None
    atol: float | None = None
    rtol: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What a case folder is written from.

    Attributes:
        model: The ONNX file's bytes, or its path; weights that lie beside it are taken in.
        inputs: What it is fed.
        expected: What its outputs shall be; empty when there is none (crash, build error).
        engine: The engine, as `debugtaps.resolve` gives it.
        kind: The failure, in the words of ``result.json``.
        limits: Per output, what counts as wrong; an output without one is judged for shape and
            non-finite elements only, an integer one for equality.
        error: What the engine's message must hold to be the same failure; empty for any.
        message: One sentence that says what is wrong.
        facts: What a reader of the case wants to know, by title.
        environment: Versions and machine, as ``environment.json`` shall hold them.
        timeout: Seconds after which the engine hangs.
        tries: How often to try before the bug counts as gone; more than 1 for flaky ones.
        extra: Further files, by name.
    """

    model: bytes | Path
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    engine: EngineSpec
    kind: str
    limits: Mapping[str, Limit] = field(default_factory=dict)
    error: str = ""
    message: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    tries: int = 1
    extra: Mapping[str, bytes] = field(default_factory=dict)


def write_case(folder: Path, case: Case) -> Path:
    """Returns ``folder`` after writing the case there, whole or not at all.

    A case that stood there before is replaced.

    Raises:
        OutputError: The folder cannot be written.
    """
    return write_folder(folder, lambda draft: _fill(draft, case))


def _fill(draft: Path, case: Case) -> None:
    copy_model(draft / "model.onnx", case.model)
    write_npz(draft / "inputs.npz", case.inputs)
    write_npz(draft / "expected.npz", case.expected)
    engine, source = _engine(case.engine)
    if source is not None:
        write_text_atomic(draft / "engine.py", source)
    template = Path(__file__).with_name("case_check.py").read_text(encoding="utf-8")
    settings = pprint.pformat(_settings(case, engine), width=96, sort_dicts=False)
    write_text_atomic(
        draft / "check.py", template.replace(SLOT, f"SETTINGS: Dict[str, Any] = {settings}")
    )
    write_text_atomic(draft / "README.md", case_readme(case, engine))
    write_json_atomic(draft / "environment.json", dict(case.environment))
    for name, data in case.extra.items():
        (draft / name).write_bytes(data)


def _engine(engine: EngineSpec) -> tuple[dict[str, Any], str | None]:
    """Returns how the check finds the engine, and the source to lay beside it, if any."""
    how, where, name = engine.target
    facts = {"spec": engine.spec, "name": name, "options": _literal(dict(engine.options))}
    if how == "module":
        return {"how": "module", "where": where, **facts}, None
    source = Path(where).read_text(encoding="utf-8")
    if how == "builtin" and (engine.spec == "planted" or _OURS.search(source)):
        return {"how": "tapsect", "where": "", **facts}, None
    origin = where if how == "file" else ""
    return {"how": how, "where": "engine.py", "origin": origin, **facts}, source


def _settings(case: Case, engine: Mapping[str, Any]) -> dict[str, Any]:
    limits = {
        name: {key: value for key, value in asdict(limit).items() if _is_limit(value)}
        for name, limit in case.limits.items()
    }
    return {
        "kind": case.kind,
        "error": case.error,
        "limits": limits,
        "engine": dict(engine),
        "timeout": float(case.timeout),
        "tries": int(case.tries),
    }


def _is_limit(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _literal(value: Any) -> Any:
    """Returns ``value`` as what a Python literal can say; anything else becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): _literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_literal(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def case_readme(case: Case, engine: Mapping[str, Any]) -> str:
    """Returns the text that explains a case.

    Args:
        case: The case; its tensors and model are not looked at.
        engine: How the check finds the engine, as its settings say it.
    """
    needs = {
        "tapsect": "`numpy`, `onnx` and `tapsect` itself, whose engine this is",
        "module": f"`numpy`, `onnx` and the module {code(str(engine['where']))}",
    }.get(str(engine["how"]), "`numpy`, `onnx` and the engine's own package")
    options = ", ".join(f"{k}={v}" for k, v in case.engine.options.items()) or "none"
    rows = {
        "failure": case.kind,
        "engine": case.engine.spec,
        "options": options,
        **case.facts,
    }
    parts: Sequence[str] = (
        "# A failing case",
        md(case.message) or f"The engine fails: {md(case.kind)}.",
        "    python check.py",
        "Exits with 1 while the bug is there, 0 when it is gone, 2 when it cannot run here."
        f" It needs {needs}.",
        "\n".join(f"- {md(title)}: {code(text)}" for title, text in rows.items()),
        "`model.onnx` is the model, `inputs.npz` what it is fed, `expected.npz` what it should"
        " answer, `environment.json` where it was seen.",
    )
    return "\n\n".join(parts) + "\n"
