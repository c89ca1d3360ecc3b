"""Which release of an engine went wrong, or was mended: a bisection over releases.

Each release runs in an environment of its own.  Both ends are judged first; releases that cannot
be installed, or cannot run the model, are stepped around.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from debugtaps import (
    EngineFailure,
    EngineSpec,
    EnvironmentFailure,
    Host,
    SpecError,
    WorkerError,
    resolve,
)
from tapsect.axes.versions import Releases, environment, version_key
from tapsect.diagnose.given import Options
from tapsect.diagnose.subject import open_subject
from tapsect.progress import Progress
from tapsect.published import cache_folder
from tapsect.search.line import first_bad
from tapsect.steady.judges import ByReference
from tapsect.verdict import Verdict

__all__ = ["Border", "Search", "Seen", "find_border"]

Step = tuple[str, "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one release showed.

    Attributes:
        what: ``agrees``, ``differs``, a kind of failure, or ``none`` without an environment.
        why: In words.
    """

    what: str
    why: str

    @property
    def judged(self) -> bool:
        """Whether it has values to judge."""
        return self.what in ("agrees", "differs")


@dataclass(frozen=True, slots=True)
class Border:
    """Where releases change.

    Attributes:
        good: The last or first release that is right beside ``bad``; None without a border.
        bad: The first release that is wrong, or the last one before it was mended.
        mended: Whether the later release is the right one.
        seen: What each release showed that was asked, oldest first.
        between: Releases between the two that cannot be judged.
        message: One sentence.
    """

    good: str | None
    bad: str | None
    mended: bool
    seen: tuple[Step, ...]
    between: tuple[str, ...]
    message: str


def find_border(options: Options, package: str, chosen: Releases, progress: Progress) -> Border:
    """Returns the border between right and wrong releases.

    Args:
        options: Model, inputs, engine and reference; the interpreter is each release's own.
        package: The engine's package.
        chosen: The releases to look at.
        progress: Hears of each release.

    Raises:
        UsageError: Something that was given cannot be used.
        EnvironmentFailure: No release can be installed, or the reference cannot run.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tapsect-versions-"))
        bench = _Bench(options, package, Path(folder), progress, stack)
        return Search(bench, package, chosen).border()


@dataclass
class _Bench:
    """Environments as they are needed, and the judge, opened with the first that works."""

    options: Options
    package: str
    folder: Path
    progress: Progress
    stack: ExitStack
    judge: ByReference | None = field(default=None, init=False)
    model: Path = field(init=False)

    def look(self, version: str) -> Seen:
        """Returns what a release shows."""
        self.progress.step("version", f"{self.package} {version}")
        try:
            python = environment(self.package, version, cache_folder() / "venvs", self._why_not)
        except EnvironmentFailure as failure:
            return Seen("none", str(failure))
        if self.judge is None:
            self._open(python)
        return self._judged(python)

    def _why_not(self, python: Path) -> str:
        """Returns why the engine cannot be loaded under a Python, or nothing."""
        with Host(self._spec(), python=python) as host:
            try:
                host.ready()
            except (WorkerError, EnvironmentFailure, SpecError) as error:
                # Neither the path of a draft nor how to install there is of use to anybody.
                return str(error).partition(", in the interpreter")[0]
        return ""

    def _spec(self) -> EngineSpec:
        return resolve(self.options.engine, self.options.engine_options)

    def _open(self, python: Path) -> None:
        options = replace(self.options, engine_python=python)
        subject = open_subject(options, self.folder, self.progress)
        self.stack.callback(subject.close, finished=True)
        subject.engine.close()
        self.judge, self.model = ByReference(subject), subject.model

    def _judged(self, python: Path) -> Seen:
        assert self.judge is not None
        timeout = self.options.timeout
        try:
            with (
                Host(self._spec(), python=python, timeout=max(timeout, 600.0)) as host,
                host.build(self.model, timeout=timeout) as build,
            ):
                verdict, why = self.judge.judge(build, "")
        except EngineFailure as failure:
            first = next(iter(failure.message.strip().splitlines()), "")
            return Seen(failure.kind, first[:300])
        except (WorkerError, SpecError) as error:
            return Seen("none", str(error))
        return Seen("agrees" if verdict is Verdict.AGREES else "differs", why)


@dataclass
class Search:
    """A bisection under way.

    Attributes:
        bench: Shows what a release does.
        package: The engine's package.
        chosen: The releases to look at.
        seen: What each showed.
    """

    bench: _Bench
    package: str
    chosen: Releases
    seen: dict[str, Seen] = field(default_factory=dict, init=False)

    def border(self) -> Border:
        """Returns the border, or why there is none."""
        low, high = self._ends()
        if low >= high:
            return self._none("fewer than two releases can be judged")
        start, end = (self.seen[self.chosen.here[at]] for at in (low, high))
        if start.what == end.what:
            same = {"agrees": "is right", "differs": "is wrong"}.get(
                end.what, f"ends in {end.what}"
            )
            return self._none(f"it {same} at both ends, {self._name(low)} and {self._name(high)}")
        found = first_bad(high - low, lambda at: self._verdict(low + at, start, end))
        if not all(each.judged for each in (start, end)) and (off := self._differing()):
            # Wrong values in between: the release at that end only could not run the model.
            low, high = (off[-1], high) if end.what == "agrees" else (low, off[0])
            start, end = (self.seen[self.chosen.here[at]] for at in (low, high))
            found = first_bad(high - low, lambda at: self._verdict(low + at, start, end))
        before, after = low + found.low, low + found.index
        between = self.chosen.here[before + 1 : after]
        mended = end.what == "agrees"
        words = ("good", "bad") if mended else ("bad", "good")
        wrong = start if mended else end
        message = (
            f"{self._name(after)} is the first {words[0]} release, {self._name(before)} the last"
            f" {words[1]} one ({wrong.what}: {wrong.why})."
        )
        if between:
            message += f" Between them {', '.join(between)} cannot be judged."
        ends = (self.chosen.here[before], self.chosen.here[after])
        good, bad = ends[::-1] if mended else ends
        return Border(good, bad, mended, self._told(), between, message)

    def _ends(self) -> tuple[int, int]:
        """Returns the outermost releases that can be judged, one of them right if need be.

        An error is what is looked for only where the other end is right: else it is a release
        that cannot run the model.
        """
        low, high = 0, len(self.chosen.here) - 1
        while low < high and self._look(low).what == "none":
            low += 1
        while low < high and self._look(high).what == "none":
            high -= 1
        while low < high and not self._right(low, high):
            if not self._look(low).judged:
                low += 1
            elif not self._look(high).judged:
                high -= 1
            else:
                break
        return low, high

    def _right(self, low: int, high: int) -> bool:
        return "agrees" in (self._look(low).what, self._look(high).what)

    def _differing(self) -> list[int]:
        """Returns where wrong values were seen."""
        here = self.chosen.here
        return [n for n, v in enumerate(here) if v in self.seen and self.seen[v].what == "differs"]

    def _look(self, at: int) -> Seen:
        version = self.chosen.here[at]
        if version not in self.seen:
            self.seen[version] = self.bench.look(version)
        return self.seen[version]

    def _verdict(self, at: int, start: Seen, end: Seen) -> Verdict:
        """Returns which end a release is like; it is asked anew each time."""
        self.seen[self.chosen.here[at]] = seen = self.bench.look(self.chosen.here[at])
        if seen.what == end.what:
            return Verdict.DIVERGES
        return Verdict.AGREES if seen.what == start.what else Verdict.INVALID

    def _name(self, at: int) -> str:
        return f"{self.package} {self.chosen.here[at]}"

    def _none(self, why: str) -> Border:
        return Border(
            None, None, mended=False, seen=self._told(), between=(),
            message=f"No border was found: {why}.",
        )  # fmt: skip

    def _told(self) -> tuple[Step, ...]:
        """Returns what was seen, releases without a wheel for this Python among it."""
        lacking = Seen("none", "no wheel for this Python")
        told = [*self.seen.items(), *((version, lacking) for version in self.chosen.elsewhere)]
        return tuple(sorted(told, key=lambda each: version_key(each[0])))
