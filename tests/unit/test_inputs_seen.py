"""Properties that separate failing samples from the others, and the luck of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapsect.axes.inputs import properties, separating


def sample(values: Any, dtype: Any = np.float32) -> dict[str, Any]:
    return {"x": np.asarray(values, dtype)}


RNG = np.random.default_rng(1)
PLAIN = [sample(RNG.standard_normal(50)) for _ in range(6)]


def changed(index: int, value: float) -> dict[str, Any]:
    array = PLAIN[index]["x"].copy()
    array[7] = value
    return {"x": array}


@pytest.mark.parametrize(
    ("failing", "what"),
    [
        ([changed(0, 60.0), changed(1, 70.0)], "largest value"),
        ([changed(0, -60.0), changed(1, -70.0)], "smallest value"),
        ([changed(0, np.nan), changed(1, np.nan)], "share of NaN"),
        ([changed(0, np.inf), changed(1, -np.inf)], "share of infinities"),
        ([changed(0, 1e-40), changed(1, 1e-41)], "share of denormals"),
        ([changed(0, 0.0), changed(1, 0.0)], "share of zeros"),
        ([sample(np.clip(p["x"], -0.1, 0.1)) for p in PLAIN[:2]], "saturation"),
        ([sample(RNG.standard_normal(51)) for _ in range(2)], "size along axis 0"),
        ([sample(np.arange(50) * 9, np.int64)], "largest value"),
    ],
)
def test_the_property_is_named(failing: list[dict[str, Any]], what: str) -> None:
    others = [sample(np.arange(50), np.int64)] * 5 if failing[0]["x"].dtype == np.int64 else PLAIN
    found = separating(failing, others[2:])
    assert what in " | ".join(each.words for each in found[:3])


def test_samples_that_fail_at_random_are_seldom_separated() -> None:
    draw = np.random.default_rng(0)
    hits, told = 0, 0.0
    for _ in range(60):
        made = [sample(draw.standard_normal(40)) for _ in range(12)]
        found = separating(made[:6], made[6:])
        hits += bool(found)
        told = max([told, *[each.chance for each in found]])
    assert hits <= 6
    assert told < 0.05


def test_one_against_one_is_told_to_be_luck() -> None:
    (first, *_) = separating(PLAIN[:1], PLAIN[1:2])
    assert first.chance == 1.0


def test_words_say_both_sides() -> None:
    found = separating([sample([1.0, 9.0, 2.0])], [sample([1.0, 3.0, 2.0])])
    words = [each.words for each in found]
    assert "the largest value of 'x' is 9 or more, in the others 3 or less" in words


def test_text_and_empty_inputs_have_sizes_only() -> None:
    found = properties({"t": np.array(["a"], object), "e": np.zeros((0, 2), np.float32)})
    assert set(found) == {
        ("t", "size along axis 0"), ("e", "size along axis 0"), ("e", "size along axis 1")
    }  # fmt: skip
