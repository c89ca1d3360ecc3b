"""Indices, integers and flags: explained by rounding, by the definition, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from debugtaps import Node
from tapsect.rounding.discrete import index_explained, tied, unexplained


def node(op: str, *, reads: tuple[str, ...] = ("x",), **attributes: Any) -> Node:
    proto = helper.make_node(op, list(reads), ["y"], **attributes)
    return Node(0, "n", op, "", reads, ("y",), proto)


X = np.array([[1.0, 1.0 + 1e-7, 0.0, 1.0]])


@pytest.mark.parametrize(("keepdims", "shape"), [(0, (1,)), (1, (1, 1))])
@pytest.mark.parametrize(("index", "near"), [(0, True), (2, False), (-1, True), (9, False)])
def test_index_near_the_winner(
    keepdims: int, shape: tuple[int, ...], index: int, near: bool
) -> None:
    search = node("ArgMax", axis=1, keepdims=keepdims)
    ours, theirs = np.full(shape, index), np.full(shape, 1)
    floor = np.full(X.shape, 2.0**-23)
    assert bool(index_explained(search, X, floor, ours, theirs).all()) is near


def test_noise_explains_an_element_it_changes() -> None:
    ours, theirs = np.array([1, 2, 3]), np.array([1, 5, 6])
    changed = np.array([False, True, False])
    wrong = unexplained(None, {}, ours, theirs, changed, 2.0**-24)
    assert wrong.tolist() == [False, False, True]


@pytest.mark.parametrize("exact", [True, False])
def test_a_tie_is_decided_by_the_definition_where_the_kernel_read_these_values(exact: bool) -> None:
    search = node("ArgMax", axis=1, keepdims=0)
    x = {"x": np.array([[0.5, 2.0, 2.0]], np.float32)}
    wrong = unexplained(
        search, x, np.array([2]), np.array([1]), np.array([True]), 2.0**-24, exact=exact
    )
    assert bool(wrong[0]) is exact


def test_an_unsorted_topk_promises_no_order() -> None:
    search = node("TopK", reads=("x", "k"), axis=1, sorted=0)
    x = {"x": np.array([[2.0, 2.0, 1.0]], np.float32)}
    ours, theirs = np.array([[1, 0]]), np.array([[0, 1]])
    changed = np.ones((1, 2), bool)
    assert not unexplained(search, x, ours, theirs, changed, 2.0**-24, exact=True).any()


@pytest.mark.parametrize(
    ("op", "values", "ties"),
    [
        ("Round", [0.5, 1.25, -1.5], [True, False, True]),
        ("Floor", [2.0, 2.5, -3.0], [True, False, True]),
        ("Cast", [1.0, 0.999], [True, False]),
    ],
)
def test_ties_of_rounding_operators(op: str, values: list[float], ties: list[bool]) -> None:
    found = tied(node(op), np.array(values), None)
    assert found is not None
    assert found.tolist() == ties


def test_ties_of_quantisation_need_one_known_scale() -> None:
    quantise, x = node("QuantizeLinear"), np.array([0.25, 0.3, -0.75])
    found = tied(quantise, x, np.array(0.5))
    assert found is not None
    assert found.tolist() == [True, False, True]
    assert tied(quantise, x, None) is None
    assert tied(quantise, x, np.array([0.5, 0.25])) is None
