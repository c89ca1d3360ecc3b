"""Tests of triage need its extra; those of its rules alone do not (``tests/unit``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import Postgres, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "nightly" in item.path.parts:
            item.add_marker(pytest.mark.engines)
            if item.get_closest_marker("ray") is None:
                item.add_marker(pytest.mark.triage)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    why = missing()
    if why:
        pytest.skip(why)
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: a file's path or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    server: Postgres = request.getfixturevalue("postgres")
    return server.empty_database()
