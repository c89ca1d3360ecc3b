"""How an engine's makers see the failure with their own tools, in the folder of the case."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from debugtaps import InputError, read_npz
from tapsect.finding import Finding
from tapsect.folder import CASE

__all__ = ["CaseFacts", "Snippet", "case_facts", "snippets"]

_LEVELS = {
    "disable": "ORT_DISABLE_ALL", "none": "ORT_DISABLE_ALL", "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT", "0": "ORT_DISABLE_ALL", "1": "ORT_ENABLE_BASIC",
    "2": "ORT_ENABLE_EXTENDED", "3": "ORT_ENABLE_LAYOUT",
}  # fmt: skip
_DATA = """cat > data.py <<'EOF'
import numpy as np
def load_data():
    yield dict(np.load("inputs.npz"))
EOF"""


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What the commands need to know of a case.

    Attributes:
        inputs: Names, in the order of the file.
        plain: Whether numpy alone reads the tensors.
        rms: Largest root mean square among the expected values; None where there are none.
    """

    inputs: tuple[str, ...]
    plain: bool
    rms: float | None = None


@dataclass(frozen=True, slots=True)
class Snippet:
    """One way to see the failure: with what, in which language, and the text itself."""

    title: str
    language: str
    text: str


def case_facts(folder: Path) -> CaseFacts | None:
    """Returns what the case in a result's folder tells; ``None`` where there is none to read."""
    try:
        inputs = read_npz(folder / CASE / "inputs.npz")
        expected = read_npz(folder / CASE / "expected.npz")
    except InputError:
        return None
    sizes = []
    for value in expected.values():
        if value.dtype.kind == "f" and value.size:
            finite = value[np.isfinite(value)].astype(np.float64)
            sizes.append(float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0)
    arrays = [*inputs.values(), *expected.values()]
    plain = all(v.dtype.isbuiltin == 1 and not v.dtype.hasobject for v in arrays)
    return CaseFacts(tuple(inputs), plain, max(sizes, default=None))


def snippets(finding: Finding, case: CaseFacts | None) -> Sequence[Snippet]:
    """Returns the commands that apply to the finding's engine; none where only ours do."""
    make = _BY_ENGINE.get(str(finding.engine.get("spec")))
    if make is None or case is None or not case.plain or finding.minimal is None:
        return ()
    options = finding.engine.get("options")
    return make(finding, case, options if isinstance(options, Mapping) else {})


def _atol(finding: Finding, case: CaseFacts) -> str:
    """Returns an absolute tolerance that the failure exceeds and rounding does not."""
    place = finding.first_divergence
    if place is None or not place.introduced or not case.rms:
        return "1e-3"
    return f"{place.introduced * case.rms / 4:.1g}"


def _onnxruntime(
    finding: Finding, case: CaseFacts, options: Mapping[str, Any]
) -> Sequence[Snippet]:
    level = _LEVELS.get(str(options.get("graph_optimization_level", "all")).lower())
    level = level or "ORT_ENABLE_ALL"
    providers = _listed(options.get("providers")) or ["CPUExecutionProvider"]
    disabled = _listed(options.get("disabled_optimizers"))
    more = f", disabled_optimizers={disabled!r}" if disabled else ""
    python = f"""import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.{level}
session = ort.InferenceSession("model.onnx", options, providers={providers!r}{more})
names = [output.name for output in session.get_outputs()]
answers = session.run(names, dict(np.load("inputs.npz")))
expected = np.load("expected.npz")
for name, answer in zip(names, answers):
    if name in expected:
        print(name, "differs by", np.abs(answer.astype(float) - expected[name]).max())"""
    found = [Snippet("onnxruntime alone", "python", python)]
    settled = {"graph_optimization_level", "providers"}
    if set(options) <= settled and level != "ORT_DISABLE_ALL":
        found.append(Snippet("Polygraphy", "sh", _polygraphy_ort(finding, case, level, providers)))
    return found


def _polygraphy_ort(finding: Finding, case: CaseFacts, level: str, providers: Sequence[str]) -> str:
    run = "polygraphy run model.onnx --onnxrt --data-loader-script data.py"
    where = f" --providers {shlex.join(providers)}" if providers != ["CPUExecutionProvider"] else ""
    return "\n".join(
        (
            _DATA,
            f"{run} --graph-optimization-level ORT_DISABLE_ALL --save-outputs good.json",
            f"{run}{where} --graph-optimization-level {level} --load-outputs good.json"
            f" --atol {_atol(finding, case)} --rtol 0",
        )
    )


def _openvino(finding: Finding, case: CaseFacts, options: Mapping[str, Any]) -> Sequence[Snippet]:
    device = str(options.get("device", "CPU"))
    settings = {str(k): str(v) for k, v in options.items() if k != "device"}
    python = f"""import numpy as np
import openvino as ov

model = ov.Core().compile_model("model.onnx", {device!r}, {settings!r})
answers = model(dict(np.load("inputs.npz")))
expected = np.load("expected.npz")
for port in model.outputs:
    for name in port.get_names() & set(expected):
        print(name, "differs by", np.abs(answers[port].astype(float) - expected[name]).max())"""
    return [Snippet("openvino alone", "python", python)]


def _tensorrt(finding: Finding, case: CaseFacts, options: Mapping[str, Any]) -> Sequence[Snippet]:
    typed = options.get("strongly_typed") is not False
    raw = f"""cat > raw.py <<'EOF'
import numpy as np
for number, value in enumerate(np.load("inputs.npz").values()):
    np.ascontiguousarray(value).tofile(f"in{{number}}.bin")
EOF
python raw.py
{_trtexec("trtexec", case, options, typed=typed)}"""
    flags = " --strongly-typed" if typed else ""
    tf32 = "" if options.get("tf32") is False else " --tf32"
    polygraphy = "\n".join(
        (
            _DATA,
            f"polygraphy run model.onnx --onnxrt --trt{flags}{tf32} --data-loader-script data.py"
            f" --atol {_atol(finding, case)} --rtol 0 -vv",
        )
    )
    return [Snippet("Polygraphy", "sh", polygraphy), Snippet("trtexec", "sh", raw)]


def _tensorrt_rtx(
    finding: Finding, case: CaseFacts, options: Mapping[str, Any]
) -> Sequence[Snippet]:
    return [
        Snippet(
            snippet.title.replace("trtexec", "tensorrt_rtx"), snippet.language,
            snippet.text.replace("trtexec --onnx", "tensorrt_rtx --onnx"),
        )
        for snippet in _tensorrt(finding, case, options) if snippet.title == "trtexec"
    ]  # fmt: skip


def _trtexec(tool: str, case: CaseFacts, options: Mapping[str, Any], *, typed: bool) -> str:
    words = [tool, "--onnx=model.onnx"]
    words += ["--stronglyTyped"] if typed else []
    words += ["--noTF32"] if options.get("tf32") is False else []
    flags = options.get("flags")
    words += [f"--{flag.lower()}" for flag in _listed(flags) if flag.lower() in ("fp16", "bf16")]
    fed = ",".join(f"{name}:in{number}.bin" for number, name in enumerate(case.inputs))
    words += [f"--loadInputs={fed}"] if fed else []
    words += ["--verbose", "--dumpOutput", "--exportOutput=out.json"]
    return shlex.join(words)


def _listed(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else (value or ())
    return [str(part).strip() for part in parts if str(part).strip()]


_Make = Callable[[Finding, CaseFacts, Mapping[str, Any]], Sequence[Snippet]]
_BY_ENGINE: Mapping[str, _Make] = {
    "ort": _onnxruntime,
    "openvino": _openvino,
    "tensorrt": _tensorrt,
    "tensorrt-rtx": _tensorrt_rtx,
}
