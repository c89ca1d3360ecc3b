"""What is new about an observation, given the earlier ones of its entry and of its suite.

=========  =====================================================================================
agrees     the engine agrees, as before
new        a failure that was not there when this entry was seen last
known      the same failure as last time; or a new entry with a fault that others have
regressed  a failure that this entry had before, and that had gone
fixed      the engine agrees, and did not when it was seen last
flaky      the answer changes though nothing else did, or changes too often
expected   a failure that the suite names, and whose last day has not passed
=========  =====================================================================================

Pure: no clock, no database.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from tapsect.triage.suite import Expectation

__all__ = ["NEWS", "STATES", "Past", "Seen", "State", "Verdict", "flips", "judge"]

State = Literal["new", "regressed", "flaky", "known", "expected", "fixed", "agrees"]
STATES: tuple[State, ...] = get_args(State)
NEWS = frozenset({"new", "regressed"})
"""The states that a person must read; they make the exit status 1."""

WINDOW = 10
FLIPS = 3
"""So many changes between good and bad among the last ``WINDOW`` looks make an entry flaky."""
FLAKY_CAUSES = frozenset({"flaky_build", "flaky_run"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at an entry.

    Attributes:
        when: Its time.
        key: What the answer depended on.
        signature: Of the failure; ``None`` when the engine agreed.
        state: What was new about it then.
        cached: Whether it repeats an older answer and is no look of its own.
        cause: Of the failure.
        run: Of which run.
        good: The last run without this failure; ``None`` when there is none.
        bad: The first run with it; ``None`` when the engine agreed.
    """

    when: dt.datetime
    key: str
    signature: str | None
    state: str
    cached: bool = False
    cause: str | None = None
    run: str = ""
    good: str | None = None
    bad: str | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What was seen before.

    Attributes:
        looks: At the entry, the oldest first.
        known: Signatures that any entry of the suite has shown without being expected to.
        own: The same of this entry, however long ago.
    """

    looks: Sequence[Seen] = ()
    known: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of an observation, and why where the word does not say it.

    Attributes:
        state: One of ``STATES``.
        note: A remark; empty where there is nothing to remark.
        rate: Share of failing looks of a flaky entry.
    """

    state: State
    note: str = ""
    rate: float | None = None


def judge(entry: str, now: Seen, past: Past, expectations: Sequence[Expectation] = ()) -> Verdict:
    """Returns what is new about the look ``now`` (its own ``state`` does not count)."""
    note = ""
    expected = next((e for e in expectations if fnmatchcase(entry, e.entries)), None)
    if expected is not None and expected.answer != "agrees" and expected.until is not None:
        if now.signature is None:
            note = f"{expected.answer} was expected until {expected.until}, and it agrees"
        elif now.cause == expected.answer:
            if now.when.date() <= expected.until:
                return Verdict("expected", expected.why)
            note = f"it was expected until {expected.until}"
    looks = [s for s in past.looks if not s.cached][-(WINDOW - 1) :]
    flaky = _flaky([*looks, now], past)
    if flaky is not None and (now.signature is None or now.signature in past.known):
        return flaky
    if now.signature is None:
        bad = bool(past.looks) and past.looks[-1].signature is not None
        return Verdict("fixed" if bad else "agrees", note)
    return Verdict(_failing(now.signature, past), note)


def _failing(signature: str, past: Past) -> State:
    if signature in past.own:
        return "known" if past.looks and past.looks[-1].signature == signature else "regressed"
    return "known" if not past.looks and signature in past.known else "new"


def _flaky(looks: Sequence[Seen], past: Past) -> Verdict | None:
    """Returns the verdict on an entry whose answer changes by itself."""
    rate = sum(s.signature is not None for s in looks) / len(looks)
    same = [s for s in looks if s.key == looks[-1].key]
    if len({s.signature is None for s in same}) > 1:
        return Verdict("flaky", "the answer changes though nothing else did", rate)
    if flips(looks) >= FLIPS:
        return Verdict("flaky", f"the answer changed {flips(looks)} times", rate)
    now = looks[-1]
    if now.cause in FLAKY_CAUSES and now.signature in past.own:
        return Verdict("flaky", "builds or runs of it disagree", rate)
    return None


def flips(looks: Sequence[Seen]) -> int:
    """Returns how often the answer went from good to bad or back."""
    good = [s.signature is None for s in looks]
    return sum(a != b for a, b in zip(good, good[1:], strict=False))
