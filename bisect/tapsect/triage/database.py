"""The history's database: a SQLite file, or PostgreSQL by its URL.

SQLite runs with a write-ahead log and takes its lock when a transaction begins, so that several
runs may write to one file: the later one waits.  What a transaction wrote is on the disk when it
ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from debugtaps import EnvironmentFailure, InputError, MissingPackage
from tapsect.triage.tables import STEPS, schema

__all__ = ["Database"]

WAIT_S = 60.0
"""How long a run waits for another one's transaction."""
CONNECT_S = 10
_LOCK = 0x7A95EC7  # any number, as long as all versions agree on it


class Database:
    """An open history.

    Args:
        where: A file, or ``postgresql://user@host/name``.
        folder: Where a relative file is looked for.
        steps: How its tables came to be; those of this version when not given.

    Attributes:
        shown: Its name for people, without a password.

    Raises:
        InputError: ``where`` is no URL of a database.
        EnvironmentFailure: It cannot be reached, is none, or was written by a newer version.
        MissingPackage: The driver is not installed.
    """

    def __init__(
        self,
        where: str,
        folder: Path = Path(),
        *,
        steps: Sequence[Callable[[sa.Connection], None]] = STEPS,
    ) -> None:
        self.engine, self.shown = _engine(where, folder)
        try:
            with self.failing("cannot be opened"):
                self._upgrade(steps)
        except BaseException:
            self.close()
            raise

    def _upgrade(self, steps: Sequence[Callable[[sa.Connection], None]]) -> None:
        with self.engine.begin() as connection:
            if connection.dialect.name == "postgresql":  # SQLite's transaction is a lock already
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            there = sa.inspect(connection).has_table(schema.name)
            version = connection.scalar(sa.select(schema.c.version)) if there else None
            version = version or 0
            if version > len(steps):
                raise EnvironmentFailure(
                    f"history {self.shown} was written by a newer version (its tables have"
                    f" version {version}, this one knows {len(steps)}); update tapsect, or name"
                    " another history."
                )
            for step in steps[version:]:
                step(connection)
            if version < len(steps):
                connection.execute(sa.delete(schema))
                connection.execute(sa.insert(schema).values(version=len(steps)))

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Gives a connection; what it wrote is kept when the block ends, all or nothing.

        Raises:
            EnvironmentFailure: The database refuses or is gone.
        """
        with self.failing("cannot be written"), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Turns what a database raises into one sentence."""
        try:
            yield
        except SQLAlchemyError as error:
            said = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
            raise EnvironmentFailure(
                f"history {self.shown} {what} ({said.splitlines()[0]}); nothing that was"
                " found is lost, the same command continues."
            ) from error

    def close(self) -> None:
        """Closes every connection."""
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _engine(where: str, folder: Path) -> tuple[sa.Engine, str]:
    if "://" not in where:
        path = folder / where
        if not path.parent.is_dir():
            raise EnvironmentFailure(f"history {path}: there is no folder {path.parent}; make it.")
        url = sa.URL.create("sqlite", database=str(path))
    else:
        try:
            url = sa.make_url(where)
        except ArgumentError:
            raise InputError(
                "the history's URL is none; write a file or postgresql://user@host/name"
            ) from None
    kind = url.get_backend_name()
    if kind == "sqlite":
        return _sqlite(url), str(url.database)
    if kind != "postgresql":
        raise InputError(f"a history is a SQLite file or PostgreSQL, not {kind!r}.")
    shown = url.render_as_string(hide_password=True)
    url = url.set(drivername="postgresql+psycopg")
    try:
        # A server without an encoding would answer with bytes.
        arguments = {"connect_timeout": CONNECT_S, "client_encoding": "utf8"}
        return sa.create_engine(url, connect_args=arguments, pool_pre_ping=True), shown
    except (ImportError, NoSuchModuleError):
        raise MissingPackage(
            f"history {shown} needs 'psycopg'; pip install 'tapsect[triage]'"
        ) from None


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": WAIT_S})

    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # we begin transactions ourselves, see below
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    def begin(connection: sa.Connection) -> None:
        # One that begins with a read and writes later would fail where another wrote meanwhile.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine
