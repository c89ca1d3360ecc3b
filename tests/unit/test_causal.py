"""The causal test: an error counts by what it does to the outputs, not by its size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from debugtaps import Array, Host, resolve
from support.build import Built, Net
from support.replaying import engine_values, reference_of
from tapsect.replay.causal import Effect, causal_test
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import judge_output

U = 2.0**-24


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("ort-reference", {})) as running:
        yield running


def two_branches() -> tuple[Built, str, str]:
    """Returns a model with one branch that matters and one that is scaled away."""
    net = Net()
    x = net.input("x", (4, 16))
    loud = net.op("Tanh", x)
    quiet = net.op("Sigmoid", x)
    net.output(net.op("Add", loud, net.op("Mul", quiet, net.const(1e-12))))
    return net.build(), loud, quiet


def effects(
    built: Built, host: Host, folder: Path, suspects: dict[str, tuple[Array, Array]],
    engine: dict[str, Array],
) -> dict[str, Effect]:  # fmt: skip
    reference = reference_of(built, host, folder)
    measured = reference.ends(built.feeds, samples=8)
    limit = limit_for(U)
    ends = [judge_output(n, engine[n], measured, U, limit) for n in reference.graph.outputs]
    return causal_test(reference, built.feeds, suspects, ends, measured, engine, limit.end)


def test_an_error_that_moves_nothing_is_harmless(host: Host, tmp_path: Path) -> None:
    built, loud, quiet = two_branches()
    right = engine_values(reference_of(built, host, tmp_path / "a"), built.feeds)
    wrong = engine_values(
        reference_of(built, host, tmp_path / "b"), built.feeds, {loud: 1e-4, quiet: 0.5}
    )
    suspects = {t: (wrong[t], right[t]) for t in (loud, quiet)}
    found = effects(built, host, tmp_path / "c", suspects, wrong)
    assert found[loud].culprit
    assert found[loud].share == pytest.approx(1.0, abs=0.01)
    assert not found[quiet].culprit
    assert found[quiet].floors < 1.0


def test_a_lost_infinity_is_replaced_not_added(host: Host, tmp_path: Path) -> None:
    net = Net()
    y = net.op("Reciprocal", net.input("x", (1, 3), [[0.0, 1.0, 2.0]]))
    net.output(net.op("Atan", y))
    built = net.build()
    right = engine_values(reference_of(built, host, tmp_path / "a"), built.feeds)
    wrong = dict(right)
    wrong[y] = np.array([[0.0, 1.0, 0.5]], np.float32)
    wrong["Atan_output_0"] = np.arctan(wrong[y])
    found = effects(built, host, tmp_path / "c", {y: (wrong[y], right[y])}, wrong)
    assert found[y].culprit


def test_a_wrong_index_is_a_culprit_when_it_is_read(host: Host, tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (1, 4), [[0.1, 0.9, 0.2, 0.3]])
    best = net.op("ArgMax", x, axis=1, keepdims=0)
    table = net.const(np.arange(8.0).reshape(4, 2))
    net.output(net.op("Gather", table, best), dtype=np.float32, shape=(1, 2))
    built = net.build()
    right = engine_values(reference_of(built, host, tmp_path / "a"), built.feeds)
    wrong = {**right, best: np.array([3]), "Gather_output_0": np.array([[6.0, 7.0]], np.float32)}
    found = effects(built, host, tmp_path / "c", {best: (wrong[best], right[best])}, wrong)
    assert found[best].culprit
