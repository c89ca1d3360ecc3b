"""What a report draws: it comes back as written, and a drawing holds every node once."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from debugtaps import InputError
from tapsect.diagnose.tracing import _compared, _selection
from tapsect.report.neighbourhood import neighbourhood
from tapsect.traced import Culprit, Element, Operator, Point, Profile, read_profile

CHAIN = tuple(Operator(f"n{i}", "Relu", i + 1, (i - 1,) if i else ()) for i in range(6))
PROFILE = Profile(
    1, CHAIN,
    (Point("t2", 2, "float32", (1, 4), "nonfinite", None, 0.5, 1e-7, math.inf, 64.0, cut=True),),
    ((1, 2),), ("x",),
    Culprit("t2", "tapped", 4, 1, (0.0, 1.0), (4,), (4,), ((-2, 1),),
            (Element((0, 1), math.nan, 2.0),)),
)  # fmt: skip


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    PROFILE.write(tmp_path)
    assert repr(read_profile(tmp_path)) == repr(PROFILE)
    text = (tmp_path / "profile.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["points"][0]["ratio"] == "inf"


def test_a_folder_without_profile_has_none(tmp_path: Path) -> None:
    assert read_profile(tmp_path) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"schema": 9}', "schema 9, this version reads 1"),
        ('{"operators": [{"name": "a"}]}', "damaged at operators.0.op"),
        ('{"points": [{"tensor": "t", "node": 3, "dtype": "f", "shape": [], "kind": "ok"}]}',
         "names nodes that it does not hold"),
        ('{"fused": [[0, -1]]}', "names nodes that it does not hold"),
    ],
)  # fmt: skip
def test_damaged_profiles_are_input_errors(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "profile.json").write_text(body)
    with pytest.raises(InputError, match=message):
        read_profile(tmp_path)


# --------------------------------------------------------------------------------- the drawing


def test_a_small_graph_is_drawn_whole_from_top_to_bottom() -> None:
    drawing = neighbourhood(CHAIN, [2])
    assert (drawing.nodes, drawing.folds) == (tuple(range(6)), ())
    assert drawing.edges == tuple((i, i + 1) for i in range(5))
    assert [y for _, y in drawing.places] == [0, -1, -2, -3, -4, -5]


def test_far_nodes_are_folded_by_side() -> None:
    drawing = neighbourhood(CHAIN, [2], near=3)
    assert drawing.nodes == (1, 2, 3)
    assert [(f.nodes, f.before) for f in drawing.folds] == [((0,), True), ((4, 5), False)]
    assert drawing.edges == ((0, 1), (1, 2), (2, 4), (3, 0))
    heights = [y for _, y in drawing.places]
    assert heights[3] > heights[0] > heights[1] > heights[2] > heights[4]


def test_a_large_graph_stays_small_and_loses_nobody() -> None:
    rng = np.random.default_rng(0)
    operators: list[Operator] = []
    for i in range(3000):
        reads = tuple(sorted({int(r) for r in rng.integers(max(0, i - 30), i, 2)})) if i else ()
        depth = 1 + max((operators[r].depth for r in reads), default=0)
        operators.append(Operator(f"n{i}", "Add", depth, reads))
    drawing = neighbourhood(operators, [1500, 1501])
    assert {1500, 1501} <= set(drawing.nodes)
    assert len(drawing.nodes) == 120
    assert sorted([*drawing.nodes, *(n for f in drawing.folds for n in f.nodes)]) == [*range(3000)]
    assert set(drawing.home) == set(range(3000))
    assert len(set(drawing.places)) == len(drawing.places)
    near = len(drawing.nodes)
    for a, b in drawing.edges:
        if a < near and b < near:
            assert drawing.places[a][1] > drawing.places[b][1]


def test_neighbours_of_one_layer_do_not_cross() -> None:
    fan = (
        Operator("in", "Split", 1), *(Operator(f"a{i}", "Relu", 2, (0,)) for i in range(3)),
        *(Operator(f"b{i}", "Relu", 3, (3 - i,)) for i in range(3)),
    )  # fmt: skip
    places = neighbourhood(fan, [0]).places
    assert [places[3 - i][0] for i in range(3)] == [places[4 + i][0] for i in range(3)]


# --------------------------------------------------------------------------- what is kept of it


def test_the_worst_elements_come_first_and_equal_ones_are_none() -> None:
    engine = np.array([[1.0, 2.0], [np.nan, 4.5]], np.float32)
    expected = np.array([[1.0, 2.1], [3.0, 4.0]], np.float32)
    found = _compared("t", "tapped", engine, expected)
    assert found is not None
    assert [e.index for e in found.worst] == [(1, 0), (1, 1), (0, 1)]
    assert (found.elements, found.differing) == (4, 3)
    assert found.errors == ((-2, 1), (-1, 1))
    assert (sum(found.engine), sum(found.expected)) == (3, 4)


def test_values_that_are_equal_everywhere_non_finite_too() -> None:
    same = np.array([np.inf, -np.inf, np.nan, 1.0])
    found = _compared("t", "case", same, same)
    assert found is not None
    assert (found.differing, found.worst) == (0, ())
    nothing = np.full(3, np.nan)
    blank = _compared("t", "case", nothing, nothing)
    assert blank is not None
    assert blank.edges == ()
    assert _compared("t", "case", np.zeros(2), np.zeros(3)) is None
    assert _compared("t", "case", np.array(["a"]), np.array(["b"])) is None


def test_the_inherited_error_is_asked_of_few_tensors_all_along_and_near_the_place() -> None:
    names = [f"t{i}" for i in range(1000)]
    values = {n: np.zeros(4, np.float32) for n in names}
    chosen = _selection(names, ["t500"], values)
    assert chosen[0] == "t500"
    assert len(chosen) <= 80
    assert {f"t{i}" for i in range(492, 509)} <= set(chosen)
    places = sorted(int(n[1:]) for n in chosen)
    assert max(b - a for a, b in zip(places, places[1:], strict=False)) < 40
    assert _selection([], [], {}) == []


def test_fields_at_their_defaults_are_not_written(tmp_path: Path) -> None:
    replace(PROFILE, points=(), fused=(), culprit=None).write(tmp_path)
    body = json.loads((tmp_path / "profile.json").read_text())
    assert set(body) == {"schema", "sample", "operators", "inputs"}
    assert body["operators"][0] == {"name": "n0", "op": "Relu", "depth": 1}
