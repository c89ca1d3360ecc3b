"""Perturbed models: without noise they are the model, bit for bit, whatever the model holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from debugtaps import Array, Host, extract, resolve, save
from support.build import Net
from support.replaying import engine_values, reference_of
from support.zoo import RANDOM, ZOO, to_float16
from tapsect.replay.regions import Replay

CERTAIN = [name for name in ZOO if name not in RANDOM]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("ort-reference", {})) as running:
        yield running


def assert_equal(ours: Array, theirs: Array) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CERTAIN)
def test_windows_of_ones_leave_every_bit(name: str, host: Host, tmp_path: Path) -> None:
    built = ZOO[name]()
    reference = reference_of(built, host, tmp_path)
    wide = reference.wide
    plain = host.build(
        save(extract(wide, range(len(wide.nodes)), list(wide.outputs)), reference.path("plain"))
    )
    want = plain.run(reference.widened(built.feeds))
    got = reference.ends(built.feeds, samples=0).base
    assert set(got) >= {n for n in want if n in wide.producer}
    for output, value in got.items():
        if output in want:
            assert_equal(value, want[output])


@pytest.mark.parametrize("name", CERTAIN)
def test_replaying_the_reference_itself_introduces_nothing(
    name: str, host: Host, tmp_path: Path
) -> None:
    built = ZOO[name]()
    reference = reference_of(built, host, tmp_path)
    values = engine_values(reference, built.feeds)
    judged, classes = Replay(reference, built.feeds, values).judge()
    assert {t: j for t, j in judged.items() if j.suspect} == {}
    assert all(not j.introduced for j in judged.values())
    assert (classes.contraction, classes.rest) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["transformer", "residual", "attention"])
def test_widened_models_replay_themselves_within_what_storing_rounds(
    name: str, host: Host, tmp_path: Path
) -> None:
    built = to_float16(ZOO[name]())
    reference = reference_of(built, host, tmp_path)
    judged, _ = Replay(reference, built.feeds, engine_values(reference, built.feeds)).judge()
    assert {t: j for t, j in judged.items() if j.suspect} == {}


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**16),
    ops=st.lists(
        st.sampled_from(["Tanh", "Relu", "Sigmoid", "Neg", "Exp"]), min_size=1, max_size=5
    ),
    at=st.integers(0, 4),
    size=st.floats(1e-3, 0.5),
)
def test_an_error_shows_at_its_node_alone_and_in_its_size(
    seed: int, ops: list[str], at: int, size: float, host: Host,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    net = Net(seed=seed)
    x = net.linear(net.input("x", (4, 8)), 8, 8)
    made = [x]
    for op in ops:
        made.append(net.op(op, made[-1]))
    net.output(net.linear(made[-1], 8, 3))
    built = net.build()
    reference = reference_of(built, host, tmp_path_factory.mktemp("chain"))
    wrong = made[at % len(made)]
    values = engine_values(reference, built.feeds, {wrong: size})
    # A tensor of nothing but zeros (Relu of what is never positive) has no error of that size.
    assume(bool(np.any(values[wrong])))
    judged, _ = Replay(reference, built.feeds, values).judge()
    assert [t for t, j in judged.items() if j.suspect] == [wrong]
    assert judged[wrong].introduced == pytest.approx(size, rel=1e-3)
