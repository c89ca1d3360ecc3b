"""The forms that build servers read: JUnit's XML and JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tapsect.escape import clean
from tapsect.finding import Finding
from tapsect.report.terminal import render_text

__all__ = ["render_jsonl", "render_junit"]


def render_junit(findings: Sequence[Finding]) -> str:
    """Returns a test suite with one test case a finding; it fails unless the engine agrees."""
    from xml.etree import ElementTree

    failing = sum(f.status != "agrees" for f in findings)
    counts = {"tests": str(len(findings)), "failures": str(failing), "errors": "0", "skipped": "0"}
    seconds = f"{sum(f.cost.seconds for f in findings):.3f}"
    root = ElementTree.Element("testsuites", {"name": "tapsect", **counts, "time": seconds})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": "tapsect", **counts, "time": seconds}
    )
    for finding in findings:
        case = ElementTree.SubElement(suite, "testcase", _case(finding))
        if finding.status != "agrees":
            kind = finding.cause or finding.failure or finding.status
            told = {"type": clean(kind), "message": clean(finding.message, limit=2000)}
            ElementTree.SubElement(case, "failure", told).text = render_text(finding, width=100)
    ElementTree.indent(root)
    body: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(finding: Finding) -> dict[str, str]:
    return {
        "classname": f"tapsect.{clean(str(finding.engine.get('spec', 'engine')))}",
        "name": clean(str(finding.model.get("path", "model"))),
        "time": f"{finding.cost.seconds:.3f}",
    }


def render_jsonl(findings: Sequence[Finding]) -> str:
    """Returns one JSON object a line: the finding, then its outputs, places, fixes and steps.

    Each says in ``record`` what it is and in ``model`` and ``engine`` what it belongs to.
    """
    lines = [
        json.dumps(record, allow_nan=False) for finding in findings for record in _records(finding)
    ]
    return "\n".join(lines) + "\n" if lines else ""


def _records(finding: Finding) -> Iterator[Mapping[str, Any]]:
    body = finding.to_json()
    whose = {"model": finding.model.get("path"), "engine": finding.engine.get("spec")}
    alone = (
        "schema", "tool_version", "status", "failure", "cause", "message", "culprit_nodes",
        "signature", "coverage", "cost", "minimal",
    )  # fmt: skip
    yield {"record": "finding", **whose, "exit_code": finding.exit_code} | {
        key: body[key] for key in alone
    }
    for output in body["outputs"]:
        yield {"record": "output", **whose, **output}
    places = [body["first_divergence"]] if body["first_divergence"] else []
    for rank, place in enumerate([*places, *body["also"]]):
        yield {"record": "place", **whose, "rank": rank, **place}
    for fix in body["fixes"]:
        yield {"record": "fix", **whose, **fix}
    for step in body["trail"]:
        yield {"record": "step", **whose, **step}
