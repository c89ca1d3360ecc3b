"""``tapsect tactics prove``: which choice of the builder makes a build bad, by forcing it.

    all suspects forced ─▶ bad each time? ─▶ halves ─▶ the fewest that are bad by themselves
                             no: 3                      what good builds chose in their place: good?

While some suspects are forced, the others are held at what good builds chose, so that nothing
else varies among them.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tapsect
from debugtaps import Host, SpecError, UsageError, resolve, write_json_atomic
from tapsect.axes.tactics import Difference, Replays, difference
from tapsect.environment import environment
from tapsect.finding import Cost, Finding, Fix, Step
from tapsect.folder import RESULT, claimed
from tapsect.progress import Progress, Silent
from tapsect.search.rates import alike_for
from tapsect.search.subsets import minimal_subset
from tapsect.steady.bench import Bench, open_bench
from tapsect.steady.plan import Plan
from tapsect.verdict import Verdict

__all__ = ["Proof", "prove_tactics"]

TRIES = 3
"""Builds of a choice that must all be bad."""

MOST_CURED = 20
"""Builds without it that must all be good, at most."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What forcing choices showed.

    Attributes:
        finding: As ``result.json`` has it.
        guilty: The choices that are bad by themselves; empty when nothing was proved.
        cured: Whether builds with what good ones chose instead are all good.
        folder: Where it was written.
    """

    finding: Finding
    guilty: tuple[Difference, ...]
    cured: bool
    folder: Path

    @property
    def exit_code(self) -> int:
        """Returns 0 when a choice was proved to be bad, else 3."""
        return 0 if self.guilty else 3


def prove_tactics(plan: Plan, replays: Replays, *, progress: Progress | None = None) -> Proof:
    """Forces choices that only bad builds made, until the bad one is known.

    Args:
        plan: Model, engine and who says good or bad.
        replays: What good and bad builds chose.
        progress: Hears of each build.

    Raises:
        UsageError: No choice differs, or the engine cannot be told what to choose.
        EnvironmentFailure: A worker or the reference cannot be started.
    """
    suspects = difference(replays)
    if not suspects:
        raise UsageError("no choice differs between good and bad builds: there is nothing to prove")
    # Each key once: of what bad builds chose for it, the most frequent.
    suspects = list({d.key: d for d in reversed(suspects)}.values())[::-1]
    folder_name = plan.options.out or Path(f"tapsect-tactics-{plan.options.model.stem}")
    with claimed(folder_name) as folder:
        with open_bench(plan.options, plan.check, folder, progress or Silent()) as bench:
            run = _Run(bench, suspects, progress or Silent())
            guilty = run.guilty()
            share = len(replays.bad) / max(1, len(replays.bad) + len(replays.good))
            cured = bool(guilty) and run.cured(guilty, share)
        finding = _finding(plan, run, guilty, cured=cured)
        write_json_atomic(folder / RESULT, finding.to_json())
    return Proof(finding, guilty, cured, folder)


class _Run:
    """Forced builds.

    Args:
        bench: Builds and judges.
        suspects: Choices that only bad builds made, one a key.
        progress: Hears of each build.
    """

    def __init__(self, bench: Bench, suspects: Sequence[Difference], progress: Progress) -> None:
        self.bench, self.suspects, self.progress = bench, suspects, progress
        self.started, self.builds = time.monotonic(), 0
        self.trail: list[Step] = []

    def guilty(self) -> tuple[Difference, ...]:
        """Returns the fewest choices that are bad each time; none when all together are not."""
        everything = tuple(self.suspects)
        if not self._all_bad(everything):
            return ()
        return minimal_subset(everything, self._all_bad).items

    def cured(self, guilty: Sequence[Difference], share: float) -> bool:
        """Returns whether builds with what good ones chose instead are good.

        Args:
            guilty: The bad choices.
            share: The share of builds that were bad, which tells how many good ones prove it.
        """
        instead = {d.key: d.others[0] for d in guilty if d.others}
        if not instead:
            return False
        most = min(MOST_CURED, alike_for(min(max(share, 0.01), 0.99)))
        return self._each(instead, Verdict.AGREES, most, "in their place")

    def _all_bad(self, chosen: Sequence[Difference]) -> bool:
        others = {d.key: d.others[0] for d in self.suspects if d not in chosen and d.others}
        forced = {**others, **{d.key: d.choice for d in chosen}}
        names = ", ".join(f"{d.key} = {d.choice}" for d in chosen[:3])
        more = f" and {len(chosen) - 3} more" if len(chosen) > 3 else ""
        return self._each(forced, Verdict.DIVERGES, TRIES, names + more)

    def _each(self, forced: Mapping[str, str], wanted: Verdict, times: int, what: str) -> bool:
        """Returns whether every one of ``times`` builds with these choices is as wanted."""
        self.progress.step("forced", what)
        spec, label = self.bench.spec, f"forced {json.dumps(forced, sort_keys=True)}, build"
        options = {**spec.options, "tactics": dict(forced)}
        host = Host(
            resolve(self.bench.options.engine, options), python=self.bench.host.python,
            timeout=self.bench.host.timeout,
        )  # fmt: skip
        good = 0
        with host:
            for number in range(times):
                made = self.bench.attempt(number, host=host, label=label)
                self.builds += 1
                self._check(made.tactics, forced)
                good += made.verdict is wanted
                if made.verdict is not wanted:
                    break
        word = "bad" if wanted is Verdict.DIVERGES else "good"
        self.trail.append(Step("force", f"{word} in {good} of {number + 1}", what, number + 1))
        return good == times

    def _check(self, seen: Mapping[str, str], forced: Mapping[str, str]) -> None:
        """Refuses an engine that takes the option and chooses as it likes.

        Raises:
            SpecError: A forced choice was not made.
        """
        for key, choice in forced.items():
            if key in seen and seen[key] != choice:
                raise SpecError(
                    f"engine {self.bench.options.engine!r} was told to choose {choice!r} for"
                    f" {key!r} and chose {seen[key]!r}: its option 'tactics' does not force it"
                )


def _finding(plan: Plan, run: _Run, guilty: Sequence[Difference], *, cured: bool) -> Finding:
    options = plan.options
    engine: dict[str, Any] = {"spec": options.engine, "options": dict(options.engine_options)}
    instead = {d.key: d.others[0] for d in guilty if d.others}
    fix = Fix("tactics", shlex.quote(f"tactics={json.dumps(instead)}"))
    return Finding(
        message=_sentence(options.engine, guilty, len(run.suspects), cured=cured),
        status="diverges" if guilty else "inconclusive", tool_version=tapsect.__version__,
        command=tuple(options.command), cause="flaky_build" if guilty else None,
        model={"path": str(options.model)}, engine=engine, fixes=(fix,) if cured else (),
        cost=Cost(run.builds, 0, round(time.monotonic() - run.started, 3)),
        trail=tuple(run.trail), environment=environment(),
    )  # fmt: skip


def _sentence(engine: str, guilty: Sequence[Difference], count: int, *, cured: bool) -> str:
    if not guilty:
        return (
            f"Forcing all {count} choices that only bad builds of {engine} made does not make each"
            " build bad: the cause lies beyond them."
        )
    named = " together with ".join(f"{d.choice!r} for {d.key!r}" for d in guilty)
    text = f"{engine} is bad whenever it chooses {named}"
    if cured:
        instead = ", ".join(repr(d.others[0]) for d in guilty if d.others)
        return f"{text}; with {instead} instead every build is good."
    return f"{text}; builds without it are not all good, so it is not the only cause."
