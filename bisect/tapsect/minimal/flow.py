"""The order of a reduction.

    ground ─▶ start, twice ─▶ parts of the graph ─▶ the small model ─▶ parts again ─▶ end, fresh
                  │                    │                                                  │
                  not failing: 3       flaky: its rate, a noisy search, a hint            files

Nothing is written before the start was seen to fail.  Ctrl-C keeps the best so far; the journal
lets the same command go on from there.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from debugtaps import OutputError, UsageError
from tapsect.candidate import Candidate
from tapsect.finding import Finding
from tapsect.folder import JOURNAL, PROBES, check_file, claimed
from tapsect.minimal.again import parts_again
from tapsect.minimal.builtin import Builtin
from tapsect.minimal.checks import CommandCheck
from tapsect.minimal.flaky import Slice
from tapsect.minimal.ground import Ground, open_ground
from tapsect.minimal.judges import ByTrial, Judge
from tapsect.minimal.models import fresh_runs, kept_sample, made_whole, simplified
from tapsect.minimal.neighbour import nearest_good
from tapsect.minimal.parts import Reached, reduce_parts
from tapsect.minimal.person import PersonCheck
from tapsect.minimal.plan import Chosen, Plan, choose
from tapsect.minimal.tally import Tally
from tapsect.minimal.words import end_sentence, other_notes, refused_sentence
from tapsect.minimal.written import End, model_of, write_end, write_model
from tapsect.progress import Progress, Silent
from tapsect.reduction import Confirm, DoesNotFail, Reduced
from tapsect.simplify import Specimen
from tapsect.verdict import Verdict

__all__ = ["Minimized", "minimize"]

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Minimized:
    """How a reduction ended: exit status, one sentence, and the finding when one was written."""

    exit_code: int
    message: str
    finding: Finding | None = None
    folder: Path | None = None


def minimize(plan: Plan, *, progress: Progress | None = None) -> Minimized:
    """Reduces a failing model to the smallest one that fails the same way.

    Args:
        plan: What is asked for.
        progress: Hears of each step.

    Returns:
        Exit status 0 and the finding; 3 when the start does not fail or is unstable (nothing is
        written); 130 when it was interrupted (the best so far is written).

    Raises:
        TapsError: Input, environment or reference cannot be used.
    """
    chosen = choose(plan)
    for file in (plan.output, *([plan.min_good] if plan.min_good is not None else [])):
        check_file(file)
    listener = progress or Silent()
    out = plan.options.out or Path(f"tapsect-reduce-{plan.options.model.stem}")
    tally: Tally | None = None
    with claimed(out) as folder:
        keep = (folder / JOURNAL).is_file()  # answers of an earlier run are not lost to an error
        try:
            with open_ground(plan, folder, listener) as ground:
                tally = Tally(plan, ground, _judge(plan, ground), listener)
                done = _Run(tally, chosen, folder).go()
                keep = done.exit_code in (0, 130)
                ground.journal.close(finished=done.exit_code != 130)
        except KeyboardInterrupt:
            keep = True
            raise
        except Exception as error:  # a full disk, a machine that fails, a fault of this program
            seen = tally is not None and tally.best is not None
            wrong = isinstance(error, UsageError) and not isinstance(error, OutputError)
            keep = keep or (seen and not wrong)
            raise
        finally:
            if not keep:  # what did not fail, or could not be judged, leaves nothing behind
                (folder / JOURNAL).unlink(missing_ok=True)
                shutil.rmtree(folder / PROBES, ignore_errors=True)
    return done


def _judge(plan: Plan, ground: Ground) -> Judge:
    if ground.subject is not None:
        return Builtin(ground, ground.subject)
    if plan.line is None:
        assert plan.ask is not None
        artifact = Path("tapsect_candidate.onnx")
        return ByTrial(PersonCheck(plan.ask, artifact, ground.journal), ground, fed=True)
    names = {t for n in ground.graph.nodes for t in (n.name, *n.reads, *n.writes)}
    ops = {node.name: node.op for node in ground.graph.nodes}
    check = CommandCheck(
        plan.line, ground.work, ground.journal, frozenset(names), plan.artifacts, ops
    )
    return ByTrial(check, ground, fed=plan.line.fed)


@dataclass
class _Run:
    """One reduction under way."""

    tally: Tally
    chosen: Chosen
    folder: Path
    started: float = field(default_factory=time.monotonic)

    def go(self) -> Minimized:
        """Returns how it ended; files are written."""
        tally = self.tally
        if isinstance(tally.judge, ByTrial) and isinstance(tally.judge.check, CommandCheck):
            tally.judge.check.single = tally.jobs == 1
        if tally.jobs < tally.plan.jobs:
            tally.notes.append("--jobs: one check at a time, since they share a file or a person")
        try:
            return self._steps()
        except KeyboardInterrupt:
            return self._interrupted()
        finally:
            tally.judge.close()

    def _steps(self) -> Minimized:
        tally, ground = self.tally, self.tally.ground
        start = ground.start()
        if isinstance(tally.judge, Builtin):
            tally.judge.settle(start)
        reached = reduce_parts(tally, start, self.chosen.parts)
        result = reached.result
        if isinstance(result, DoesNotFail):
            why = tally.judge.why_not if isinstance(tally.judge, Builtin) else ""
            return Minimized(3, refused_sentence(tally.plan, result, reached.firing, why))
        self._refuse_blind(result)
        tally.notes += other_notes(reached.problem.other_failures, ground.graph)
        sample = kept_sample(tally, reached.problem, result.candidate)
        small = made_whole(tally, result.candidate, sample)
        if small is None:
            raise OutputError("what the reduced model reads could not be recorded")
        good = nearest_good(reached.problem, result.candidate, ground, sample)
        if small.outside is not None:
            tally.notes.append(
                f"its weights do not fit into one file: {tally.plan.output.name}.data holds them,"
                " and it was not made plainer"
            )
        elif self.chosen.models and tally.plan.options.budget > 0:
            if reached.slice is None:
                small, nearer, proved = self._plainer(small, proved=result.one_minimal)
            else:
                small, nearer, proved = self._plainer_flaky(small, reached.slice, result)
            result = replace(result, one_minimal=proved)
            good = nearer or good
        return self._end(reached, result, small, good)

    def _plainer(
        self, small: Specimen, *, proved: bool
    ) -> tuple[Specimen, tuple[Specimen, str] | None, bool]:
        """Returns the plain model, its passing neighbour, and whether no node of it can go.

        Nodes that the plain values no longer need are looked for again, until there are none.
        """
        tally, good = self.tally, None
        for number in range(ROUNDS):
            before = small
            small, nearer = simplified(tally, small, self.chosen.models)
            good = nearer or good
            if small.nodes == 1 or small == before or not proved:
                break
            again = parts_again(tally, small, self.chosen.parts, number)
            if again is None:
                return small, good, False
            count = small.nodes
            small, proved = again
            if small.nodes == count:
                break
        return small, good, proved

    def _plainer_flaky(
        self, small: Specimen, found: Slice, result: Reduced[Candidate]
    ) -> tuple[Specimen, tuple[Specimen, str] | None, bool]:
        """As ``_plainer``, of a model that fails now and then; it stays when it fails too rarely.

        That none of its nodes can go holds as long as they are the same.
        """
        tally = self.tally
        made, nearer = simplified(tally, small, self.chosen.models, found.least)
        if made == small:
            return small, None, result.one_minimal
        need, of = self._confirmations()
        if fresh_runs(tally, made, result.signature, of) < need:
            tally.notes.append("made plainer it fails less often: it was left as it was cut out")
            return small, None, result.one_minimal
        return made, nearer, result.one_minimal and made.nodes == small.nodes

    def _confirmations(self) -> tuple[int, int]:
        """Returns how often an end that fails now and then must fail, and of how many times."""
        confirm = self.tally.plan.confirm or Confirm(1, 3)
        return confirm.need, max(confirm.of, 3)

    def _refuse_blind(self, result: Reduced[Candidate]) -> None:
        """Refuses a check that fails whatever it is given.

        Raises:
            UsageError: It fails on a model that does nothing as well.
        """
        judge = self.tally.judge
        if not isinstance(judge, ByTrial) or not isinstance(judge.check, CommandCheck):
            return
        if len(result.candidate.nodes) > 1:
            return  # it did not fail on everything that was tried
        self.tally.calls += 1
        verdict, signature = judge.empty()
        same = signature is None or result.signature is None or result.signature.matches(signature)
        if verdict is Verdict.DIVERGES and same:
            raise UsageError(
                "--check fails on an empty model as well, in the same way"
                f" ({signature.kind if signature else 'fails'}): it does not judge the model;"
                " let it exit with 0 where the model is good, or name the failure with --fail-regex"
            )

    def _end(
        self, reached: Reached, result: Reduced[Candidate], small: Specimen,
        good: tuple[Specimen, str] | None,
    ) -> Minimized:  # fmt: skip
        tally, graph = self.tally, self.tally.ground.graph
        reproduced, of = result.reproduced, result.of
        if reached.slice is not None:
            need, of = self._confirmations()
            reproduced = fresh_runs(tally, small, result.signature, of)
            if reproduced < need:
                tally.notes.append(f"the end failed {reproduced} of {of} times, {need} asked")
        if tally.plan.min_good is not None and good is None:
            tally.notes.append("no passing neighbour was met; --min-good was not written")
        names, ops = self._left(result, small)
        end = End(
            small, result.signature, names, ops, "", result.one_minimal,
            reproduced, of, tally.calls, time.monotonic() - self.started, tuple(tally.trail),
            (*tally.ground.notes, *tally.notes), good,
        )  # fmt: skip
        end = replace(end, message=end_sentence(end, len(graph.nodes), reached.slice))
        tally.progress.step("write", str(tally.plan.output))
        finding = write_end(tally.plan, tally.ground, self.folder, end, tally.judge)
        return Minimized(0, end.message, finding, self.folder)

    def _left(
        self, result: Reduced[Candidate], small: Specimen
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the nodes that are left, by the names of the given model, and their types."""
        graph = self.tally.ground.graph
        nodes = [graph.nodes[i] for i in sorted(result.candidate.nodes)]
        kept = {t for node in small.proto.graph.node for t in node.output}
        still = [node for node in nodes if kept.intersection(node.writes)] or nodes
        return tuple(n.name for n in still), tuple(sorted({n.op for n in still}))

    def _interrupted(self) -> Minimized:
        best, plan = self.tally.best, self.tally.plan
        made = made_whole(self.tally, best, 0) if isinstance(best, Candidate) else best
        if made is None:
            raise KeyboardInterrupt
        write_model(plan.output, model_of(made))
        total = len(self.tally.ground.graph.nodes)
        return Minimized(
            130,
            f"interrupted: the best so far, {made.nodes} of {total} nodes, is in {plan.output};"
            " run the same command again to continue",
        )
