"""What every run saw: written once, whole, and read again for what is new."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

import tapsect
from tapsect.triage.database import Database
from tapsect.triage.records import Found, Observation, Run
from tapsect.triage.signatures import Signature
from tapsect.triage.states import WINDOW, Past, Seen
from tapsect.triage.tables import findings, observations, runs, signatures

__all__ = ["History"]

_CHUNK = 500


class History:
    """Reads and writes a history.

    Args:
        database: Where it is kept.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    # -- runs ----------------------------------------------------------------------------------

    def begin(
        self, suite: str, plan: str, folder: str, now: dt.datetime, environment: Mapping[str, Any]
    ) -> Run:
        """Returns a run that was begun and written down."""
        run = Run(uuid.uuid4().hex[:12], suite, plan, folder, now)
        with self.database.transaction() as connection:
            connection.execute(sa.insert(runs).values(
                id=run.id, suite=suite, plan=plan, folder=folder, started=now,
                tool_version=tapsect.__version__, environment=dict(environment),
            ))  # fmt: skip
        return run

    def finish(self, run: Run, now: dt.datetime) -> None:
        """Writes down that a run saw everything it was to see."""
        with self.database.transaction() as connection:
            connection.execute(sa.update(runs).where(runs.c.id == run.id).values(finished=now))

    def runs(self, suite: str | None = None, *, since: dt.datetime | None = None) -> list[Run]:
        """Returns the runs, the oldest first."""
        query = sa.select(*(runs.c[name] for name in Run.__dataclass_fields__))
        if suite is not None:
            query = query.where(runs.c.suite == suite)
        if since is not None:
            query = query.where(runs.c.started >= since)
        with self.database.transaction() as connection:
            return [Run(*row) for row in connection.execute(query.order_by(runs.c.started))]

    # -- writing -------------------------------------------------------------------------------

    def record(self, run: Run, seen: Sequence[Observation]) -> None:
        """Writes observations down in one transaction; one that stands there already stays.

        A finding without an ``id`` is new and is written, too.
        """
        with self.database.transaction() as connection:
            made: dict[int, str] = {}
            for each in seen:
                found = each.found
                if found.id or id(found) in made:
                    continue
                made[id(found)] = _insert_finding(connection, run, found)
            rows = [
                {"run": run.id, "entry": o.entry, "finding": o.found.id or made[id(o.found)],
                 "made": o.made, "cached": o.cached, "state": o.verdict.state,
                 "note": o.verdict.note, "rate": o.verdict.rate, "good": o.good, "bad": o.bad}
                for o in seen
            ]  # fmt: skip
            _insert_new(connection, observations, rows)

    # -- reading -------------------------------------------------------------------------------

    def latest(self, keys: Collection[str]) -> dict[str, Found]:
        """Returns the latest finding of each key that has one."""
        found: dict[str, Found] = {}
        with self.database.transaction() as connection:
            for part in _chunks(list(keys)):
                query = _select_findings().where(findings.c.key.in_(part)).order_by(findings.c.made)
                found |= {row.key: _found(row) for row in connection.execute(query)}
        return found

    def entries_of(self, run: str) -> dict[str, tuple[str, str]]:
        """Returns key and state of the entries that a run has seen."""
        query = (
            sa.select(observations.c.entry, findings.c.key, observations.c.state)
            .join_from(observations, findings)
            .where(observations.c.run == run)
        )
        with self.database.transaction() as connection:
            return {entry: (key, state) for entry, key, state in connection.execute(query)}

    def past(self, suite: str, *, without: str = "") -> Mapping[str, Past]:
        """Returns what was seen of each entry of a suite; ``""`` stands for one not seen yet.

        Args:
            suite: Its name.
            without: A run that does not count.
        """
        mine = sa.and_(runs.c.suite == suite, runs.c.id != without)
        failed = sa.and_(
            mine, findings.c.signature.is_not(None), observations.c.state != "expected"
        )
        joined = observations.join(findings).join(runs)
        with self.database.transaction() as connection:
            latest = (
                sa.select(runs.c.id).where(mine).order_by(runs.c.started.desc()).limit(2 * WINDOW)
            )
            ids = list(connection.scalars(latest))
            query = sa.select(
                observations.c.entry, observations.c.made, findings.c.key, findings.c.signature,
                observations.c.state, observations.c.cached, findings.c.cause,
                observations.c.run, observations.c.good, observations.c.bad,
            ).select_from(joined)  # fmt: skip
            rows = connection.execute(
                query.where(runs.c.id.in_(ids)).order_by(observations.c.made)
            ).all()
            pairs = connection.execute(
                sa.select(observations.c.entry, findings.c.signature)
                .select_from(joined).where(failed).distinct()
            ).all()  # fmt: skip
        return _pasts(rows, pairs)

    def observed(self, *where: sa.ColumnElement[bool]) -> list[Any]:
        """Returns rows of observations with their runs and findings, without results.

        Args:
            *where: Conditions on the columns of the tables.
        """
        query = (
            sa.select(
                runs.c.id.label("run"), runs.c.suite, runs.c.started, observations.c.entry,
                observations.c.made, observations.c.cached, observations.c.state,
                observations.c.note, observations.c.rate, observations.c.good,
                observations.c.bad, findings.c.id.label("finding"),
                findings.c.folder, findings.c.cause, findings.c.signature, findings.c.message,
                findings.c.seconds, findings.c.builds, findings.c.facts,
            )
            .select_from(observations.join(findings).join(runs))
            .where(*where)
            .order_by(runs.c.started, observations.c.made, observations.c.entry)
        )  # fmt: skip
        with self.database.transaction() as connection:
            return list(connection.execute(query).all())

    def tallies(self, ids: Collection[str]) -> list[Any]:
        """Returns how many entries of each run had each state and signature."""
        query = (
            sa.select(
                observations.c.run, observations.c.state, findings.c.signature,
                sa.func.count().label("count"),
            )
            .join_from(observations, findings)
            .where(observations.c.run.in_(list(ids)))
            .group_by(observations.c.run, observations.c.state, findings.c.signature)
        )  # fmt: skip
        with self.database.transaction() as connection:
            return list(connection.execute(query).all())

    def signatures(self, digests: Collection[str]) -> dict[str, Any]:
        """Returns rows of signatures by digest."""
        found: dict[str, Any] = {}
        with self.database.transaction() as connection:
            for part in _chunks(list(digests)):
                query = sa.select(signatures).where(signatures.c.digest.in_(part))
                found |= {row.digest: row for row in connection.execute(query)}
        return found

    def prove(self, digest: str, proof: str) -> None:
        """Writes down which release brought a fault."""
        with self.database.transaction() as connection:
            mine = signatures.c.digest == digest
            connection.execute(sa.update(signatures).where(mine).values(proof=proof))

    def result(self, finding: str) -> Mapping[str, Any] | None:
        """Returns the ``result.json`` of a finding."""
        query = sa.select(findings.c.result).where(findings.c.id == finding)
        with self.database.transaction() as connection:
            told: Mapping[str, Any] | None = connection.scalar(query)
            return told

    # -- forgetting ----------------------------------------------------------------------------

    def prune(self, ids: Collection[str]) -> list[str]:
        """Forgets runs, and findings that no other run has seen; returns their folders."""
        with self.database.transaction() as connection:
            for part in _chunks(list(ids)):
                connection.execute(sa.delete(observations).where(observations.c.run.in_(part)))
                connection.execute(sa.delete(runs).where(runs.c.id.in_(part)))
            unused = ~sa.exists().where(observations.c.finding == findings.c.id)
            folders = set(connection.scalars(sa.select(findings.c.folder).where(unused)))
            connection.execute(sa.delete(findings).where(unused))
            kept = set(connection.scalars(sa.select(findings.c.folder)))
        return sorted(folders - kept)


def _select_findings() -> sa.Select[Any]:
    return sa.select(findings, signatures.c.body).outerjoin(
        signatures, findings.c.signature == signatures.c.digest
    )


def _found(row: Any) -> Found:
    signature = None if row.body is None else Signature.from_json(row.body)
    return Found(
        row.key, row.made, row.folder, row.message, row.facts, signature, row.cause,
        row.seconds, row.builds, row.result, row.id,
    )  # fmt: skip


def _insert_finding(connection: sa.Connection, run: Run, found: Found) -> str:
    if found.signature is not None:
        row = {
            "digest": found.signature.digest, "words": found.signature.words,
            "body": found.signature.to_json(), "first_run": run.id, "first_seen": found.made,
        }  # fmt: skip
        _insert_new(connection, signatures, [row])
    name = uuid.uuid4().hex
    connection.execute(sa.insert(findings).values(
        id=name, key=found.key, made=found.made, folder=found.folder, cause=found.cause,
        signature=found.signature.digest if found.signature else None, message=found.message,
        seconds=found.seconds, builds=found.builds, facts=dict(found.facts),
        result=sa.null() if found.result is None else dict(found.result),
    ))  # fmt: skip
    return name


def _insert_new(connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    """Inserts rows; one whose primary key is taken stays as it is, also when a race takes it."""
    try:
        with connection.begin_nested():
            if rows:
                connection.execute(sa.insert(table), rows)
    except IntegrityError:
        for row in rows if len(rows) > 1 else ():
            _insert_new(connection, table, [row])


def _pasts(rows: Iterable[Any], pairs: Iterable[Any]) -> Mapping[str, Past]:
    looks: dict[str, list[Seen]] = {}
    for entry, *seen in rows:
        looks.setdefault(entry, []).append(Seen(*seen))
    own: dict[str, set[str]] = {}
    for entry, signature in pairs:
        own.setdefault(entry, set()).add(signature)
    known = frozenset().union(*own.values())
    found = {e: Past(s, known, frozenset(own.get(e, ()))) for e, s in looks.items()}
    for entry in own.keys() - looks.keys():
        found[entry] = Past((), known, frozenset(own[entry]))
    return {**found, "": Past((), known)}


def _chunks(items: list[str]) -> Iterable[list[str]]:
    return (items[n : n + _CHUNK] for n in range(0, len(items), _CHUNK))
