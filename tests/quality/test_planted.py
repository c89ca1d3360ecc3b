"""Every planted kind on every network: right node, right cause, smallest case, few builds.

The core set pairs each kind with one network and each network with some kinds; the whole product
is marked ``slow``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.diagnosing import Diagnosed, case_status, diagnose, trail_of
from support.planting import CORE, KINDS, PLACES, Expected, pairs

RUN_BY_HAND = frozenset({"hang"})
"""Kinds whose case waits a minute for an answer that never comes."""


def assert_found(found: Diagnosed, expected: Expected) -> None:
    """Asserts place, cause, smallest case and price."""
    finding, why = found.finding, trail_of(found)
    assert (finding.failure, finding.cause) == (expected.failure, expected.cause), why
    assert finding.exit_code == 1, why
    wanted = [frozenset(n) for n in (expected.nodes, expected.also) if n]
    if wanted:
        assert found.places[0] in wanted, why
        assert all(any(w <= place for place in found.places) for w in wanted), why
        assert len(found.places) == len(wanted), why
        first = finding.first_divergence
        assert first is not None
        assert first.node in {n[-1] for n in (expected.nodes, expected.also) if n}, why
    assert not finding.harmless, why
    if expected.smallest is None:
        assert found.minimal is None
    else:
        assert found.minimal in [frozenset(expected.smallest), *wanted[1:]], why
    if expected.most_builds is not None:
        assert finding.cost.builds <= expected.most_builds, why


def check(kind: str, place: str, folder: Path) -> None:
    expected = KINDS[kind](PLACES[place])
    built = PLACES[place].build()
    found = diagnose(built, expected.faults, folder, **expected.options)
    assert_found(found, expected)
    if found.minimal is not None and kind not in RUN_BY_HAND:
        assert case_status(found) == 1, trail_of(found)


@pytest.mark.parametrize(("kind", "place"), CORE, ids=lambda v: v.replace(" ", "-"))
def test_kind_is_found_in_its_network(kind: str, place: str, tmp_path: Path) -> None:
    check(kind, place, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "place"), [p for p in pairs() if p not in CORE], ids=lambda v: v.replace(" ", "-")
)
def test_kind_is_found_in_every_network(kind: str, place: str, tmp_path: Path) -> None:
    check(kind, place, tmp_path)
