"""What a TensorRT log says: why a build failed, which node it names, which tactics it timed.

Almost nothing raises in TensorRT.  A failure is ``None`` and a line of the log; lines that only
say that this machine has no GPU follow each of them and are dropped.

Pure: no TensorRT, Python 3.8, the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

__all__ = [
    "BuildStopped",
    "Line",
    "NoMemory",
    "NotTaken",
    "TensorRtError",
    "Timed",
    "build_failure",
    "errors_of",
    "parse_failure",
    "profiled",
    "weights_bytes",
]

Line = Tuple[str, str]
"""Severity and text."""

_SPURIOUS = re.compile(
    r"catchCudaError.*cudaError ?35|CUDA driver version is insufficient"
    r"|Unable to determine GPU memory usage|CUDA initialization failure with error: 35"
)
_CODE = re.compile(r"Error Code (\d+): ([^(]+?)\s*\((.*)", re.DOTALL)
_SPAN = re.compile(r"ForeignNode\[([^\]]*?)\.\.\.([^\]]*?)\]")
_WORD = re.compile(r"[^\s'\"()\[\]{},;]+")
_WEIGHTS = re.compile(r"Total Weights Memory: (\d+) bytes")
_MEMORY = re.compile(
    r"OutOfMemory|out of memory|cudaError ?2\b|insufficient memory on requested size"
    r"|FAILED_ALLOCATION|Error Code 5:",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"has no runners that implement it|Could not find any implementation|is not supported"
    r"|not supported|unsupported",
    re.IGNORECASE,
)
_STOPPED = re.compile(r"BuildCanceled|Error Code 7: Build")
_OPERATION = re.compile(r"Autotuning op (.*)\(key: (0x[0-9a-fA-F]{32})\)")
_TACTIC = re.compile(
    r"^\s*(\d+),\s*([\d.eE+-]+),\s*[\d.eE+-]+,\s*[\d.eE+-]+,\s*([^,]+),\s*(0x[0-9a-fA-F]+)"
)
_SELECTED = re.compile(r"\(tactic hash, cost\(in ms\)\):\s*(0x[0-9a-fA-F]+)")


class TensorRtError(RuntimeError):
    """TensorRT could not parse, build or run; the text is its own."""


class NotTaken(TensorRtError):
    """TensorRT says itself that it does not take an operator, a type or a shape."""


class NoMemory(MemoryError):
    """TensorRT ran out of memory."""


class BuildStopped(TimeoutError):
    """A build took longer than it may, and was cancelled."""


class Timed(NamedTuple):
    """One operation that was timed: its key, its tactics by hash, and the one chosen."""

    op: str
    key: str
    tactics: Dict[int, str]
    selected: Optional[int]


def errors_of(lines: Iterable[Line]) -> List[str]:
    """Returns the texts of errors, without those that only tell that there is no GPU."""
    return [
        text
        for severity, text in lines
        if severity in ("ERROR", "INTERNAL_ERROR") and not _SPURIOUS.search(text)
    ]


def _spurious(lines: Iterable[Line]) -> Optional[str]:
    return next((text for _, text in lines if _SPURIOUS.search(text)), None)


def _about(text: str, layers: Mapping[str, str]) -> str:
    """Returns the ONNX nodes that a text names by their layers, as a clause."""
    words = set(_WORD.findall(text))
    words |= {word.rstrip(".:") for word in words}
    for first, last in _SPAN.findall(text):
        words |= {first, last}
    named = [node for layer, node in layers.items() if layer in words and node]
    named = list(dict.fromkeys(named))[:4]
    return " (ONNX node %s)" % ", ".join("'%s'" % node for node in named) if named else ""


def build_failure(
    lines: Sequence[Line], layers: Mapping[str, str], *, stopped: str = ""
) -> BaseException:
    """Returns what to raise for a build that gave no plan.

    Args:
        lines: What the logger heard during the build.
        layers: The ONNX node of each layer.
        stopped: Why the build was cancelled from here, if it was.
    """
    errors = errors_of(lines)
    if stopped or any(_STOPPED.search(text) for text in errors):
        return BuildStopped(stopped or "the build was cancelled")
    text = errors[-1] if errors else ""
    if not text:
        alone = _spurious(lines)
        why = "it needs a GPU: %s" % alone if alone else "it logged no error"
        return TensorRtError("the builder returned no plan; %s" % why)
    found = _CODE.search(text)
    short = "%s: %s" % (found.group(2), found.group(3)) if found else text
    said = " ".join(short.split())[:1500] + _about(text, layers)
    if any(_MEMORY.search(each) for each in errors):
        return NoMemory("out of memory: " + said)
    if _REFUSED.search(text):
        return NotTaken("not supported: " + said)
    return TensorRtError(said)


def parse_failure(
    errors: Sequence[Mapping[str, Any]], lines: Sequence[Line], names: Mapping[str, str]
) -> TensorRtError:
    """Returns what to raise for a model that was not parsed.

    Args:
        errors: ``code``, ``desc``, ``name``, ``op`` of each parser error.
        lines: What the logger heard.
        names: ONNX names of nodes, by the parser's names for them.
    """
    if not errors:
        logged = errors_of(lines)
        return TensorRtError(logged[-1] if logged else "the parser made no network of this model")
    told, refused = [], False
    for error in errors[:8]:
        code, text = str(error["code"]), " ".join(str(error["desc"]).split())
        missing = code == "UNSUPPORTED_NODE" or "Plugin not found" in text
        refused |= missing or bool(_REFUSED.search(text))
        name = names.get(str(error["name"]), str(error["name"]))
        where = "node '%s' (%s)" % (name, error["op"]) if error["op"] else "the model"
        what = "unsupported operator" if missing else code
        tail = "" if text in ("", "false") else ": " + text[:600]
        told.append("%s: %s%s" % (where, what, tail))
    return (NotTaken if refused else TensorRtError)("; ".join(told))


def weights_bytes(lines: Iterable[Line]) -> Optional[int]:
    """Returns how many bytes of weights the plan holds, where the log says."""
    for _, text in lines:
        found = _WEIGHTS.search(text)
        if found:
            return int(found.group(1))
    return None


def profiled(lines: Iterable[Line]) -> List[Timed]:
    """Returns the operations a build timed (full TensorRT with an editable timing cache)."""
    found: List[Timed] = []
    current: Optional[Timed] = None
    for line in (line for _, text in lines for line in text.split("\n")):
        operation = _OPERATION.search(line)
        if operation:
            current = Timed(operation.group(1).strip(), operation.group(2), {}, None)
            found.append(current)
        elif current is not None:
            tactic, selected = _TACTIC.match(line), _SELECTED.search(line)
            if tactic:
                current.tactics[int(tactic.group(4), 16)] = tactic.group(3).strip()
            elif selected:
                found[-1] = current._replace(selected=int(selected.group(1), 16))
                current = None
    return found
