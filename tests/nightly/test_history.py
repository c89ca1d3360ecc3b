"""What is written once and read again: SQLite and PostgreSQL alike."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import sqlalchemy as sa

from debugtaps import EnvironmentFailure, InputError
from support.nights import nth_night
from tapsect.triage.database import Database
from tapsect.triage.history import History
from tapsect.triage.records import Found, Observation, Run
from tapsect.triage.signatures import Signature
from tapsect.triage.states import Verdict
from tapsect.triage.tables import STEPS, observations, runs, schema

FAULT = Signature("engine_defect", "accuracy", ("Relu() floatr2 -> floatr2",), "ort")


@pytest.fixture
def history(where: str) -> Iterator[History]:
    with Database(where) as database:
        yield History(database)


def found(key: str = "k", *, signature: Signature | None = None, **more: Any) -> Found:
    cause = signature.cause if signature else None
    return Found(
        key, nth_night(1), key, "said", {"model": "m"}, signature, cause, 2.0, 3,
        {"schema": 1, "key": key}, **more,
    )  # fmt: skip


def seen(entry: str, what: Found, state: Any = "new", *, cached: bool = False) -> Observation:
    return Observation(entry, what, Verdict(state), what.made, cached, None, "r")


def begun(history: History, number: int = 1) -> Run:
    return history.begin("zoo", "plan", "host:/out", nth_night(number), {"cpu": "x"})


def test_what_was_recorded_is_read_again(history: History) -> None:
    run = begun(history)
    history.record(run, [seen("a/ort", found(signature=FAULT)), seen("b/ort", found("good"))])
    history.finish(run, nth_night(1) + dt.timedelta(hours=1))
    assert [(r.id, r.started) for r in history.runs("zoo")] == [(run.id, nth_night(1))]
    row = history.observed(observations.c.entry == "a/ort")[0]
    assert (row.state, row.signature, row.facts, row.seconds) == (
        "new", FAULT.digest, {"model": "m"}, 2.0,
    )  # fmt: skip
    assert history.result(row.finding) == {"schema": 1, "key": "k"}
    assert history.signatures([FAULT.digest])[FAULT.digest].words == FAULT.words
    past = history.past("zoo")
    assert past["a/ort"].own == past[""].known == {FAULT.digest}
    assert past["b/ort"].own == frozenset()


def test_an_entry_is_written_once_a_run(history: History) -> None:
    run = begun(history)
    for state in ("new", "known"):
        history.record(run, [seen("a", found(), state), seen(f"also {state}", found(), state)])
    assert {row.entry: row.state for row in history.observed()} == {
        "a": "new", "also new": "new", "also known": "known",
    }  # fmt: skip


def test_equal_content_needs_no_second_look(history: History) -> None:
    run = begun(history)
    flaky = Signature("flaky_build", "accuracy", (), "ort")
    history.record(run, [seen("a", found("k1")), seen("b", found("k2", signature=flaky))])
    latest = history.latest({"k1", "k2", "k3"})
    assert {key: each.reusable for key, each in latest.items()} == {"k1": True, "k2": False}
    assert latest["k1"].result == {"schema": 1, "key": "k1"}
    history.record(begun(history, 2), [seen("a", latest["k1"], "known", cached=True)])
    assert len({row.finding for row in history.observed(observations.c.entry == "a")}) == 1


def test_two_runs_write_at_once(where: str) -> None:
    """Each has connections of its own, as two processes have."""
    failed: list[BaseException] = []

    def one(number: int) -> None:
        try:
            with Database(where) as database:
                history = History(database)
                run = begun(history, number)
                for entry in range(15):
                    history.record(run, [seen(f"e{entry}", found(f"k{number}", signature=FAULT))])
                history.finish(run, nth_night(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with Database(where) as database:
        assert len(History(database).observed()) == 45
        assert len(History(database).signatures([FAULT.digest])) == 1


def test_what_no_run_names_is_forgotten(history: History) -> None:
    first, second = begun(history, 1), begun(history, 2)
    history.record(first, [seen("a", found("old")), seen("b", found("kept"))])
    kept = history.latest({"kept"})["kept"]
    history.record(second, [seen("b", kept, cached=True)])
    assert history.prune([first.id]) == ["old"]
    assert [r.id for r in history.runs()] == [second.id]
    assert set(history.latest({"old", "kept"})) == {"kept"}


def _a_column_more(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE tapsect_runs ADD COLUMN comment TEXT"))


def test_an_older_history_is_brought_up_to_date_and_kept(where: str) -> None:
    with Database(where) as database:
        run = begun(History(database))
    newer = [*STEPS, _a_column_more]
    for _ in range(2):  # the second time there is nothing to do
        with Database(where, steps=newer) as database, database.transaction() as connection:
            assert connection.scalar(sa.select(schema.c.version)) == len(newer)
            assert connection.scalar(sa.select(runs.c.id)) == run.id
            assert connection.execute(sa.text("SELECT comment FROM tapsect_runs")).all()


def test_a_step_that_fails_changes_nothing(where: str) -> None:
    def fails(connection: sa.Connection) -> None:
        _a_column_more(connection)
        connection.execute(sa.text("SELECT nonsense FROM nowhere"))

    Database(where).close()
    with pytest.raises(EnvironmentFailure, match="cannot be opened"):
        Database(where, steps=[*STEPS, fails])
    with Database(where, steps=[*STEPS, _a_column_more]):
        pass


def test_a_newer_history_is_left_alone(where: str) -> None:
    Database(where, steps=[*STEPS, _a_column_more]).close()
    with pytest.raises(EnvironmentFailure, match=r"newer version .*version 2, this one knows 1"):
        Database(where)


def test_a_database_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(EnvironmentFailure, match=r"u:\*\*\*@127.0.0.1:1/x cannot be opened"):
        Database("postgresql://u:secret@127.0.0.1:1/x")


@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        ("mysql://host/x", InputError, "SQLite file or PostgreSQL, not 'mysql'"),
        ("://", InputError, "URL is none"),
        ("nowhere/history.sqlite", EnvironmentFailure, "there is no folder"),
    ],
)
def test_what_is_no_history_is_said(where: str, kind: type, said: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=said):
        Database(where, tmp_path)


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database at all, only a text of some length\n" * 9)
    with pytest.raises(EnvironmentFailure, match="file is not a database"):
        Database("notes.txt", tmp_path)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """SQLite is told that it may not grow, which it answers as it does when a disk is full."""
    with Database("history.sqlite", tmp_path) as database:
        history = History(database)
        run = begun(history)
        history.record(run, [seen("a", found())])
        with database.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()

        def full(connection: sqlite3.Connection, _: Any) -> None:
            connection.execute(f"PRAGMA max_page_count={pages}").close()

        sa.event.listen(database.engine, "connect", full)
        database.engine.dispose()
        big = Found("big", nth_night(1), "big", "x" * 100_000, {})
        with pytest.raises(EnvironmentFailure, match=r"full.*continues"):
            history.record(run, [seen("b", big)])
        assert [row.entry for row in history.observed()] == ["a"]
