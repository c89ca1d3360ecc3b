"""When a failure is new, known, regressed, fixed, flaky or expected, and since when."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from tapsect.finding import Finding
from tapsect.triage.job import Stopped
from tapsect.triage.proof import changed_release
from tapsect.triage.signatures import Signature, of_finding, of_stop
from tapsect.triage.since import Look, Since, borders, differences
from tapsect.triage.states import Past, Seen, Verdict, judge
from tapsect.triage.suite import Expectation

DAY = dt.datetime(2030, 1, 1, 2, tzinfo=dt.UTC)


def look(
    night: int, signature: str | None, *, key: str | None = None, cached: bool = False,
    cause: str = "engine_defect", state: str = "",
) -> Seen:  # fmt: skip
    when = DAY + dt.timedelta(days=night)
    told = cause if signature else None
    return Seen(when, key or f"k{night}", signature, state, cached, told, f"run{night}")


def verdict(
    history: Sequence[str | None],
    *,
    known: Sequence[str] = (),
    expect: Sequence[Expectation] = (),
    keys: Sequence[str] | None = None,
    **now: Any,
) -> Verdict:
    """Returns the verdict on the last of some nights; ``None`` is one that agreed."""
    told = [look(n, s, key=keys[n] if keys else None, **now) for n, s in enumerate(history)]
    own = frozenset(s for s in history[:-1] if s)
    return judge("m/ort", told[-1], Past(told[:-1], own | frozenset(known), own), expect)


@pytest.mark.parametrize(
    ("history", "state"),
    [
        ([None], "agrees"),
        ([None, None], "agrees"),
        (["A"], "new"),
        ([None, "A"], "new"),
        (["A", "A"], "known"),
        (["B", "A"], "new"),
        (["A", None], "fixed"),
        (["A", None, None], "agrees"),
        (["A", None, "A"], "regressed"),
        (["A", "B", "A"], "regressed"),
        (["A", None, "B"], "new"),
    ],
)
def test_states(history: Sequence[str | None], state: str) -> None:
    assert verdict(history).state == state


def test_a_new_entry_with_a_fault_of_others_is_no_news_but_an_old_one_is() -> None:
    assert verdict(["A"], known=["A"]).state == "known"
    assert verdict([None, "A"], known=["A"]).state == "new"


@pytest.mark.parametrize(
    ("history", "keys", "state"),
    [
        (["A", None], "kk", "flaky"),
        ([None, "A"], "kk", "new"),  # a failure that nobody has seen is read once
        (["A", None, "A"], "kjk", "regressed"),
        (["A", None, "A", None], "abcd", "flaky"),
        (["A", None, None, "A"], "abcd", "regressed"),
    ],
)
def test_an_answer_that_changes_by_itself_is_flaky(
    history: Sequence[str | None], keys: str, state: str
) -> None:
    assert verdict(history, keys=list(keys)).state == state


def test_the_rate_of_a_flaky_entry() -> None:
    told = verdict(["A", None, "A", "A", None], keys=list("kkkkk"))
    assert (told.state, told.rate) == ("flaky", 0.6)


def test_repeated_answers_are_no_looks() -> None:
    assert verdict(["A", None, "A", None], cached=True).state == "fixed"


def test_builds_that_disagree_are_news_once() -> None:
    assert verdict(["A"], cause="flaky_build").state == "new"
    assert verdict(["A", "A"], cause="flaky_build").state == "flaky"


def expected(answer: Any = "engine_defect", until: str | None = "2030-01-02") -> Expectation:
    day = dt.date.fromisoformat(until) if until else None
    return Expectation(entries="m/*", answer=answer, until=day, why="reported")


def test_a_failure_is_expected_until_its_last_day() -> None:
    assert verdict(["A"], expect=[expected()]) == Verdict("expected", "reported")
    assert verdict(["A", "A"], expect=[expected()]).state == "expected"
    late = judge("m/ort", look(5, "A"), Past([look(0, "A", state="expected")]), [expected()])
    assert late == Verdict("new", "it was expected until 2030-01-02")


def test_another_cause_is_not_the_expected_one() -> None:
    assert verdict(["A"], expect=[expected("precision_limit")]).state == "new"


def test_an_entry_that_must_agree_is_kept_from_later_expectations() -> None:
    assert verdict(["A"], expect=[expected("agrees", None), expected()]).state == "new"


def test_an_expected_failure_that_is_gone_is_said() -> None:
    told = verdict([None], expect=[expected()])
    assert told == Verdict("agrees", "engine_defect was expected until 2030-01-02, and it agrees")


def test_since_when() -> None:
    first = look(1, None)
    assert borders("run2", "A", None) == (None, "run2")
    assert borders("run2", "A", first) == ("run1", "run2")
    later = Seen(DAY, "k", "A", "new", run="run2", good="run1", bad="run2")
    assert borders("run3", "A", later) == ("run1", "run2")
    assert borders("run3", "B", later) == ("run2", "run3")
    assert borders("run3", None, later) == (None, None)


def test_what_differs_is_told_by_name() -> None:
    before = {"model": "a", "engine": {"describe": {"version": "1"}, "options": {}}}
    after = {"model": "a", "engine": {"describe": {"version": "2"}, "options": {"x": 1}}}
    assert differences(before, after) == [
        "engine.describe.version: 1 -> 2",
        "engine.options.x: none -> 1",
    ]


def finding(**more: Any) -> Finding:
    told = {
        "message": "", "status": "diverges", "tool_version": "0", "cause": "engine_defect",
        "failure": "accuracy", "engine": {"spec": "/a/e.py:E", "describe": {"version": "1"}},
        "signature": {"pattern": ["LayerNormalization(axis=last) float16r3 float16c -> float16r3"],
                      "extent": "scaled", "detail": ""},
    }  # fmt: skip
    return Finding(**(told | more))


def test_the_same_fault_in_other_models_and_versions_is_one() -> None:
    one = of_finding(finding())
    other = finding(
        message="other", model={"sha256": "1"}, culprit_nodes=("n",),
        engine={"spec": "/b/e.py:E", "describe": {"version": "2"}},
    )  # fmt: skip
    assert one == of_finding(other)
    assert one is not None
    assert one.words == (
        "engine defect in LayerNormalization float16 on e.py:E: accuracy, scaled"
    )  # fmt: skip
    assert Signature.from_json(one.to_json()).digest == one.digest


@pytest.mark.parametrize(
    "other",
    [
        {"cause": "precision_limit"},
        {"failure": "nonfinite"},
        {"engine": {"spec": "ort"}},
        {"signature": {"pattern": ["Conv() floatr4 floatc -> floatr4"], "extent": "scaled"}},
        {
            "signature": {
                "pattern": ["LayerNormalization(axis=last) float16r3 float16c -> float16r3"],
                "extent": "one slice",
            }
        },
    ],
)
def test_other_faults_stay_apart(other: dict[str, Any]) -> None:
    assert of_finding(finding()) != of_finding(finding(**other))


def test_agreement_has_no_signature() -> None:
    assert of_finding(finding(status="agrees")) is None


def test_what_could_not_be_judged_is_told_without_names_and_numbers() -> None:
    one = of_stop(Stopped("failed", "node 'a/Conv' of /x/m.onnx failed after 3.5 s"), "ort")
    two = of_stop(Stopped("failed", "node 'b/Conv' of /y/n.onnx failed after 9 s"), "ort")
    assert one == two
    assert of_stop(Stopped("time", "stopped after 9 s"), "ort").symptom == "over its limit of time"


def looked(version: str | None, name: str = "onnxruntime") -> Look:
    versions = {} if version is None else {"versions": {name: version, "numpy": version}}
    return Look("run", DAY, {"engine": {"describe": {"name": name, **versions}}})


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (looked("1.9"), looked("1.10"), ("onnxruntime", "1.9", "1.10")),
        (looked("1.10"), looked("1.9"), ("onnxruntime", "1.9", "1.10")),
        (looked("1.9"), looked("1.9"), None),
        (looked(None), looked("1.9"), None),
        (None, looked("1.9"), None),
    ],
)
def test_the_release_that_changed(
    good: Look | None, bad: Look, expected: tuple[str, str, str] | None
) -> None:
    assert changed_release(Since(good, bad)) == expected
