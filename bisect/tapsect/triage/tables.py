"""The tables of the history, and how an older one becomes a newer one.

::

    runs ──< observations >── findings        one observation an entry and run
                  └──────────> signatures      what makes failures the same fault

The version of the tables is a row of ``tapsect_schema``.  Step n of ``STEPS`` turns version n - 1
into n, in one transaction; the first makes all tables.  A step that was released never changes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

__all__ = ["STEPS", "findings", "observations", "runs", "schema", "signatures"]


class Moment(TypeDecorator):  # type: ignore[misc]  # untyped where it is not installed
    """A time in UTC; databases without time zones give it back as one, too."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Any) -> dt.datetime | None:
        """Stores UTC without its zone."""
        return None if value is None else value.astimezone(dt.UTC).replace(tzinfo=None)

    def process_result_value(self, value: dt.datetime | None, dialect: Any) -> dt.datetime | None:
        """Gives UTC back."""
        return None if value is None else value.replace(tzinfo=dt.UTC)


_tables = sa.MetaData()

schema = sa.Table("tapsect_schema", _tables, sa.Column("version", sa.Integer, nullable=False))

runs = sa.Table(
    "tapsect_runs", _tables,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("suite", sa.Text, nullable=False, index=True),
    sa.Column("plan", sa.String(64), nullable=False),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("started", Moment, nullable=False, index=True),
    sa.Column("finished", Moment),
    sa.Column("tool_version", sa.Text, nullable=False),
    sa.Column("environment", sa.JSON, nullable=False),
)  # fmt: skip

signatures = sa.Table(
    "tapsect_signatures", _tables,
    sa.Column("digest", sa.String(12), primary_key=True),
    sa.Column("words", sa.Text, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("first_run", sa.String(32), nullable=False),
    sa.Column("first_seen", Moment, nullable=False),
    sa.Column("proof", sa.Text),
)  # fmt: skip

findings = sa.Table(
    "tapsect_findings", _tables,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("key", sa.String(64), nullable=False, index=True),
    sa.Column("made", Moment, nullable=False),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.Column("signature", sa.ForeignKey("tapsect_signatures.digest"), index=True),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("builds", sa.Integer, nullable=False),
    sa.Column("facts", sa.JSON, nullable=False),
    sa.Column("result", sa.JSON),
)  # fmt: skip

observations = sa.Table(
    "tapsect_observations", _tables,
    sa.Column("run", sa.ForeignKey("tapsect_runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("entry", sa.Text, primary_key=True, index=True),
    sa.Column("finding", sa.ForeignKey("tapsect_findings.id"), nullable=False, index=True),
    sa.Column("made", Moment, nullable=False),
    sa.Column("cached", sa.Boolean, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("rate", sa.Float),
    sa.Column("good", sa.String(32)),  # runs: the last without this failure, the first with it
    sa.Column("bad", sa.String(32)),
)  # fmt: skip


def _make_all(connection: sa.Connection) -> None:
    _tables.create_all(connection)


STEPS: Sequence[Callable[[sa.Connection], None]] = (_make_all,)
