"""What makes operators of different models alike, and what keeps them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from debugtaps import load_graph
from support.build import Net
from tapsect.diagnose.pattern import extent, pattern
from tapsect.replay.judging import Told, judge_floats


def shown(net: Net, folder: Path, *names: str) -> list[str]:
    graph = load_graph(net.build().save(folder)[0], folder / "work")
    return pattern(graph, [graph.by_name[n] for n in names])


def normed(axis: int = -1, *, rank: int = 3, size: int = 8, scope: str = "a", seed: int = 0) -> Net:
    net = Net(seed=seed)
    with net.scope(scope):
        x = net.op("Relu", net.input("x", (2,) * (rank - 1) + (size,)))
        scale = net.const(net.rng.standard_normal(size))
        net.output(net.op("LayerNormalization", x, scale, axis=axis, epsilon=1e-5))
    return net


def test_names_weights_and_sizes_do_not_count(tmp_path: Path) -> None:
    one = shown(normed(), tmp_path / "1", "a/LayerNormalization")
    two = shown(normed(2, size=16, scope="b", seed=3), tmp_path / "2", "b/LayerNormalization")
    assert one == two == ["LayerNormalization(axis=last, epsilon=n) floatr3 floatc -> floatr3"]


@pytest.mark.parametrize("other", [{"axis": 1}, {"rank": 2}])
def test_what_is_computed_counts(other: dict[str, Any], tmp_path: Path) -> None:
    one = shown(normed(), tmp_path / "1", "a/LayerNormalization")
    assert one != shown(normed(**other), tmp_path / "2", "a/LayerNormalization")


def test_a_kernel_counts_by_its_class(tmp_path: Path) -> None:
    def conv(kernel: int, folder: str) -> list[str]:
        net = Net()
        net.output(net.conv(net.input("x", (1, 3, 8, 8)), 3, 4, kernel=kernel))
        return shown(net, tmp_path / folder, "Conv")

    assert conv(3, "3") == conv(5, "5") != conv(1, "1")


def test_edges_inside_a_region_count(tmp_path: Path) -> None:
    def two(*, joined: bool) -> list[str]:
        net = Net()
        x = net.input("x", (2, 4))
        y = net.op("Relu", x)
        net.output(y, net.op("Tanh", y if joined else x))
        return shown(net, tmp_path / str(joined), "Relu", "Tanh")

    assert "Relu > Tanh" in two(joined=True)
    assert two(joined=True)[:2] == two(joined=False)


def wrong(error: Any, shape: tuple[int, ...] = (4, 8, 32)) -> str:
    right = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made = right.copy()
    error(made)
    judgement = judge_floats(Told("y", 2.0**-24), made, right, None)
    assert judgement.kind == "accuracy"
    return extent(judgement, shape)


def scaled(y: Any) -> None:
    y *= 1.05


def one_channel(y: Any) -> None:
    y[:, 2] *= 1.05


def one_element(y: Any) -> None:
    y[1, 2, 3] += 3.0


def shifted(y: Any) -> None:
    y += 0.1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (scaled, "scaled"),
        (one_channel, "one slice"),
        (one_element, "single elements"),
        (shifted, "everywhere"),
    ],
)
def test_how_much_of_a_tensor_is_wrong(error: Any, expected: str) -> None:
    assert wrong(error) == expected
