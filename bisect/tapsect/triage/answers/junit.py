"""A run as JUnit XML: one test case an entry; what is new or regressed fails, the rest does not."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tapsect.escape import clean
from tapsect.triage.answers.plain import since_words
from tapsect.triage.states import NEWS
from tapsect.triage.summary import Row, Summary

__all__ = ["render_junit"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(summary: Summary) -> str:
    """Returns the document.

    A known, expected or flaky failure is a skipped case, so that a red job means news.
    """
    failed = sum(row.state in NEWS for row in summary.rows)
    skipped = sum(row.signature is not None and row.state not in NEWS for row in summary.rows)
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root, "testsuite", name=_text(summary.suite), tests=str(len(summary.rows)),
        failures=str(failed), skipped=str(skipped), errors="0", time=f"{summary.seconds:.3f}",
        timestamp=f"{summary.run.started:%Y-%m-%dT%H:%M:%S}",
    )  # fmt: skip
    for row in sorted(summary.rows, key=lambda r: r.entry):
        _case(suite, summary, row)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, summary: Summary, row: Row) -> None:
    case = ET.SubElement(
        suite, "testcase", classname=_text(summary.suite), name=_text(row.entry),
        time=f"{0.0 if row.cached else row.seconds:.3f}",
    )  # fmt: skip
    if row.state in NEWS:
        failure = ET.SubElement(
            case, "failure", type=row.state, message=_text(f"{row.state}: {row.message}")
        )
        failure.text = _text("\n".join([f"signature {row.signature}", *since_words(row)]))
    elif row.signature is not None:
        ET.SubElement(case, "skipped", message=_text(f"{row.state}: {row.message}"))


def _text(text: str) -> str:
    lines = (clean(line, limit=2000) for line in text.split("\n"))
    return _NOT_XML.sub("?", "\n".join(lines))
