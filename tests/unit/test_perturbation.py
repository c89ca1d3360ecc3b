"""Perturbed models: what is fed, shaken, added, replaced and shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from debugtaps import Graph, Host, Plan, error_name, load_graph, mask_name, perturb, resolve, save
from support.build import Built, Net
from support.zoo import control_flow


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("ort-reference", {})) as running:
        yield running


def chain() -> tuple[Built, str, str]:
    net = Net()
    y = net.op("Relu", net.input("x", (2, 3), [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]]))
    z = net.op("Neg", y)
    net.output(z)
    return net.build(), y, z


def loaded(built: Built, folder: Path) -> Graph:
    model, _ = built.save(folder)
    return load_graph(model, folder / "work")


def run(
    host: Host, graph: Graph, plan: Plan, feeds: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    made = perturb(graph, plan)
    build = host.build(save(made.model, graph.folder / "made.onnx"))
    try:
        found = build.sweep(
            feeds, pools=made.pools, runs=[], windows=made.windows, shaken=made.shaken
        ).base
    finally:
        build.close()
    return {t: found[shown] for t, shown in made.shows.items() if shown in found}


def test_a_cut_edge_feeds_its_readers_and_shows_its_producer(host: Host, tmp_path: Path) -> None:
    built, y, z = chain()
    graph = loaded(built, tmp_path)
    given = {**built.feeds, y: np.full((2, 3), 7.0, np.float32)}
    found = run(host, graph, Plan(nodes=[0, 1], cut=[y], raw=[y, z]), given)
    np.testing.assert_array_equal(found[y], np.maximum(built.feeds["x"], 0))
    np.testing.assert_array_equal(found[z], np.full((2, 3), -7.0))


def test_a_cut_edge_that_nobody_reads_is_not_fed(tmp_path: Path) -> None:
    built, y, _ = chain()
    made = perturb(loaded(built, tmp_path), Plan(nodes=[0], cut=[y], raw=[y]))
    assert made.feeds == ("x",)


def test_an_error_is_added_at_its_edge(host: Host, tmp_path: Path) -> None:
    built, y, z = chain()
    plan = Plan(nodes=[0, 1], added=[y], values=[y, z])
    error = {error_name(y): np.full((2, 3), 0.5, np.float32)}
    found = run(host, loaded(built, tmp_path), plan, {**built.feeds, **error})
    np.testing.assert_array_equal(found[z], -np.maximum(built.feeds["x"], 0) - 0.5)


def test_elements_are_replaced_where_the_mask_says_so(host: Host, tmp_path: Path) -> None:
    built, y, z = chain()
    mask = np.array([[True, False, False], [False, False, True]])
    given = {mask_name(y): mask, f"value::{y}": np.full((2, 3), np.inf, np.float32)}
    found = run(
        host, loaded(built, tmp_path), Plan(nodes=[0, 1], replaced=[y], values=[z]),
        {**built.feeds, **given},
    )  # fmt: skip
    assert np.isneginf(found[z]).tolist() == mask.tolist()


def test_windows_of_different_edges_differ(tmp_path: Path) -> None:
    built, y, z = chain()
    shapes = dict.fromkeys(("x", y, z), (2, 3))
    made = perturb(
        loaded(built, tmp_path),
        Plan(nodes=[0, 1], noisy=dict.fromkeys(shapes, "1r"), shapes=shapes, values=[z]),
    )
    places = [*made.shaken.values(), *((p, at) for p, at, _ in made.windows.values())]
    assert len(set(places)) == 3
    (size, dtype), (start, _) = made.pools["pool::1r"], (max(at for _, at in places), 0)
    assert dtype == "float32"
    assert start + 6 <= size


def test_a_bypassed_operator_hands_its_input_on(host: Host, tmp_path: Path) -> None:
    built, y, z = chain()
    plan = Plan(nodes=[1], aliases={y: "x"}, values=[z])
    found = run(host, loaded(built, tmp_path), plan, built.feeds)
    np.testing.assert_array_equal(found[z], -built.feeds["x"])


def test_bodies_read_the_shaken_edge(tmp_path: Path, host: Host) -> None:
    """What a sub-graph captures is shaken with the rest."""
    built = control_flow()
    graph = loaded(built, tmp_path)
    held = next(n for n in graph.nodes if n.has_body)
    inner = [t for t in held.reads if t not in set(held.proto.input)]
    captured = [t for t in inner if graph.is_float(t) and t in graph.producer]
    assert captured
    plan = Plan(nodes=range(len(graph.nodes)), added=captured, values=list(graph.outputs))
    shapes = {t: graph.types[t].static for t in captured}
    assert all(s is not None for s in shapes.values())
    zero = {error_name(t): np.zeros(s or (), np.float32) for t, s in shapes.items()}
    one = {k: v + 1 for k, v in zero.items()}
    calm = run(host, graph, plan, {**built.feeds, **zero})
    moved = run(host, graph, plan, {**built.feeds, **one})
    assert any(not np.array_equal(calm[t], moved[t]) for t in calm)
