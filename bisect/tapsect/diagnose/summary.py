"""From what a diagnosis decided to its finding: sentences, records, files."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tapsect
from debugtaps import EngineFailure, write_json_atomic
from tapsect.case import Case, Limit, write_case
from tapsect.diagnose.blame import Blame
from tapsect.diagnose.ends import Export
from tapsect.diagnose.subject import Subject
from tapsect.finding import (
    Cost,
    Coverage,
    Divergence,
    Finding,
    Minimal,
    OutputReport,
    Status,
    Step,
)
from tapsect.localize.explain import Amplifier
from tapsect.localize.taps import Located, Suspect
from tapsect.numbers.floors import PRECISIONS, u_name
from tapsect.numbers.outputs import End

__all__ = ["Told", "compose"]


@dataclass
class Told:
    """What a diagnosis decided so far."""

    status: Status = "inconclusive"
    cause: str | None = None
    failure: str | None = None
    engine_failure: EngineFailure | None = None
    ends: list[list[End]] = field(default_factory=list)
    failing_samples: tuple[int, ...] = ()
    sample: int = 0
    flaky: str | None = None
    located: Located | None = None
    blame: Blame | None = None
    contributors: tuple[Suspect, ...] = ()
    amplifier: Amplifier | None = None
    amplified: tuple[End, float] | None = None
    export: Export | None = None
    trail: tuple[Step, ...] = ()
    seconds: float = 0.0


def compose(subject: Subject, told: Told) -> Finding:
    """Returns the finding; writes ``case/`` and ``result.json``."""
    writer = _Composer(subject, told)
    finding = writer.finding()
    write_json_atomic(subject.folder / "result.json", finding.to_json())
    return finding


class _Composer:
    def __init__(self, subject: Subject, told: Told) -> None:
        self.subject, self.told = subject, told
        self.graph = subject.graph

    def finding(self) -> Finding:
        subject, told = self.subject, self.told
        first, also = self._divergences()
        environment = _environment()
        message = _message(self, first)
        minimal = self._minimal(message, environment)
        reduce_builds = told.blame.reduce_builds if told.blame else 0
        evidence = told.located.evidence if told.located else None
        return Finding(
            message=message,
            status=told.status,
            tool_version=tapsect.__version__,
            command=tuple(subject.options.command),
            failure=told.failure if told.status != "agrees" else None,
            cause=told.cause,
            model={
                "path": str(subject.options.model), "sha256": self.graph.sha256,
                "nodes": len(self.graph.nodes),
            },
            engine={
                "spec": subject.options.engine, "options": dict(subject.options.engine_options),
                "describe": dict(_described(subject.engine)),
            },
            reference={
                "spec": str(subject.options.reference or subject.specs[1].spec),
                "describe": dict(_described(subject.truth)),
            },
            precision=self._precision(),
            outputs=tuple(self._outputs()),
            first_divergence=first,
            culprit_nodes=self._culprits(first),
            also=also,
            harmless=tuple(self._divergence(s) for s in (evidence.harmless if evidence else ())),
            contributors=tuple(self._divergence(s) for s in told.contributors),
            signature=self._signature(first),
            minimal=minimal,
            coverage=self._coverage(),
            cost=Cost(
                subject.prober.builds - reduce_builds, subject.prober.runs,
                round(told.seconds, 3), reduce_builds,
            ),
            trail=told.trail,
            notes=(*subject.notes, *(told.blame.notes if told.blame else ())),
            environment=environment,
        )  # fmt: skip

    # -- places --------------------------------------------------------------------------------

    def _divergence(self, suspect: Suspect, **more: Any) -> Divergence:
        judgement = suspect.judgement
        last = self.graph.nodes[self.graph.producer[suspect.tensor]]
        facts: dict[str, Any] = {
            "introduced": judgement.introduced, "rounding_ratio": _number(judgement.ratio),
            "evidence": suspect.evidence, "note": judgement.why, "tap": suspect.tensor,
            "nodes": tuple(self.graph.nodes[i].name for i in suspect.nodes),
        }  # fmt: skip
        return Divergence(suspect.tensor, last.name, last.op, **{**facts, **more})

    def _divergences(self) -> tuple[Divergence | None, tuple[Divergence, ...]]:
        told, blame = self.told, self.told.blame
        if told.export is not None and told.cause == "export_mismatch":
            return self._exported(told.export), ()
        if told.amplifier is not None and told.status != "agrees":
            return None, ()
        if blame is None or (blame.cause is None and not blame.suspects):
            return None, ()
        if blame.suspects:
            propagated = self._propagated(blame.suspects[0])
            kernel = self._kernel(blame.suspects[0])
            first = self._divergence(
                blame.suspects[0], evidence=blame.evidence, propagated=propagated,
                tap=blame.tap or blame.suspects[0].tensor, kernel=kernel,
            )  # fmt: skip
            return first, tuple(self._divergence(s) for s in blame.suspects[1:])
        return self._by_part(blame), ()

    def _by_part(self, blame: Blame) -> Divergence | None:
        """The place of a failure without taps: the last operator of the smallest part."""
        if not blame.nodes:
            return None
        last = self.graph.nodes[max(blame.nodes)]
        shown = blame.reduced.candidate.outputs if blame.reduced else last.writes
        tensor = next((t for t in shown if t in last.writes), (last.writes or ("",))[0])
        ratio = blame.final.score if blame.final is not None and blame.final.ends else None
        evidence: Any = (
            "predicate"
            if blame.evidence == "predicate"
            else ("healed" if blame.tap else "isolated")
        )
        return Divergence(
            tensor, last.name, last.op, rounding_ratio=_number(ratio), evidence=evidence,
            tap=blame.tap, nodes=tuple(self.graph.nodes[i].name for i in blame.nodes),
            note=blame.how,
        )  # fmt: skip

    def _exported(self, export: Export) -> Divergence | None:
        judgement = export.judgement
        if judgement is None:
            return None
        node = self.graph.nodes[self.graph.producer[judgement.tensor]]
        return Divergence(
            judgement.tensor, node.name, node.op, judgement.introduced, None,
            _number(judgement.ratio), "tapped", nodes=(node.name,), note=judgement.why,
        )  # fmt: skip

    def _propagated(self, suspect: Suspect) -> float | None:
        """Returns what of the tensor's error came from before, over the replayed tensor."""
        from tapsect.replay.propagation import propagated

        located = self.told.located
        if located is None or located.evidence is None:
            return None
        feeds = self.subject.samples[self.told.sample]
        return propagated(self.subject.reference, feeds, located.evidence.values, suspect.tensor)

    def _kernel(self, suspect: Suspect) -> str | None:
        evidence = self.told.located.evidence if self.told.located else None
        names = {self.graph.nodes[i].name for i in suspect.nodes}
        for group in evidence.fusions if evidence else ():
            if names & group:
                return "+".join(sorted(group))
        return None

    def _culprits(self, first: Divergence | None) -> tuple[str, ...]:
        told = self.told
        if told.cause == "export_mismatch":
            return first.nodes if first else ()
        if told.blame is None or told.cause is None:
            return ()
        return tuple(self.graph.nodes[i].name for i in told.blame.nodes)

    # -- the rest ------------------------------------------------------------------------------

    def _outputs(self) -> list[OutputReport]:
        return [
            OutputReport(
                e.name, number, e.failing, e.max_abs,
                e.error / e.scale if e.error is not None and e.scale else e.error,
                e.cosine, e.floor / e.scale if e.floor is not None and e.scale else e.floor,
                e.nonfinite_engine, e.nonfinite_reference, e.reason,
            )
            for number, ends in enumerate(self.told.ends) for e in ends
        ]  # fmt: skip

    def _precision(self) -> dict[str, Any]:
        subject, located = self.subject, self.told.located
        named = {u: n for n, u in reversed(PRECISIONS.items())}
        stated = subject.options.precision or named.get(subject.roundoff, "model")
        effective: dict[str, str] | None = None
        if located is not None and located.evidence is not None:
            classes, least = located.evidence.classes, subject.roundoff
            effective = {
                "contractions": u_name(max(classes.contraction, least)),
                "rest": u_name(max(classes.rest, least)),
            }
        return {"stated": stated, "effective": effective}

    def _coverage(self) -> Coverage:
        if self.told.located is not None:
            return self.told.located.coverage
        rest = len(self.subject.reference.topology.tappable) + len(self.graph.outputs)
        return Coverage(not_judged=rest)

    def _signature(self, first: Divergence | None) -> dict[str, Any]:
        blame = self.told.blame
        if blame is None or first is None:
            return {}
        signature = blame.reduced.signature if blame.reduced else None
        nodes = blame.reduced.candidate.nodes if blame.reduced else blame.nodes
        return {
            "kind": self.told.failure,
            "ops": sorted(self.graph.nodes[i].op for i in nodes),
            "detail": signature.detail if signature else "",
            "engine": self.subject.options.engine,
        }

    def _minimal(self, message: str, environment: Mapping[str, Any]) -> Minimal | None:
        blame = self.told.blame
        if blame is None or blame.final is None or blame.final.model is None:
            return None
        final, source = blame.final, blame.confirmed.source if blame.confirmed else "reference"
        kind = next((e.kind for e in final.ends if e.kind), None) or self.told.failure or "accuracy"
        nodes = blame.reduced.candidate.nodes if blame.reduced else blame.nodes
        case = Case(
            model=final.model, inputs=final.feeds, expected=final.expected,
            engine=self.subject.specs[0], kind=kind, limits=_limits(blame),
            error=_stable_text(final.failure),
            message=message, facts={"values": f"as the {source} has them"},
            environment=environment, timeout=max(60.0, 2 * self.subject.prober.timeout),
            tries=6 if self.told.flaky else 1,
        )  # fmt: skip
        write_case(self.subject.folder / "case", case)
        reduced = blame.reduced
        return Minimal(
            "case/model.onnx", "case/inputs.npz", "case/expected.npz",
            tuple(self.graph.nodes[i].name for i in sorted(nodes)), source,
            reduced.reproduced if reduced else 1, reduced.of if reduced else 1,
            bool(reduced and reduced.one_minimal),
        )  # fmt: skip


def _stable_text(failure: EngineFailure | None) -> str:
    """Returns the part of a message that names no file or number, for the check."""
    if failure is None or failure.kind in ("crash", "timeout"):
        return ""
    return ""


def _limits(blame: Blame) -> dict[str, Limit]:
    final = blame.final
    assert final is not None
    limits = {}
    for end in final.ends:
        if end.error is None or end.floor is None:
            continue
        bar = max(blame.bar, 2.0) * end.floor
        if end.error > bar:
            limits[end.name] = Limit(rms=max(bar, end.error / 4))
        elif end.max_abs:
            limits[end.name] = Limit(max_abs=end.max_abs / 4)
    return limits


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _described(host: Any) -> Mapping[str, Any]:
    try:
        described: Mapping[str, Any] = host.describe()
    except Exception:  # an engine that cannot even say who it is must not cost the finding
        return {}
    return described


def _environment() -> dict[str, Any]:
    packages = {}
    for name in ("numpy", "onnx", "onnxruntime", "networkx", "ml_dtypes"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": packages,
    }


# -- the sentence ------------------------------------------------------------------------------


def _message(composer: _Composer, first: Divergence | None) -> str:
    told, options = composer.told, composer.subject.options
    engine = options.engine
    if told.status == "agrees":
        return _agrees_text(told, engine)
    if told.cause == "export_mismatch":
        where = f" from node {first.node!r} ({first.op_type}) on" if first else ""
        return f"The model itself differs from its original{where}; the engine is not to blame."
    if told.cause == "precision_limit" and not (told.blame and told.blame.suspects):
        effective = composer._precision()["effective"] or {}
        kinds = ", ".join(f"{k} in {v}" for k, v in effective.items())
        return f"{engine} computes {kinds}; the outputs lie within the rounding of that."
    if told.cause == "ill_conditioned" and told.amplified:
        end, factor = told.amplified
        return f"The model is ill-conditioned: rounding reaches output {end.name!r} amplified {factor:.0f} times."
    if told.cause == "input_sensitive":
        count = len(told.failing_samples)
        return f"{count} of {len(composer.subject.samples)} samples fail, and no single operator explains it."
    if told.cause in ("flaky_build", "flaky_run") and first is None:
        what = "builds of one model" if told.cause == "flaky_build" else "runs of one build"
        return f"{what.capitalize()} disagree: some fail, some do not."
    if told.cause == "resource_limit":
        return f"{engine} ran out of memory; {told.blame.how if told.blame else ''}."
    return _located_text(composer, first)


def _agrees_text(told: Told, engine: str) -> str:
    if told.cause == "ill_conditioned" and told.amplified:
        end, factor = told.amplified
        share = end.error / end.scale if end.error and end.scale else 0.0
        where = (
            f", most of it by the rounding of {told.amplifier.tensor!r}" if told.amplifier else ""
        )
        return (
            f"{engine} agrees: output {end.name!r} differs by {share:.1%}, no more than rounding "
            f"moves this ill-conditioned model (amplified {factor:.0f} times{where})."
        )
    worst = max((e.floors for ends in told.ends for e in ends), default=0.0)
    return f"{engine} agrees with the reference: no output is further off than {worst:.1f} end-to-end floors."


def _located_text(composer: _Composer, first: Divergence | None) -> str:
    told, engine = composer.told, composer.subject.options.engine
    verb = {
        "accuracy": "computes wrong values", "nonfinite": "makes or loses non-finite values",
        "wrong_shape": "answers with a wrong shape", "wrong_dtype": "answers with a wrong type",
        "build_error": "does not build", "run_error": "raises an error when run",
        "crash": "crashes", "timeout": "hangs", "missing_output": "leaves out an output",
    }.get(told.failure or "", "fails")  # fmt: skip
    if first is None or not told.blame or told.cause is None:
        how = told.blame.how if told.blame and told.blame.how else "no operator could be blamed"
        return f"{engine} {verb}, but the place was not found: {how}."
    nodes = first.nodes or (first.node,)
    names = composer._culprits(first) or nodes
    what = (
        f"node {first.node!r} ({first.op_type})"
        if len(names) < 2
        else (f"{len(names)} nodes that end in {first.node!r} ({first.op_type})")
    )
    text = f"{engine} {verb} at {what}"
    if told.cause == "reference_suspect":
        return (
            f"{text}, but an independent evaluator agrees with the engine: suspect the reference."
        )
    if told.cause == "unsupported":
        return f"{engine} does not support {what}."
    if told.cause == "precision_limit":
        return f"{text}: its type cannot hold the value that the reference computes."
    if told.cause in ("flaky_build", "flaky_run"):
        return f"{text}, in some {'builds' if told.cause == 'flaky_build' else 'runs'} only."
    ratio = first.rounding_ratio
    if ratio is not None and np_finite(ratio):
        text += f": an error {ratio:.3g} times what rounding explains"
    return text + "."


def np_finite(value: float) -> bool:
    """Returns whether a number is finite."""
    return value == value and abs(value) != float("inf")
