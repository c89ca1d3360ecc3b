"""Why nothing is to blame: the amplifying edge, conditioning, the first NaN."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from debugtaps import Host, resolve
from support.build import Built, Net
from support.replaying import reference_of
from tapsect.localize.explain import amplification, amplifier, first_nan, ill_conditioned
from tapsect.rounding.floors import limit_for
from tapsect.rounding.outputs import judge_output

U = 2.0**-24


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("ort-reference", {})) as running:
        yield running


def cancelling() -> tuple[Built, str]:
    """Returns a model that cancels almost everything, and the tensor whose rounding is left."""
    net = Net()
    big = net.op("Add", net.input("x", (4, 16)), net.const(1e5))
    net.output(net.op("Sub", big, net.const(1e5)))
    return net.build(), big


def test_the_edge_whose_rounding_is_amplified_is_named(host: Host, tmp_path: Path) -> None:
    built, big = cancelling()
    reference = reference_of(built, host, tmp_path)
    found = amplifier(reference, built.feeds, "Sub_output_0")
    assert found is not None
    assert found.tensor == big
    assert found.share > 0.9


def test_conditioning_is_the_floor_over_one_rounding(host: Host, tmp_path: Path) -> None:
    built, _ = cancelling()
    measured = reference_of(built, host, tmp_path).ends(built.feeds, samples=8)
    value = measured.base["Sub_output_0"]
    end = judge_output("Sub_output_0", value, measured, U, limit_for(U))
    assert 1e4 < amplification(end, U) < 1e6
    assert ill_conditioned(end, U)


@pytest.mark.parametrize("bad", [True, False])
def test_the_first_nan_of_the_reference_is_named(bad: bool, host: Host, tmp_path: Path) -> None:
    net = Net()
    values = np.array([[4.0, -1.0 if bad else 1.0, 9.0]])
    root = net.op("Sqrt", net.op("Identity", net.input("x", (1, 3), values)))
    net.output(net.op("Tanh", net.op("Mul", root, net.const(2.0))))
    built = net.build()
    found = first_nan(reference_of(built, host, tmp_path), built.feeds)
    assert found == (root if bad else None)
