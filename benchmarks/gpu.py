"""torch and ONNX Runtime on a CUDA GPU: the conformance suite, and what a diagnosis says of each.

Every case is a process of its own, four at a time, so that one that dies or hangs costs itself
only.  Results are written as they come; what the time did not suffice for is listed.

    python -m benchmarks.gpu --out results.json --seconds 420
    python -m benchmarks.gpu_table results.json --name second          # into docs/verified.md
    python -m benchmarks.gpu --device cpu --only transformer/torch     # the same without a GPU

Needs torch, onnx2fx and, for its cases, onnxruntime-gpu.  Published models are read from
``$TAPSECT_CACHE`` (see ``tapsect/published.py``); cases whose model is not there say so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATHS = [str(ROOT / each) for each in ("taps", "bisect", "tests")]
sys.path.extend(PATHS)

from debugtaps.store import write_json_atomic  # noqa: E402
from debugtaps.testing import conformance  # noqa: E402
from support import published, zoo  # noqa: E402
from support.build import Built  # noqa: E402

PACKAGES = ("torch", "triton", "onnx2fx", "onnxruntime", "onnxruntime-gpu", "onnx", "numpy")
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
SUITE = "suite"

# Name -> options of torch, the precision that a diagnosis should name.
TORCH: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "fp32": ({"allow_tf32": False}, "fp32"),
    "tf32": ({"allow_tf32": True}, "tf32"),
    "bf16": ({"allow_tf32": False, "dtype": "bfloat16"}, "bf16"),
    "fp16": ({"allow_tf32": False, "dtype": "float16"}, "fp16"),
    "autocast-bf16": ({"allow_tf32": False, "autocast": "bfloat16"}, "bf16"),
    "autocast-fp16": ({"allow_tf32": False, "autocast": "float16"}, "fp16"),
}
ORT: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "fp32": ({"provider_options": {"use_tf32": 0}}, "fp32"),
    "tf32": ({"provider_options": {"use_tf32": 1}}, "tf32"),
}
MODELS = ("transformer", "squeezenet", "ch_PP-OCRv4_rec_infer", "standard_v3_3")


@dataclass(frozen=True)
class Case:
    """One model, or the suite, on one engine at one precision."""

    model: str
    engine: str
    setting: str

    @property
    def name(self) -> str:
        return f"{self.model}/{self.engine}/{self.setting}"

    def options(self, device: str) -> dict[str, Any]:
        rows = ORT if self.engine == "ort" else TORCH
        options = dict(rows[self.setting][0])
        if self.engine != "ort":
            return {"device": device, **options}
        return {"providers": CUDA, **options} if device == "cuda" else {"providers": CPU}

    @property
    def stated(self) -> str:
        return (ORT if self.engine == "ort" else TORCH)[self.setting][1]


def cases() -> Iterator[Case]:
    """Yields every case, the ones that matter most first."""
    for setting in ("tf32", "fp32"):
        for engine in ("ort", "torch", "inductor"):
            yield Case("transformer", engine, setting)
    for engine in ("torch", "ort", "inductor"):
        yield Case(SUITE, engine, "fp32")
    for setting in ("bf16", "fp16"):
        for engine in ("torch", "inductor"):
            yield Case("transformer", engine, setting)
    yield from (Case("transformer", "torch", f"autocast-{each}") for each in ("bf16", "fp16"))
    for model in MODELS[1:]:
        for engine, settings in (("ort", ORT), ("torch", ("tf32", "fp32", "bf16", "fp16"))):
            yield from (Case(model, engine, setting) for setting in settings)
    yield from (Case(model, "inductor", "tf32") for model in MODELS[1:])
    yield from (Case(SUITE, "torch", each) for each in ("tf32", "bf16", "fp16"))
    yield from (Case(SUITE, "inductor", each) for each in ("tf32", "bf16", "fp16"))


def built(name: str) -> Built | None:
    if name == "transformer":
        return zoo.transformer(6, dim=256, heads=8, seq=64)
    return (
        published.architecture(name) if name in published.ARCHITECTURES else published.built(name)
    )


def run_suite(case: Case, device: str) -> dict[str, Any]:
    results = conformance(case.engine, case.options(device), timeout=300.0)
    odd = {each.name: f"{each.status}: {each.detail}"[:300] for each in results}
    odd = {name: text for name, text in odd.items() if not text.startswith("passed")}
    failed = [name for name, text in odd.items() if text.startswith("failed")]
    return {"right": not failed, "checks": len(results), "not passed": odd}


def run_bisect(case: Case, device: str) -> dict[str, Any]:
    import tapsect

    sample = built(case.model)
    if sample is None:
        return {"right": None, "skipped": "the published model is not in $TAPSECT_CACHE"}
    with tempfile.TemporaryDirectory() as folder:
        model, inputs = sample.save(Path(folder) / "given")
        found = tapsect.bisect(
            model, inputs=[inputs], engine=case.engine, engine_options=case.options(device),
            out=Path(folder) / "out", budget=20.0,
        )  # fmt: skip
    effective = (found.precision or {}).get("effective")
    named = found.cause == "precision_limit" and case.stated in str(effective).split("/")
    # Where no kernel rounds more coarsely than asked, there is nothing to name.
    return {
        "right": named or found.status == "agrees", "status": found.status, "cause": found.cause,
        "effective": effective, "classes": (found.precision or {}).get("classes"),
        "culprits": list(found.culprit_nodes), "message": found.message,
        "outputs": [[o.name, o.rel_rms, o.floor] for o in found.outputs],
        "builds": found.cost.builds, "notes": list(found.notes)[:6],
    }  # fmt: skip


def one(case: Case, device: str) -> dict[str, Any]:
    """Runs a case here and returns its row."""
    start = time.monotonic()
    try:
        row = (run_suite if case.model == SUITE else run_bisect)(case, device)
    except Exception as error:  # a row of the table, whatever it is
        row = {"right": False, "error": f"{type(error).__name__}: {error}"[:600]}
    return {"case": case.name, "seconds": round(time.monotonic() - start, 1), **row}


def apart(case: Case, device: str, deadline: float) -> dict[str, Any]:
    """Runs a case in a process of its own and returns its row."""
    left = deadline - time.monotonic()
    if left < 10:
        return {"case": case.name, "right": None, "skipped": "no time was left"}
    words = [sys.executable, "-m", "benchmarks.gpu", "--case", case.name, "--device", device]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=left, check=False
        )
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"case": case.name, "right": None, "skipped": "not done when time was up"}
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines()[-3:]
        return {"case": case.name, "right": False, "error": f"exit {done.returncode}: {said}"}
    return row


def machine() -> dict[str, Any]:
    """Returns versions and the GPU."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found["gpu"] = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
    except OSError:
        found["gpu"] = None
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--case", help="run this one here and print its row")
    given = parser.parse_args(argv)
    if given.case:
        print(json.dumps(one(Case(*given.case.split("/")), given.device), default=str))
        return 0
    deadline = time.monotonic() + given.seconds
    chosen = [case for case in cases() if given.only in case.name]
    body: dict[str, Any] = {"machine": machine(), "device": given.device, "rows": []}
    with ThreadPoolExecutor(given.at_once) as pool:
        for done in as_completed([pool.submit(apart, c, given.device, deadline) for c in chosen]):
            row = done.result()
            body["rows"].append(row)
            write_json_atomic(given.out, body)
            print(json.dumps({k: row.get(k) for k in SHOWN if k in row}, default=str), flush=True)
    wrong = [row["case"] for row in body["rows"] if row["right"] is False]
    print(f"{len(body['rows'])} cases; not right: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


SHOWN = ("case", "right", "status", "cause", "effective", "seconds", "skipped", "error")

if __name__ == "__main__":
    raise SystemExit(main())
