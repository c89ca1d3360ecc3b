"""Rows, scores, the first row that falls off, limits, and files of builds against a reference."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debugtaps import Bound, InputError, Row, Verification, verify, write_npz
from debugtaps.scores import PRECISIONS, SCORES, mark_fall, row_of

NASTY = ["file", "a/b", "../up", "x\x1b[31m", "ünï", "[bold]", "=1+1", "a,b", "tap:0", "\u202e"]


def files(folder: Path, want: dict[str, Any], *got: dict[str, Any], **meta: Any) -> Verification:
    """Writes a reference and builds, and compares them."""
    write_npz(folder / "reference.npz", want)
    paths = [folder / f"build{number}.npz" for number in range(len(got))]
    for path, tensors in zip(paths, got, strict=True):
        write_npz(path, tensors, meta=meta or None)
    return verify(folder / "reference.npz", paths)


def fallen(errors: list[float], dtype: Any = np.float32, precision: float = 0.0) -> str | None:
    """Returns the row that is marked when rows have these relative errors."""
    rng = np.random.default_rng(0)
    rows = []
    for number, error in enumerate(errors):
        want = rng.choice([-1.0, 1.0], 4096)
        got = want * (1 + error * rng.choice([-1, 1], 4096))
        rows.append(row_of(f"r{number}", got.astype(dtype), want.astype(dtype)))
    return next((row.name for row in mark_fall(rows, precision) if row.falls_off), None)


# ------------------------------------------------------------------------------- falling off


def test_equal_tensors_never_fall_off() -> None:
    assert fallen([0.0, 0.0, 0.0]) is None


def test_rounding_that_adds_up_does_not_fall_off() -> None:
    assert fallen([1e-7, 2e-7, 3e-7, 5e-7, 8e-7, 3e-6]) is None
    assert fallen([2.0**-11, 2.0**-10, 3e-3, 1e-2], np.float16) is None
    assert fallen([2.0**-8, 2.0**-7, 2.0**-6], ml_dtypes.bfloat16) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_five_percent_fall_off_in_every_type(dtype: Any) -> None:
    u = {np.float32: 2.0**-24, np.float16: 2.0**-11}.get(dtype, 2.0**-8)
    assert fallen([u, u, 0.0525, 0.1, 0.05], dtype) == "r2"


def test_only_the_first_is_marked() -> None:
    rows = [row_of(f"r{i}", np.ones(4) * (1 + e), np.ones(4)) for i, e in enumerate([0, 1, 9])]
    assert [row.falls_off for row in mark_fall(rows)] == [False, True, False]


def test_the_precision_a_build_states_is_no_fall() -> None:
    errors = [4e-4, 6e-4, 8e-4, 0.05]
    assert fallen(errors) == "r0"
    assert fallen(errors, precision=PRECISIONS["fp16"]) == "r3"


def test_a_non_finite_row_falls_off_whatever_its_numbers() -> None:
    rows = [
        row_of("a", np.array([1.0, 2.0]), np.array([1.0, 2.0])),
        row_of("b", np.array([np.nan, 2.0]), np.array([1.0, 2.0])),
        row_of("c", np.array([np.nan, np.nan]), np.array([1.0, 2.0])),
    ]
    assert [row.falls_off for row in mark_fall(rows)] == [False, True, False]


def test_nan_on_both_sides_agrees() -> None:
    row = row_of("a", np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))
    assert row.state == "compared"
    assert not mark_fall([row])[0].falls_off
    assert "1 here, 1 in the reference, 0 differ" in row.note()


def test_unpaired_rows_are_passed_over() -> None:
    rows = [Row("a", "no reference"), row_of("b", np.ones(3), np.ones(3)), Row("c", "no output")]
    assert not any(row.falls_off for row in mark_fall(rows))


def test_whole_numbers_may_be_off_by_rounding_but_not_by_far() -> None:
    want = np.full(1000, 100, np.uint8)
    near, far = want.copy(), want.copy()
    near[:100] += 1
    far[:500] = 0
    assert not mark_fall([row_of("q", near, want)])[0].falls_off
    assert mark_fall([row_of("q", far, want)])[0].falls_off


def test_a_reference_of_zero_is_measured_by_the_scale_before_it() -> None:
    rows = [
        row_of("a", np.ones(4), np.ones(4)),
        row_of("b", np.full(4, 1e-16), np.zeros(4)),
    ]
    assert not any(row.falls_off for row in mark_fall(rows))
    assert mark_fall(rows[1:])[0].falls_off


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1))
def test_what_comes_after_the_mark_does_not_move_it(errors: list[float], later: float) -> None:
    first = fallen(errors)
    if first is not None:
        assert fallen([*errors, later]) == first


# ------------------------------------------------------------------------------------- scores


def test_scores_of_a_plain_row() -> None:
    row = row_of("y", np.array([1.1, 2.0]), np.array([1.0, 2.0]))
    assert row.score("mape") == pytest.approx(5.0)
    assert row.score("mse") == pytest.approx(0.005)
    assert row.score("max_diff") == pytest.approx(0.1)
    assert row.score("snr_db") == pytest.approx(10 * math.log10(2.5 / 0.005))


@pytest.mark.parametrize(
    ("got", "want", "state"),
    [
        (np.array([np.nan, 1.0]), np.array([1.0, 1.0]), "nonfinite"),
        (np.array([np.inf, 1.0], np.float16), np.array([1.0, 1.0]), "nonfinite"),
        (np.zeros((2, 1)), np.zeros((1, 2)), "shape"),
        (np.array(["a"]), np.array([1.0]), "dtype"),
    ],
)
def test_what_cannot_be_scored_has_the_worst_of_all_scores(got: Any, want: Any, state: str) -> None:
    row = row_of("y", got, want)
    assert row.state == state
    assert [row.score(s.key) for s in SCORES] == [s.worst for s in SCORES]
    assert row.note()


def test_another_type_is_said_and_scored() -> None:
    row = row_of("y", np.ones(2, np.float16), np.ones(2, np.float32))
    assert (row.state, row.score("ulp"), row.score("snr_db")) == ("dtype", 0, math.inf)
    assert row.note() == "float16[2], the reference is float32[2]"


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "ü"], object),
        np.array([True, False]),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([1.5, -2], ml_dtypes.float8_e4m3fn),
        np.array([1, -8], ml_dtypes.int4),
        np.array([1 + 2j], np.complex64),
        np.array(3.0),
        np.zeros((0, 4)),
        np.zeros(3),
    ],
)
def test_every_type_agrees_with_itself(tmp_path: Path, array: Any) -> None:
    found = files(tmp_path, {"y": array}, {"y": array})
    row = found.builds[0].rows[0]
    best = {"mape": 0, "mse": 0, "max_diff": 0, "ulp": 0, "snr_db": math.inf}
    assert row.state == "compared"
    assert row.score("cosine") == pytest.approx(1.0)
    assert {key: row.score(key) for key in best} == best
    assert not row.falls_off


def test_text_that_differs_has_no_steps_but_a_worst_score() -> None:
    row = row_of("y", np.array(["a", "b"]), np.array(["a", "c"]))
    assert (row.score("max_diff"), row.score("ulp")) == (1.0, math.inf)


def test_a_reference_of_zeros_has_no_percentage_to_hide_behind() -> None:
    row = row_of("y", np.ones(2), np.zeros(2))
    assert (row.score("mape"), row.score("cosine"), row.score("snr_db")) == (
        math.inf, 0.0, -math.inf,
    )  # fmt: skip


# -------------------------------------------------------------------------- pairing and order


def test_names_pair_exactly_and_the_rest_is_counted(tmp_path: Path) -> None:
    one = np.ones(1)
    want = {"y": one, "h": one, "benchmark_timings_ms": np.arange(3)}
    got = {"y": one, "H": one, "z": one}
    found = files(tmp_path, want, got)
    assert found.warnings == (
        "[build0]: 2 outputs are missing in the reference, this can occur when plugin taps "
        "without a torch value are enabled",
        "[build0]: 1 output is missing in the sample output",
    )
    states = {row.name: row.state for row in found.builds[0].rows}
    assert states == {
        "y": "compared", "h": "no output", "H": "no reference", "z": "no reference",
    }  # fmt: skip


def test_rows_stand_in_model_order(tmp_path: Path) -> None:
    one = np.ones(1)
    got = {"y": one, "c": one, "a": one, "b": one}
    ordered = files(tmp_path, {"y": one, "b": one, "a": one}, got, order=["a", "b", "c", "y"])
    assert [row.name for row in ordered.builds[0].rows] == ["a", "b", "c", "y"]
    by_file = files(tmp_path, {"y": one, "b": one, "a": one}, got)
    assert [row.name for row in by_file.builds[0].rows] == ["y", "b", "a", "c"]


@settings(max_examples=30)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6), max_size=6
    ),
    st.lists(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6), max_size=6
    ),
    st.permutations(range(3)),
)
def test_every_name_has_one_row_and_stays_in_order(
    tmp_path_factory: pytest.TempPathFactory, left: list[str], right: list[str], turn: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    one = np.ones(1)
    want = dict.fromkeys(["shared", *left], one)
    got = dict.fromkeys(["shared", *right], one)
    order = list(dict.fromkeys([*left, "shared", *right]))[turn[0] :]
    found = files(folder, want, got, order=order)
    rows = [row.name for row in found.builds[0].rows]
    told = {"benchmark_timings_ms"}
    assert sorted(rows) == sorted({*want, *got} - told)
    assert [name for name in rows if name in order] == [n for n in order if n in rows]
    assert {r.name for r in found.builds[0].rows if r.paired} == (want.keys() & got.keys()) - told


@pytest.mark.parametrize("name", NASTY)
def test_any_name_survives_in_rows_csv_and_json(tmp_path: Path, name: str) -> None:
    found = files(tmp_path, {name: np.ones(1)}, {name: np.ones(1)})
    assert [row.name for row in found.builds[0].rows] == [name]
    line = next(iter(csv.DictReader(io.StringIO(found.to_csv()))))
    assert line["name"] == name
    assert json.loads(json.dumps(found.to_json()))["builds"][0]["rows"][0]["name"] == name


def test_several_builds_stand_side_by_side(tmp_path: Path) -> None:
    want = {"h": np.ones(3), "y": np.ones(3)}
    bad = {"h": np.ones(3), "y": np.full(3, 2.0)}
    found = files(tmp_path, want, want, bad)
    assert [build.name for build in found.builds] == ["build0", "build1"]
    assert found.builds[0].falls_off is None
    assert found.builds[1].falls_off is not None
    assert found.builds[1].falls_off.name == "y"


def test_builds_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_npz(tmp_path / folder / "s.npz", {"y": np.ones(1)})
    paths = [tmp_path / "a" / "s.npz", tmp_path / "b" / "s.npz"]
    found = verify(paths[0], paths)
    assert [build.name for build in found.builds] == [
        str(tmp_path / "a" / "s"), str(tmp_path / "b" / "s"),
    ]  # fmt: skip


def test_numbers_that_are_not_finite_are_words_in_json(tmp_path: Path) -> None:
    found = files(tmp_path, {"y": np.ones(1)}, {"y": np.array([np.nan])})
    row = json.loads(json.dumps(found.to_json(), allow_nan=False))["builds"][0]["rows"][0]
    assert (row["mape"], row["snr_db"], row["nonfinite_engine"]) == ("inf", "-inf", 1)


def test_files_that_share_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"shares no tensor.*'h'.*'y'.*one model"):
        files(tmp_path, {"y": np.ones(1)}, {"h": np.ones(1)})
    with pytest.raises(InputError, match="no build to compare"):
        verify(tmp_path / "reference.npz", [])
    with pytest.raises(InputError, match="does not exist"):
        verify(tmp_path / "none.npz", [tmp_path / "build0.npz"])


@pytest.mark.parametrize("meta", [{"order": 5}, {"order": [1, None]}, {"kinds": []}, {}])
def test_odd_notes_of_a_stranger_are_harmless(tmp_path: Path, meta: dict[str, Any]) -> None:
    found = files(tmp_path, {"y": np.ones(1)}, {"y": np.ones(1)}, **meta)
    assert [row.name for row in found.builds[0].rows] == ["y"]


# ------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("mape", "5.1", "4.9"),
        ("mse", "0.0026", "0.0024"),
        ("max_diff", "0.051", "0.049"),
        ("cosine", "0.99", "1.01"),
        ("ulp", "1e15", "10"),
        ("snr_db", "26", "27"),
    ],
)
def test_each_limit_alone(tmp_path: Path, key: str, inside: str, outside: str) -> None:
    found = files(tmp_path, {"y": np.ones(3)}, {"y": np.full(3, 1.05)})
    assert found.exceeded([]) == ()
    assert found.exceeded([Bound.parse(key, inside)]) == ()
    (beyond,) = found.exceeded([Bound.parse(key, outside)])
    assert beyond.row == "y"
    assert beyond.score.flag in str(beyond)


@pytest.mark.parametrize("text", ["5", "y:5", "z:0", "y:5e0"])
def test_a_limit_by_name_stands_over_that_for_all(tmp_path: Path, text: str) -> None:
    found = files(
        tmp_path, dict.fromkeys("yz", np.ones(1)), {"y": np.array([1.06]), "z": np.ones(1)}
    )
    bounds = [Bound.parse("mape", "10"), Bound.parse("mape", text)]
    assert [each.row for each in found.exceeded(bounds)] == ([] if text[0] == "z" else ["y"])


def test_a_row_that_cannot_be_scored_is_beyond_every_limit(tmp_path: Path) -> None:
    found = files(tmp_path, {"y": np.ones(1)}, {"y": np.array([np.nan])})
    assert [e.score.key for e in found.exceeded([Bound(s.key, "", 0.5) for s in SCORES])] == [
        score.key for score in SCORES
    ]


def test_unpaired_rows_are_never_judged(tmp_path: Path) -> None:
    one = np.ones(1)
    found = files(tmp_path, {"y": one, "h": one}, {"y": one, "g": one})
    assert found.exceeded([Bound("mape", "", 0.0)]) == ()


@pytest.mark.parametrize("text", ["", "x", "y:", "nan", "y:nan"])
def test_bad_limits_are_named(text: str) -> None:
    with pytest.raises(InputError, match="--max-mape"):
        Bound.parse("mape", text)


def test_limits_on_unknown_tensors_are_refused(tmp_path: Path) -> None:
    found = files(tmp_path, {"scores": np.ones(1)}, {"scores": np.ones(1)})
    with pytest.raises(InputError, match="'score'.*did you mean 'scores'"):
        found.exceeded([Bound.parse("mape", "score:1")])
