"""``result.json`` against the contract, field by field: written from its text, not from the code.

``violations(body)`` returns what is wrong, one sentence each; ``check(folder)`` also looks at the
files that the result names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["check", "violations"]

STATUSES = ("agrees", "diverges", "inconclusive")
FAILURES = (
    "accuracy", "nonfinite", "wrong_shape", "wrong_dtype", "missing_output", "build_error",
    "run_error", "crash", "timeout", "out_of_memory",
)  # fmt: skip
CAUSES = (
    "engine_defect", "precision_limit", "ill_conditioned", "input_sensitive", "flaky_build",
    "flaky_run", "export_mismatch", "reference_suspect", "unsupported", "resource_limit",
)  # fmt: skip
EVIDENCE = ("tapped", "healed", "isolated", "predicate")
REST = ("verified", "fused_away", "untappable", "unreliable", "not_judged")

Rule = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("inf", "-inf", "nan")
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _maybe(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _among(words: Sequence[str]) -> Rule:
    return lambda value: value in words


def _relative(value: Any) -> bool:
    return _text(value) and not PurePosixPath(value).is_absolute() and ".." not in value.split("/")


PLACE: Mapping[str, Rule] = {
    "tensor": _text, "node": _text, "op_type": _text, "introduced": _maybe(_number),
    "propagated": _maybe(_number), "rounding_ratio": _maybe(_number),
    "evidence": _among(EVIDENCE), "tap": _maybe(_text), "source": _maybe(_text),
    "kernel": _maybe(_text),
}  # fmt: skip
OUTPUT: Mapping[str, Rule] = {
    "name": _text, "sample": _count, "failing": _flag, "max_abs": _maybe(_number),
    "rel_rms": _maybe(_number), "cosine": _maybe(_number), "floor": _maybe(_number),
    "nonfinite_engine": _count, "nonfinite_reference": _count,
}  # fmt: skip
MINIMAL: Mapping[str, Rule] = {
    "model": _relative, "inputs": _relative, "expected": _relative, "nodes": _names,
    "values": _among(("reference", "engine")), "reproduced": _count, "of": _count,
}  # fmt: skip
FIX: Mapping[str, Rule] = {
    "kind": _text, "setting": _text, "error_before": _maybe(_number),
    "error_after": _maybe(_number), "latency_before": _maybe(_number),
    "latency_after": _maybe(_number),
}  # fmt: skip
STEP: Mapping[str, Rule] = {"step": _text, "decision": _text, "why": _text, "builds": _count}
TOP: Mapping[str, Rule] = {
    "schema": lambda v: v == 1, "tool_version": _text, "command": _names, "message": _text,
    "status": _among(STATUSES), "failure": _maybe(_among(FAILURES)),
    "cause": _maybe(_among(CAUSES)), "model": _object, "engine": _object, "precision": _object,
    "outputs": lambda v: isinstance(v, list), "first_divergence": _maybe(_object),
    "culprit_nodes": _names, "also": lambda v: isinstance(v, list),
    "harmless": lambda v: isinstance(v, list), "signature": _object, "minimal": _maybe(_object),
    "coverage": _object, "fixes": lambda v: isinstance(v, list), "cost": _object,
    "trail": lambda v: isinstance(v, list), "environment": _object,
}  # fmt: skip
PARTS: Mapping[str, Mapping[str, Rule]] = {
    "model": {"path": _text, "sha256": _text, "nodes": _count},
    "engine": {"spec": _text, "options": _object, "describe": _object},
    "precision": {"stated": _maybe(_text), "effective": _maybe(_text)},
    "minimal": MINIMAL,
    "first_divergence": PLACE,
    "coverage": {"tensors": _count, **dict.fromkeys(REST, _count)},
    "cost": {
        "builds": _count,
        "runs": _count,
        "seconds": _number,
        "reduce_builds": _count,
        "fix_builds": _count,
    },
}
LISTS: Mapping[str, Mapping[str, Rule]] = {
    "outputs": OUTPUT, "also": PLACE, "harmless": PLACE, "fixes": FIX, "trail": STEP,
}  # fmt: skip


def violations(body: Mapping[str, Any]) -> list[str]:
    """Returns what of a result breaks the contract."""
    wrong = list(_fields("", TOP, body))
    for name, rules in PARTS.items():
        if isinstance(body.get(name), dict):
            wrong += _fields(name, rules, body[name])
    for name, rules in LISTS.items():
        for number, item in enumerate(body.get(name) or ()):
            wrong += _fields(f"{name}[{number}]", rules, item)
    return wrong or list(_sense(body))


def _fields(where: str, rules: Mapping[str, Rule], body: Any) -> Iterator[str]:
    if not isinstance(body, dict):
        yield f"{where} is no object"
        return
    for name, rule in rules.items():
        path = f"{where}.{name}".lstrip(".")
        if name not in body:
            yield f"{path} is missing"
        elif not rule(body[name]):
            yield f"{path} is {body[name]!r}"


def _sense(body: Mapping[str, Any]) -> Iterator[str]:
    """What the fields must be to each other."""
    coverage, status = body["coverage"], body["status"]
    if coverage["tensors"] != sum(coverage[name] for name in REST):
        yield "coverage.tensors is not the sum of the other five"
    if status == "agrees":
        if body["failure"] is not None or body["first_divergence"] is not None:
            yield "agrees, with a failure or a place"
        if body["cause"] not in (None, "precision_limit", "ill_conditioned"):
            yield f"agrees, with cause {body['cause']}"
    elif body["failure"] is None:
        yield f"{status} without a failure"
    if status == "diverges" and body["cause"] is None:
        yield "diverges without a cause"
    if body["cause"] == "engine_defect" and not body["culprit_nodes"]:
        yield "a defect of nothing"
    if "\n" in body["message"].strip() or not body["message"].strip():
        yield "message is not one sentence"
    if sum(step["builds"] for step in body["trail"]) > (
        body["cost"]["builds"] + body["cost"]["reduce_builds"] + body["cost"]["fix_builds"]
    ):
        yield "the trail counts more builds than there were"
    minimal = body["minimal"]
    if minimal is not None and not 1 <= minimal["reproduced"] <= minimal["of"]:
        yield "minimal.reproduced is not within 1 and minimal.of"


def check(folder: Path) -> dict[str, Any]:
    """Returns the result of a folder after finding it, and the files it names, in order."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"result.json holds {constant}")

    text = (folder / "result.json").read_text(encoding="utf-8")
    body: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert violations(body) == []
    if body["minimal"] is not None:
        for name in ("model", "inputs", "expected"):
            assert (folder / body["minimal"][name]).is_file(), name
        for name in ("check.py", "README.md", "environment.json"):
            assert (folder / "case" / name).is_file(), name
    leftovers = {p.name for p in folder.iterdir()} & {".work", ".probes", ".lock"}
    assert not leftovers
    return body
