"""The table that thresholds stand on: correct kernels against planted faults.

    python -m benchmarks.calibrate [--quick]

Prints, for each kernel of the named list, the largest ratio that any correct engine reaches, and
for each precision the smallest that a planted fault in one operator reaches, beside the
thresholds.  Writes ``docs/calibration.md``.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
sys.path.extend(str(ROOT / each) for each in ("taps", "bisect", "tests"))

from debugtaps import Host, load_graph, promote, resolve, save  # noqa: E402
from support.build import Built  # noqa: E402
from support.calibration import KERNELS  # noqa: E402
from support.zoo import NETWORKS  # noqa: E402
from tapsect.replay.reference import Reference  # noqa: E402
from tapsect.replay.regions import Classes, Replay  # noqa: E402
from tapsect.rounding.floors import LIMITS, PRECISIONS, limit_for, u_name  # noqa: E402
from tapsect.rounding.outputs import judge_output  # noqa: E402

LEVELS = ("disable", "basic", "extended", "all")
ROUNDING = f"{ROOT / 'tests' / 'support' / 'rounding_engine.py'}:RoundingEngine"
FAULTS = (("fp32", 0.05), ("fp32", 0.01), ("fp32", 1e-4), ("fp16", 0.05), ("bf16", 0.05))
FAULTS_A_MODEL = 6
TARGET = ROOT / "docs" / "calibration.md"


@dataclass(frozen=True)
class Scores:
    """The largest ratios of one engine on one model."""

    norm: float = 0.0
    slice: float = 0.0
    element: float = 0.0
    end: float = 0.0

    def __or__(self, other: Scores) -> Scores:
        return Scores(
            max(self.norm, other.norm), max(self.slice, other.slice),
            max(self.element, other.element), max(self.end, other.end),
        )  # fmt: skip


@dataclass
class Bench:
    """Warm workers, one for each engine."""

    stack: ExitStack
    hosts: dict[str, Host] = field(default_factory=dict)

    def host(self, spec: str, **options: Any) -> Host:
        key = f"{spec} {sorted(options.items())}"
        if key not in self.hosts:
            self.hosts[key] = self.stack.enter_context(Host(resolve(spec, options)))
        return self.hosts[key]

    def engine(self, precision: str, level: str = "disable") -> Host:
        if precision in ("fp16", "bf16"):
            return self.host(ROUNDING, precision=precision)
        return self.host("ort", graph_optimization_level=level)


@dataclass
class Subject:
    """One model, its reference at a precision, and its sample."""

    built: Built
    reference: Reference
    folder: Path
    u: float

    @classmethod
    def of(cls, bench: Bench, built: Built, folder: Path, precision: str) -> Subject:
        model, _ = built.save(folder)
        stated = PRECISIONS[precision] if precision in ("fp16", "bf16") else None
        graph = load_graph(model, folder / "work")
        largest = 65504.0 if precision == "fp16" else None
        reference = Reference(
            graph, bench.host("ort-reference"), folder / "work", stated=stated, largest=largest
        )
        reference.complete(built.feeds)
        return cls(built, reference, folder, stated or 2.0**-24)

    def scores(self, host: Host, model: Path | None = None) -> tuple[Scores, dict[str, float]]:
        """Returns the largest ratios, and the norm ratio of each tensor, of an engine."""
        reference, feeds = self.reference, self.built.feeds
        graph = reference.graph
        path = model or save(promote(graph, reference.topology.tappable), reference.path("taps"))
        build = host.build(path)
        try:
            values = build.run(feeds)
        finally:
            build.close()
        known = Classes(reference.stated or 0.0, reference.stated or 0.0)
        judged, _ = Replay(reference, feeds, values).judge(known=known)
        total, each = Scores(end=self._ends(values)), {}
        for tensor, judgement in judged.items():
            r = judgement.ratios
            each[tensor] = max(r.norm, r.slice) if math.isfinite(judgement.ratio) else math.inf
            isolated = r.element if r.contrast >= 8.0 else 0.0
            total |= Scores(r.norm, r.slice, isolated, 0.0)
        return total, each

    def _ends(self, values: Mapping[str, Any]) -> float:
        graph, feeds = self.reference.graph, self.built.feeds
        measured = self.reference.ends(feeds, samples=32)
        ends = [
            judge_output(n, values.get(n), measured, self.reference.roundoff(n), limit_for(self.u))
            for n in graph.outputs
        ]
        return max(
            (e.floors for e in ends if e.floor is not None and math.isfinite(e.floors)), default=0.0
        )


def faulty(model: onnx.ModelProto, tensor: str, size: float) -> onnx.ModelProto:
    """Returns the model in which one tensor is too large by ``size``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for index, node in enumerate(copy.graph.node):
        if tensor not in node.output:
            continue
        node.output[list(node.output).index(tensor)] = f"{tensor}__right"
        factor = numpy_helper.from_array(np.asarray(1.0 + size, np.float32), f"{tensor}__factor")
        copy.graph.initializer.append(factor)
        wrong = helper.make_node(
            "Mul", [f"{tensor}__right", factor.name], [tensor], name=f"{tensor}__wrong"
        )
        copy.graph.node.insert(index + 1, wrong)
        return copy
    raise ValueError(f"nothing writes {tensor}")


def correct(bench: Bench, names: Sequence[str]) -> Iterator[tuple[str, str, Scores]]:
    """Yields (kernel, precision, largest scores over engines)."""
    for name in names:
        kernel = KERNELS[name]
        for precision in ("fp32", *(p for p in kernel.emulated if p != "fp32")):
            with tempfile.TemporaryDirectory() as folder:
                subject = Subject.of(bench, kernel.build(), Path(folder), precision)
                total = Scores()
                for level in LEVELS if precision == "fp32" else ("disable",):
                    host = bench.engine(precision, level)
                    total |= subject.scores(host)[0]
                    # Without taps fusions are at work, and the model replays as one region.
                    total |= subject.scores(host, subject.folder / "model.onnx")[0]
            yield name, kernel.precision if precision == "fp32" else precision, total


def planted(bench: Bench, names: Sequence[str]) -> Iterator[tuple[str, float, float, float]]:
    """Yields (precision, size of the fault, ratio at its node, end-to-end floors)."""
    for precision, size in FAULTS:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                subject = Subject.of(bench, NETWORKS[name](), Path(folder), precision)
                for tensor in _places(subject.reference):
                    taps = promote(subject.reference.graph, subject.reference.topology.tappable)
                    path = save(faulty(taps, tensor, size), subject.reference.path("fault"))
                    total, each = subject.scores(bench.engine(precision), path)
                    if each.get(tensor) and math.isfinite(each[tensor]):
                        yield precision, size, each[tensor], total.end


def _places(reference: Reference) -> list[str]:
    """Returns some float tensors, evenly spread, that an operator computes."""
    graph, topology = reference.graph, reference.topology
    able = [t for t in topology.tappable if t in topology.noisy and graph.elem(t) == 1]
    step = max(1, len(able) // FAULTS_A_MODEL)
    return able[step // 2 :: step][:FAULTS_A_MODEL]


# -- the document -------------------------------------------------------------------------------


def document(
    rows: Sequence[tuple[str, str, Scores]], faults: Sequence[tuple[str, float, float, float]]
) -> str:
    """Returns the table in Markdown."""
    found = {key: version(key) for key in ("numpy", "onnx", "onnxruntime")}
    used = ", ".join(f"{key} {each}" for key, each in found.items())
    lines = [
        "# Calibration", "",
        "Written by `make calibrate`; what the numbers mean is told in `rounding/floors.py`.",
        f"{date.today().isoformat()}, Python {platform.python_version()}, {used}, "
        f"{_machine()}.", "",
        "## Thresholds beside what was measured", "",
        *_thresholds(rows, faults), "",
        "*Correct* is the largest over all kernels below; *faults* the smallest and the median "
        "over value faults in single operators of the test networks, at their own node and at the "
        "outputs. A fault that later operators wipe out reaches no output, whatever its ratio.",
        "", *NOTES, "",
        "## Correct kernels, one by one", "",
        "Engines: ONNX Runtime at every optimisation level (fp32 and the model's own types), and "
        "the same with every tensor rounded (fp16, bf16).", "",
        "| kernel | precision | norm | slice | element | end to end |",
        "|---|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    lines += [
        f"| {name} | {precision} | {s.norm:.2g} | {s.slice:.2g} | {s.element:.2g} | {s.end:.2g} |"
        for name, precision, s in rows
    ]
    return "\n".join(lines) + "\n"


NOTES = (
    "What follows for the thresholds:",
    "",
    "- fp32: T = 64 stands ten times above the largest correct ratio here, and twice above what "
    "Winograd convolutions reached elsewhere (29). Faults of 1e-4 lie on both sides of it, those "
    "of 1 % far above.",
    "- fp16: T = 12 stands four times above the largest correct ratio; 76 of 77 faults of 5 % "
    "lie above it, the weakest at 9.9.",
    "- bf16: a fault of 5 % is 13 u, and reaches 1.7 to 7.7 floors. A threshold of 6, where this "
    "began, shows 27 of 77; 3 shows 76, and correct kernels stay below 2: T = 3.",
    "- F = 2 (fp32: 8) leaves correct kernels a factor of 1.6 and more.",
)


def _machine() -> str:
    """Returns the class of the machine: cores and maker, nothing that names it."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        told = ""
    names = [line.split(":")[1].strip() for line in told.splitlines() if "model name" in line]
    kind = " ".join(names[0].split()[:2]) if names else platform.machine()
    return f"{os.cpu_count()} cores {kind}"


def _thresholds(
    rows: Sequence[tuple[str, str, Scores]], faults: Sequence[tuple[str, float, float, float]]
) -> list[str]:
    worst: dict[str, Scores] = defaultdict(Scores)
    for _, precision, scores in rows:
        worst[precision] = worst[precision] | scores
    lines = [
        "| precision | what | threshold | correct | fault | at its node | at the outputs |",
        "|---|---|---:|---:|---|---:|---:|",
    ]
    for precision in ("fp32", "fp16", "bf16"):
        limit, s = limit_for(PRECISIONS[precision]), worst[precision]
        norm = max(s.norm, s.slice)
        lines += [
            f"| {precision} | norm, slice (T) | {limit.norm:g} | {norm:.3g} | | | |",
            f"| | isolated element | {limit.element:g} | {s.element:.3g} | | | |",
            f"| | end to end (F) | {limit.end:g} | {s.end:.3g} | | | |",
        ]
        for size in dict.fromkeys(f[1] for f in faults if f[0] == precision):
            node = [f[2] for f in faults if f[:2] == (precision, size)]
            end = [f[3] for f in faults if f[:2] == (precision, size)]
            lines.append(
                f"| | | | | {size:g} | {min(node):.3g} … {np.median(node):.3g} "
                f"| {min(end):.3g} … {np.median(end):.3g} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few kernels, nothing written")
    quick = parser.parse_args().quick
    kernels = list(KERNELS)[:6] if quick else list(KERNELS)
    networks = ["residual"] if quick else list(NETWORKS)
    rows, faults = [], []
    with ExitStack() as stack:
        bench = Bench(stack)
        for name, precision, s in correct(bench, kernels):
            rows.append((name, precision, s))
            print(
                f"{name:40s} {precision:5s} norm {s.norm:8.2g} slice {s.slice:8.2g} "
                f"element {s.element:8.2g} end {s.end:8.2g}", flush=True,
            )  # fmt: skip
        faults = list(planted(bench, networks))
    text = document(rows, faults)
    print("\n".join(_thresholds(rows, faults)))
    print("thresholds:", *(f"u <= {u_name(u)}: {limit}" for u, limit in LIMITS), sep="\n  ")
    if not quick:
        TARGET.write_text(text, encoding="utf-8")
        print(f"wrote {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
