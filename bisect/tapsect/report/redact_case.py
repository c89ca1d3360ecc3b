"""A case folder without private names, and with other numbers where it still fails with them."""

from __future__ import annotations

import ast
import json
import pprint
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError
from onnx import ModelProto

from debugtaps import (
    Array,
    EngineFailure,
    EngineSpec,
    EnvironmentFailure,
    Host,
    InputError,
    read_npz,
    resolve,
    write_json_atomic,
    write_npz,
)
from tapsect.case import SLOT, Case, case_readme
from tapsect.finding import Finding
from tapsect.report.redact import Names
from tapsect.report.redact_model import all_random, load, renamed, with_random_weights

__all__ = ["redact_case"]

_CHECK_SECONDS = 600.0


def redact_case(case: Path, finding: Finding, names: Names) -> tuple[str, ...]:
    """Replaces private names in a copy of a case, and numbers where the failure allows it.

    Args:
        case: The copy; it is changed.
        finding: The result, as it was.
        names: What is private.

    Returns:
        What the owner should know: which numbers are still the original ones.

    Raises:
        InputError: The case is damaged, or fails no more under other names.
    """
    shown = _fails(case)
    settings = _settings(case / "check.py")
    for path in case.glob("*.onnx"):
        _save(renamed(load(path), names.name), path)
    for path in case.glob("*.npz"):
        write_npz(path, {names.name(n): v for n, v in read_npz(path).items()})
    told = _engine_source(case, settings, names)
    _write_settings(case / "check.py", told)
    _write_words(case, told, finding, names)
    if not shown:
        return (
            "The check does not show the failure on this machine, so weights and inputs were left"
            " as they are; look at them before you hand this over.",
        )
    if not _fails(case):
        raise InputError(
            "Under other names the case fails no more: the failure depends on a name; hand it over"
            " without --redact."
        )
    return _other_numbers(case, told, names)


def _fails(case: Path) -> bool:
    """Returns whether the check shows the failure it was made for."""
    command = [sys.executable, "check.py"]
    try:
        done = subprocess.run(
            command, cwd=case, capture_output=True, text=True, errors="replace",
            timeout=_CHECK_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 1 and "in another way" not in done.stdout


def _save(model: ModelProto, path: Path) -> None:
    try:
        data = model.SerializeToString(deterministic=True)
    except (ValueError, EncodeError):  # protobuf's limit for one message
        raise InputError(
            "The case's model is larger than 2 GB and cannot be given other names; hand it over"
            " without --redact."
        ) from None
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
    path.write_bytes(data)


# --------------------------------------------------------------------------------- the settings


def _settings(check: Path) -> dict[str, Any]:
    """Returns the settings in a check; they are read as a literal, never run."""
    try:
        tree = ast.parse(check.read_text(encoding="utf-8"))
        node = next(n for n in tree.body if isinstance(n, ast.AnnAssign) and _is_slot(n))
        settings = ast.literal_eval(node.value) if node.value is not None else None
    except (SyntaxError, ValueError, StopIteration, UnicodeDecodeError):
        settings = None
    if not isinstance(settings, dict) or not isinstance(settings.get("engine"), dict):
        raise InputError(f"{check} is not a check that tapsect wrote; make the case again.")
    return settings


def _is_slot(node: ast.AnnAssign) -> bool:
    return isinstance(node.target, ast.Name) and node.target.id == "SETTINGS"


def _write_settings(check: Path, settings: Mapping[str, Any]) -> None:
    """Writes the check anew from its template: nothing of the old text stays."""
    import tapsect.case_check

    template = Path(tapsect.case_check.__file__).read_text(encoding="utf-8")
    told = pprint.pformat(dict(settings), width=96, sort_dicts=False)
    text = template.replace(SLOT, f"SETTINGS: Dict[str, Any] = {told}")
    check.write_text(text, encoding="utf-8")


def _engine_source(case: Path, settings: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Returns the settings without private names; the user's own engine is rewritten as well."""
    engine = dict(settings["engine"])
    if engine["how"] == "file":
        source = case / "engine.py"
        source.write_text(names.source(source.read_text(encoding="utf-8")), encoding="utf-8")
        engine |= {"origin": "", "spec": f"engine.py:{engine['name']}"}
    engine["options"] = names.data(engine["options"])
    limits = {names.name(n): limit for n, limit in settings["limits"].items()}
    error = names.text(settings["error"]) if settings["error"] else ""
    return {**settings, "engine": engine, "limits": limits, "error": error}


def _write_words(case: Path, settings: Mapping[str, Any], finding: Finding, names: Names) -> None:
    """Writes README and environment anew."""
    engine = settings["engine"]
    source = finding.minimal.values if finding.minimal is not None else "reference"
    told = Case(
        model=b"", inputs={}, expected={}, kind=settings["kind"],
        engine=EngineSpec(engine["spec"], ("builtin", "", ""), engine["options"]),
        message=names.text(finding.message), facts={"values": f"as the {source} has them"},
    )  # fmt: skip
    (case / "README.md").write_text(case_readme(told, engine), encoding="utf-8")
    path = case / "environment.json"
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        body = dict(finding.environment)
    write_json_atomic(path, names.data(body))


# ------------------------------------------------------------------------------- other numbers


def _other_numbers(case: Path, settings: Mapping[str, Any], names: Names) -> tuple[str, ...]:
    """Replaces as many numbers as the failure allows; returns which ones are the original."""
    model = load(case / "model.onnx")
    inputs, expected = read_npz(case / "inputs.npz"), read_npz(case / "expected.npz")
    seed = int.from_bytes(names.key[:8].ljust(8, b"0"), "big")
    tries = (
        (True, True, ()),
        (True, False, ("The inputs are the original ones: with others it did not fail.",)),
        (False, True, ("The weights are the original ones: with others it did not fail.",)),
    )
    for weights, fed, notes in tries:
        rng = np.random.default_rng(seed)
        drawn = with_random_weights(model, rng) if weights else model
        feeds = all_random(inputs, rng) if fed else inputs
        _save(drawn, case / "model.onnx")
        write_npz(case / "inputs.npz", feeds)
        wanted = _answers(case / "model.onnx", feeds) if expected else {}
        if wanted is None or wanted.keys() != expected.keys():
            continue
        write_npz(case / "expected.npz", wanted)
        _write_settings(case / "check.py", _scaled(settings, expected, wanted))
        if _fails(case):
            return notes
    _save(model, case / "model.onnx")
    write_npz(case / "inputs.npz", inputs)
    write_npz(case / "expected.npz", expected)
    _write_settings(case / "check.py", settings)
    return ("Weights and inputs are the original ones: with others it did not fail.",)


def _answers(model: Path, feeds: Mapping[str, Array]) -> dict[str, Array] | None:
    """Returns what a model answers without optimisation; None where it cannot be run so."""
    try:
        with Host(resolve("ort-reference")) as host:
            build = host.build(model)
            try:
                return dict(build.run(feeds))
            finally:
                build.close()
    except (EngineFailure, EnvironmentFailure):
        return None


def _scaled(
    settings: Mapping[str, Any], before: Mapping[str, Array], after: Mapping[str, Array]
) -> dict[str, Any]:
    """Returns the settings with limits that stand to the new answers as they did to the old."""
    limits = {}
    for name, limit in settings["limits"].items():
        old, new = _size(before.get(name)), _size(after.get(name))
        factor = new / old if old and new else 1.0
        keep = {k: v for k, v in limit.items() if k == "rtol"}
        limits[name] = {**{k: v * factor for k, v in limit.items()}, **keep}
    return {**settings, "limits": limits}


def _size(values: Array | None) -> float:
    """Returns the root mean square of what is finite; 0 where there is none."""
    if values is None or values.dtype.kind not in "fV" or not values.size:
        return 0.0
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
