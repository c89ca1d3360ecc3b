"""``tapsect repeat``: how often builds are bad, and whether it is the build or the run."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tapsect
from debugtaps import UsageError, write_json_atomic
from tapsect.axes.repeat import Attempt, Tally, repeat
from tapsect.axes.tactics import Difference, difference, replays_of, write_replay
from tapsect.environment import environment
from tapsect.finding import Cost, Finding, Step
from tapsect.folder import JOURNAL, PROBES, RESULT, claimed
from tapsect.observed import Repeats
from tapsect.progress import Progress, Silent
from tapsect.steady.bench import Bench, open_bench
from tapsect.steady.plan import CANDIDATE, Plan
from tapsect.verdict import Verdict

__all__ = ["Repeated", "repeat_builds"]

_WORDS = {Verdict.DIVERGES: "bad", Verdict.AGREES: "good"}


@dataclass(frozen=True, slots=True)
class Repeated:
    """What building again and again showed.

    Attributes:
        finding: As ``result.json`` has it.
        tally: The attempts.
        differing: Choices that only bad builds made.
        folder: Where it was written.
    """

    finding: Finding
    tally: Tally
    differing: tuple[Difference, ...]
    folder: Path


def repeat_builds(plan: Plan, *, progress: Progress | None = None) -> Repeated:
    """Builds the same model until it is known how often the build is bad.

    Args:
        plan: What is asked for.
        progress: Hears of each build.

    Returns:
        The attempts and the finding, which is also written to ``plan.options.out``.

    Raises:
        UsageError: What was given cannot be used, or no build could be judged.
        EnvironmentFailure: A worker or the reference cannot be started.
    """
    plan.check_jobs()
    listener, started = progress or Silent(), time.monotonic()
    with claimed(plan.options.out or Path(f"tapsect-repeat-{plan.options.model.stem}")) as folder:
        try:
            with open_bench(plan.options, plan.check, folder, listener) as bench:
                tally = _tally(plan, bench, listener)
        except UsageError:
            if plan.check.ask is None:  # what cannot be judged leaves nothing to be continued
                (folder / JOURNAL).unlink(missing_ok=True)
                shutil.rmtree(folder / PROBES, ignore_errors=True)
            raise
        differing = tuple(difference(replays_of(tally.attempts)))
        finding = _finding(plan, bench, tally, differing, time.monotonic() - started)
        write_json_atomic(folder / RESULT, finding.to_json())
    return Repeated(finding, tally, differing, folder)


def _tally(plan: Plan, bench: Bench, progress: Progress) -> Tally:
    """Returns the attempts.

    Raises:
        UsageError: None could be judged.
    """

    def attempt(number: int) -> Attempt:
        before = bench.fresh
        made = bench.attempt(number)
        if bench.fresh > before:
            _keep(plan, bench, made)
        return made

    if plan.jobs == 1:
        tally = repeat(attempt, plan.until, lambda found: _tell(found, progress))
    else:
        with bench.several(plan.jobs) as one:
            count = plan.until.count
            tally = repeat(
                lambda n: one(n, count), plan.until, lambda found: _tell(found, progress)
            )
    if not tally.good + tally.bad:
        raise UsageError(
            f"none of {len(tally.attempts)} builds could be judged"
            f" ({tally.attempts[-1].why}); let the check exit with 0 for good and 1 for bad"
        )
    return tally


def _tell(tally: Tally, progress: Progress) -> None:
    last = tally.attempts[-1]
    progress.step(
        f"build {last.number + 1}",
        f"{_WORDS.get(last.verdict, 'not judged')}; {tally.bad} bad, {tally.good} good so far",
    )


def _keep(plan: Plan, bench: Bench, made: Attempt) -> None:
    """Writes the tactics of one build and sorts what it left.

    Raises:
        UsageError: The engine does not tell its tactics.
    """
    if plan.tactics is not None:
        if not made.tactics and made.verdict is not Verdict.DIVERGES:
            raise UsageError(
                f"--save-tactics: engine {plan.options.engine!r} does not tell what it chose for"
                " this model; leave the option out"
            )
        about = {"engine": plan.options.engine, "model": plan.options.model.name}
        write_replay(plan.tactics, made.tactics, about)
    if plan.check.artifacts is not None:
        plan.check.artifacts.count = made.number  # a continued run goes on counting
        plan.check.artifacts.sort(made.verdict, [CANDIDATE])


def _finding(
    plan: Plan, bench: Bench, tally: Tally, differing: tuple[Difference, ...], seconds: float
) -> Finding:
    options, (low, high), (bad, of) = plan.options, tally.interval(), tally.counts()
    engine: dict[str, Any] = {"spec": options.engine, "options": dict(options.engine_options)}
    worst = next((a for a in tally.attempts if a.verdict is Verdict.DIVERGES), None)
    notes = list(bench.notes)
    if worst is not None:
        notes.append(f"build {worst.number + 1} is bad: {worst.why}")
    if plan.check.runs == 1 and tally.cause == "flaky_build":
        notes.append("each build was run once: --runs 3 tells builds that differ from runs that do")
    if tally.skipped:
        notes.append(f"{tally.skipped} builds could not be judged and do not count")
    return Finding(
        message=sentence(bench.builder, tally), status="diverges" if bad else "agrees",
        tool_version=tapsect.__version__, command=tuple(options.command), cause=tally.cause,
        model={"path": str(options.model)}, engine=engine,
        repeats=Repeats(
            tally.unit, bad, of, low, high, len(tally.attempts), tally.bad, tally.mixed,
            chosen=tuple(d.words(tally.bad) for d in differing[:5]),
        ),
        cost=Cost(len(tally.attempts), tally.runs()[1], round(seconds, 3)),
        trail=tuple(
            Step("repeat", _WORDS.get(a.verdict, "not judged"), a.why, 1) for a in tally.attempts
        ) + (Step("repeat", "enough", tally.stopped),),
        notes=tuple(notes), environment=environment(),
    )  # fmt: skip


def sentence(engine: str, tally: Tally) -> str:
    """Returns what repeating showed, in one sentence."""
    (bad, of), (low, high) = tally.counts(), tally.interval()
    if not bad:
        return f"All {of} builds by {engine} are good: fewer than {high:.0%} are bad (95 %)."
    if tally.cause is None:
        return (
            f"All {of} builds by {engine} are bad: this is no flaky build; tapsect bisect finds"
            " the place."
        )
    how = f"{bad} of {of} {tally.unit}s by {engine} are bad"
    rate = f"{bad / of:.0%}, 95 % interval {low:.0%} to {high:.0%}"
    if tally.unit == "run":
        return f"{how} ({rate}), and runs of one build disagree."
    return f"{how} ({rate}): builds of one model disagree."
