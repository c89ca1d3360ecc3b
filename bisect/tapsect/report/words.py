"""Causes and failures in plain words: what each means, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = [
    "BREAKS",
    "BREAKS_MEANING",
    "CAUSES",
    "CHECKED",
    "EVIDENCE",
    "EXPORT_EVIDENCE",
    "FAILURES",
    "HIDDEN",
    "UNKNOWN",
    "Words",
    "number",
]


@dataclass(frozen=True, slots=True)
class Words:
    """One cause: its title, what it means, and what to do next."""

    title: str
    meaning: str
    advice: str


CAUSES: Mapping[str, Words] = MappingProxyType(
    {
        "engine_defect": Words(
            "engine defect",
            "Given the same inputs, the engine computes this place differently from the operator's"
            " definition, by more than rounding explains.",
            "Run the case, attach its folder to a report to the engine's makers, and avoid the"
            " place until it is mended.",
        ),
        "precision_limit": Words(
            "limit of the precision",
            "No single place is wrong: the rounding of the precision that the engine computes in"
            " explains the whole difference.",
            "Run the nodes that contribute most in a higher precision, or accept the difference.",
        ),
        "ill_conditioned": Words(
            "ill-conditioned model",
            "The model turns a difference as small as rounding into a large one, so two correct"
            " engines may disagree this much.",
            "Do not expect closer values at this place; judge the model by its task (boxes,"
            " tokens) with --judge.",
        ),
        "input_sensitive": Words(
            "sensitive to the input",
            "Only some of the samples fail.",
            "Look at the failing samples first: values out of range, ties, or sizes the others"
            " do not have.",
        ),
        "flaky_build": Words(
            "builds that disagree",
            "Two builds of the same model by the same engine give different answers.",
            "tapsect repeat --save-tactics says what bad builds chose, tapsect tactics prove which"
            " choice is bad; or fix what the builder may choose (timing cache, threads).",
        ),
        "flaky_run": Words(
            "runs that disagree",
            "One build gives different answers to the same input.",
            "Look for a race, for memory that is read before it is written, or for atomics; run"
            " with one thread or stream.",
        ),
        "export_mismatch": Words(
            "export",
            "The ONNX file itself does not compute what the original model computes.",
            "Mend the export or the conversion at this node; the engine only does what the file"
            " says.",
        ),
        "reference_suspect": Words(
            "reference in doubt",
            "A second, independent evaluation of this node disagrees with the reference, so the"
            " engine may be right.",
            "Choose another --reference (for example onnx) and compare again.",
        ),
        "unsupported": Words(
            "not supported",
            "The engine itself says that it does not take this operator, type or shape.",
            "Replace the operator, choose another opset or type, or give the node to another"
            " engine.",
        ),
        "resource_limit": Words(
            "resource limit",
            "The machine's memory or time did not suffice; this says nothing about the values.",
            "Give smaller inputs or a smaller --tap-memory, or a machine with more memory.",
        ),
    }
)

BREAKS = frozenset({"build_error", "run_error", "crash", "timeout"})
BREAKS_MEANING = "The model is valid there, and the engine gives no answer because of this place."

UNKNOWN = Words(
    "not known",
    "The answers differ, and what was found explains it only in part.",
    "See what is known in the trail; give other --inputs, or a longer --budget.",
)

CHECKED = Words(
    "as the check has it",
    "The check alone judged: it fails on this model, and why is not looked into.",
    "Hand the case over with the check; tapsect bisect looks for the cause in an engine.",
)

FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "accuracy": "values differ beyond rounding",
        "nonfinite": "NaN or infinity on one side only",
        "wrong_shape": "an output has another shape",
        "wrong_dtype": "an output has another type",
        "missing_output": "an output is missing",
        "build_error": "the engine refuses to build the model",
        "run_error": "the engine raises an error when it runs",
        "crash": "the engine's process dies",
        "timeout": "the engine does not finish in time",
        "out_of_memory": "the engine runs out of memory",
    }
)

EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "tapped": "seen at a tap, in a build that fails as the untapped one does",
        "healed": "exposing this tensor cures the failure, so a fusion around it is wrong",
        "isolated": "the part fails when it is cut out and run alone",
        "predicate": "found by building parts of the model: with it they fail, without it not",
    }
)

EXPORT_EVIDENCE = (
    "what the file computes here, by its reference, differs from the original's value of that name"
)

HIDDEN: Mapping[str, str] = MappingProxyType(
    {
        "fused_away": "fused away",
        "healed": "a look at them changes the failure",
        "untappable": "cannot be tapped",
        "unreliable": "the tap shows another value than is computed",
        "not_judged": "not judged",
    }
)


def number(value: float | None) -> str:
    """Returns a number as reports show it.

    >>> number(0.0123456), number(None), number(float("inf"))
    ('0.0123', 'unknown', 'inf')
    """
    return "unknown" if value is None else f"{value:.3g}"
