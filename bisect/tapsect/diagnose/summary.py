"""From what a diagnosis decided to its finding: sentences, records, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tapsect
from debugtaps import write_json_atomic
from tapsect.case import Case, Limit, write_case
from tapsect.diagnose.blame import Blame
from tapsect.diagnose.effective import in_words, precision
from tapsect.diagnose.failure import said_by, stable_text
from tapsect.diagnose.sentences import Facts, sentence
from tapsect.diagnose.signature import signature_of
from tapsect.diagnose.subject import Subject
from tapsect.diagnose.told import Told
from tapsect.diagnose.tracing import Tracing
from tapsect.diagnose.unsteady import looks_for, said
from tapsect.environment import environment
from tapsect.finding import Cost, Coverage, Divergence, Finding, Minimal, OutputReport
from tapsect.folder import CASE, RESULT
from tapsect.localize.taps import Suspect
from tapsect.observed import Repeats
from tapsect.replay.regions import Judgement

__all__ = ["Told", "compose"]


def compose(subject: Subject, told: Told) -> Finding:
    """Returns the finding; writes ``case/``, ``profile.json`` and ``result.json``."""
    writer = _Composer(subject, told)
    finding = writer.finding()
    profile = writer.tracing.profile(finding.first_divergence)
    if profile is not None:
        profile.write(subject.folder)
    write_json_atomic(subject.folder / RESULT, finding.to_json())
    return finding


class _Composer:
    def __init__(self, subject: Subject, told: Told) -> None:
        self.subject, self.told = subject, told
        self.graph = subject.graph
        self.tracing = Tracing(subject, told)

    def finding(self) -> Finding:
        subject, told = self.subject, self.told
        first, also = self._divergences()
        machine = environment()
        message = self._sentence(first)
        minimal = self._minimal(message, machine)
        reduce_builds = told.blame.reduce_builds if told.blame else 0
        evidence = told.located.evidence if told.located else None
        return Finding(
            message=message,
            status=told.status,
            tool_version=tapsect.__version__,
            command=tuple(subject.options.command),
            failure=told.failure if told.status != "agrees" else None,
            cause=told.cause,
            **self._parties(),
            precision=precision(subject, told),
            outputs=tuple(self._outputs()),
            first_divergence=first,
            culprit_nodes=self._culprits(first),
            also=also,
            harmless=tuple(self._divergence(s) for s in (evidence.harmless if evidence else ())),
            contributors=tuple(self._divergence(s) for s in told.contributors),
            signature=signature_of(subject, told, first),
            minimal=minimal,
            coverage=self._coverage(),
            fixes=told.fixes,
            unseen=told.located.unseen if told.located else (),
            cost=Cost(
                subject.prober.builds - reduce_builds - told.fix_builds, subject.prober.runs,
                round(told.seconds, 3), reduce_builds, told.fix_builds,
            ),
            trail=told.trail,
            repeats=self._repeats(),
            samples=told.inputs,
            notes=(*subject.notes, *(told.blame.notes if told.blame else ())),
            said=said_by(told.engine_failure),
            environment=machine,
        )  # fmt: skip

    def _repeats(self) -> Repeats | None:
        """Returns how often the failure comes, and how probable its place is."""
        seen, blame = self.subject.unsteady, self.told.blame
        if seen is None or blame is None or not blame.nodes:
            return seen
        return replace(seen, confidence=blame.confidence)

    def _parties(self) -> dict[str, Any]:
        """Returns who met: model, engine and reference."""
        subject, options = self.subject, self.subject.options
        return {
            "model": {
                "path": str(options.model), "sha256": self.graph.sha256,
                "nodes": len(self.graph.nodes),
            },
            "engine": {
                "spec": options.engine, "options": dict(options.engine_options),
                "describe": dict(_described(subject.engine, self._shown())),
            },
            "reference": {
                "spec": str(options.reference or subject.specs[1].spec),
                "describe": dict(_described(subject.truth)),
            },
        }  # fmt: skip

    def _shown(self) -> list[Mapping[str, Any]]:
        """Returns the data of the smallest case, else those of the model."""
        final = (self.told.blame.plain or self.told.blame.final) if self.told.blame else None
        return [final.feeds] if final is not None else self.subject.samples

    # -- places --------------------------------------------------------------------------------

    def _divergence(self, suspect: Suspect, **more: Any) -> Divergence:
        judgement = suspect.judgement
        last = self.graph.nodes[self.graph.producer[suspect.tensor]]
        facts: dict[str, Any] = {
            "introduced": judgement.introduced, "rounding_ratio": _number(judgement.ratio),
            "evidence": suspect.evidence, "note": judgement.why, "tap": suspect.tensor,
            "nodes": tuple(self.graph.nodes[i].name for i in suspect.nodes),
        }  # fmt: skip
        return self._named(Divergence(suspect.tensor, last.name, last.op, **{**facts, **more}))

    def _named(self, found: Divergence) -> Divergence:
        """Returns a place with what only the Python file knows of it."""
        torch = self.subject.torch
        return found if torch is None else torch.named(found, self.graph)

    def _divergences(self) -> tuple[Divergence | None, tuple[Divergence, ...]]:
        told, blame = self.told, self.told.blame
        if told.export is not None and told.cause == "export_mismatch":
            return self._judged(told.export.judgement), ()
        if told.kernel is not None:
            return self._judged(told.kernel), ()
        if told.amplifier is not None and told.status != "agrees":
            return None, ()
        if blame is None or (blame.cause is None and not blame.suspects):
            return None, ()
        if blame.suspects:
            propagated = self.tracing.inherited.error.get(blame.suspects[0].tensor)
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
        return self._named(Divergence(
            tensor, last.name, last.op, rounding_ratio=_number(ratio), evidence=evidence,
            tap=blame.tap, nodes=tuple(self.graph.nodes[i].name for i in blame.nodes),
            note=blame.how,
        ))  # fmt: skip

    def _judged(self, judgement: Judgement | None) -> Divergence | None:
        if judgement is None:
            return None
        node = self.graph.nodes[self.graph.producer[judgement.tensor]]
        region = self.subject.reference.topology.blamed(judgement.region) or (node.index,)
        return self._named(Divergence(
            judgement.tensor, node.name, node.op, judgement.introduced, None,
            _number(judgement.ratio), "tapped", note=judgement.why,
            nodes=tuple(self.graph.nodes[i].name for i in region),
        ))  # fmt: skip

    def _kernel(self, suspect: Suspect) -> str | None:
        """Returns the kernel of a place, with the tactic that the engine tells of it."""
        kernels = self.told.located.kernels if self.told.located else None
        name = kernels.name(suspect.nodes) if kernels else None
        nodes = name.split("+") if name else [self.graph.nodes[i].name for i in suspect.nodes]
        chosen = {frozenset(key.split("+")): tactic for key, tactic in self.told.tactics.items()}
        tactic = chosen.get(frozenset(nodes))
        return f"{'+'.join(nodes)} ({tactic})" if tactic else name

    def _culprits(self, first: Divergence | None) -> tuple[str, ...]:
        told = self.told
        if told.cause == "export_mismatch" or told.kernel is not None:
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

    def _sentence(self, first: Divergence | None) -> str:
        subject, options = self.subject, self.subject.options
        facts = Facts(
            engine=options.engine, samples=len(subject.samples), limit=subject.end_limit,
            first=first, culprits=self._culprits(first),
            computed=in_words(subject, self.told),
            ruled=options.tolerance is not None or subject.judge is not None,
            torch=subject.torch is not None and bool(subject.golden),
            often=said(subject.unsteady) if subject.unsteady else "",
        )  # fmt: skip
        return f"{self.told.first} {sentence(self.told, facts)}".strip()

    def _coverage(self) -> Coverage:
        if self.told.located is not None:
            return self.told.located.coverage
        rest = len(self.subject.reference.topology.tappable) + len(self.graph.outputs)
        return Coverage(not_judged=rest)

    def _minimal(self, message: str, machine: Mapping[str, Any]) -> Minimal | None:
        blame = self.told.blame
        if blame is None or blame.final is None or blame.final.model is None:
            return None
        final = blame.plain or blame.final
        blame = replace(blame, final=final)
        assert final.model is not None
        source = blame.confirmed.source if blame.confirmed else "reference"
        kind = next((e.kind for e in final.ends if e.kind), None) or self.told.failure or "accuracy"
        nodes = blame.reduced.candidate.nodes if blame.reduced else blame.nodes
        case = Case(
            model=final.model, inputs=final.feeds, expected=final.expected,
            engine=self.subject.specs[0], kind=kind, limits=_limits(blame),
            error=stable_text(final.failure),
            message=message, facts={"values": f"as the {source} has them"},
            environment=machine, timeout=max(60.0, 2 * self.subject.prober.timeout),
            tries=looks_for(self.subject.unsteady) if self.told.flaky else 1,
        )  # fmt: skip
        write_case(self.subject.folder / CASE, case)
        reduced = blame.reduced
        return Minimal(
            "case/model.onnx", "case/inputs.npz", "case/expected.npz",
            tuple(self.graph.nodes[i].name for i in sorted(nodes)), source,
            reduced.reproduced if reduced else 1, reduced.of if reduced else 1,
            bool(reduced and reduced.one_minimal),
        )  # fmt: skip


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


def _described(host: Any, samples: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
    try:
        described: Mapping[str, Any] = host.describe(samples)
    except Exception:  # an engine that cannot even say who it is must not cost the finding
        return {}
    return described
