"""The replay: what an operator introduced, at which precision it is judged, what it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from debugtaps import Array, Host, resolve
from support.build import Built, Net
from support.replaying import engine_values, reference_of
from support.zoo import ZOO, transformer
from tapsect.replay import measuring
from tapsect.replay.regions import Classes, Judgement, Replay
from tapsect.rounding.outputs import Measured


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("ort-reference", {})) as running:
        yield running


def judged(
    built: Built, host: Host, folder: Path, change: dict[str, Array] | None = None, *,
    errors: dict[str, float] | None = None, stated: float | None = None,
    largest: float | None = None,
) -> dict[str, Judgement]:  # fmt: skip
    """Returns the judgements of an engine with these errors, and these values changed."""
    reference = reference_of(built, host, folder, stated=stated, largest=largest)
    values = engine_values(reference, built.feeds, errors) | (change or {})
    return Replay(reference, built.feeds, values).judge()[0]


def suspects(found: dict[str, Judgement]) -> list[str]:
    return [t for t, j in found.items() if j.suspect]


@pytest.mark.parametrize("name", ["transformer", "residual", "u_shaped", "recurrent", "branching"])
def test_a_planted_error_shows_at_exactly_its_node(name: str, host: Host, tmp_path: Path) -> None:
    built = ZOO[name]()
    reference = reference_of(built, host, tmp_path)
    inner = [t for t in reference.topology.tappable if t in reference.topology.noisy]
    wrong = inner[len(inner) // 2]
    found = judged(built, host, tmp_path / "again", errors={wrong: 0.05})
    assert suspects(found) == [wrong]
    assert found[wrong].introduced == pytest.approx(0.05, rel=1e-3)
    assert abs(found[wrong].corr) > 0.99
    assert len(found[wrong].region) == 1


def test_without_a_tap_the_region_is_blamed_whole(host: Host, tmp_path: Path) -> None:
    net = Net()
    x = net.op("Tanh", net.input("x", (4, 16)))
    y = net.op("Sigmoid", net.op("Mul", x, net.const(2.0)))
    net.output(net.op("Neg", y))
    built = net.build()
    reference = reference_of(built, host, tmp_path)
    values = engine_values(reference, built.feeds, {y: 0.05})
    values.pop(x)
    found, _ = Replay(reference, built.feeds, values, uncut=["Mul_output_0"]).judge()
    assert suspects(found) == [y]
    assert len(found[y].region) == 3


def rounded(values: dict[str, Array], bits: int) -> dict[str, Array]:
    """Returns float32 values with that many low bits cleared, rounded to nearest."""
    half = np.uint32(1 << (bits - 1))
    mask = np.uint32(0xFFFFFFFF ^ ((1 << bits) - 1))
    return {
        t: ((v.view(np.uint32) + half) & mask).view(np.float32) if v.dtype == np.float32 else v
        for t, v in values.items()
    }


@pytest.mark.parametrize(("bits", "u"), [(13, 2.0**-11), (16, 2.0**-8)])
def test_the_precision_of_stored_tensors_is_read_off_their_bits(
    bits: int, u: float, host: Host, tmp_path: Path
) -> None:
    built = transformer(1)
    reference = reference_of(built, host, tmp_path)
    values = rounded(engine_values(reference, built.feeds), bits)
    found, classes = Replay(reference, built.feeds, values).judge()
    assert classes == Classes(u, u)
    name = {2.0**-11: "fp16", 2.0**-8: "bf16"}[u]
    assert classes.named(2.0**-24) == {"contractions": name, "the rest": name}
    assert suspects(found) == []


@pytest.mark.parametrize("u", [2.0**-11, 2.0**-8])
def test_contractions_alone_name_their_precision(u: float, host: Host, tmp_path: Path) -> None:
    """TF32 and OpenVINO's bf16 lower contractions only, and store float32."""
    built = transformer(2)
    reference = reference_of(built, host, tmp_path)
    rng = np.random.default_rng(0)
    errors = {
        t: 0.5 * u * rng.standard_normal(y.shape)
        for t, y in engine_values(reference, built.feeds).items()
        if reference.graph.nodes[reference.graph.producer[t]].op == "MatMul"
    }
    values = engine_values(reference, built.feeds, errors)
    found, classes = Replay(reference, built.feeds, values).judge()
    assert classes == Classes(contraction=u, rest=0.0)
    name = {2.0**-11: "tf32", 2.0**-8: "bf16"}[u]
    assert classes.named(2.0**-24) == {"contractions": name, "the rest": "fp32"}
    assert suspects(found) == []


@pytest.mark.parametrize("stated", ["tf32", "fp16"])
def test_a_precision_that_was_asked_for_keeps_its_name(stated: str) -> None:
    named = Classes(0.0, 0.0, half=False).named(2.0**-11, stated)
    assert named == {"contractions": stated, "the rest": stated}
    assert Classes(0.0, 0.0).named(2.0**-11)["the rest"] == "fp16"  # the model's own type


def test_one_wrong_operator_is_no_precision(host: Host, tmp_path: Path) -> None:
    built = transformer(1)
    reference = reference_of(built, host, tmp_path)
    wrong = next(n.writes[0] for n in reference.graph.nodes if n.op == "MatMul")
    values = engine_values(reference, built.feeds)
    noise = np.random.default_rng(0).standard_normal(values[wrong].shape)
    values[wrong] = (values[wrong] * (1 + 1e-3 * noise)).astype(np.float32)
    found, classes = Replay(reference, built.feeds, values).judge()
    assert classes == Classes(0.0, 0.0)
    assert wrong in suspects(found)


# -- values that are not smooth -----------------------------------------------------------------


def test_equal_infinities_agree_and_a_lost_one_does_not(host: Host, tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (1, 4), [[0.0, 1.0, 2.0, 0.0]])
    y = net.op("Reciprocal", x)
    net.output(net.op("Atan", y))
    built = net.build()
    assert suspects(judged(built, host, tmp_path / "a")) == []
    lost = {y: np.array([[np.inf, 1.0, 0.5, 3.0]], np.float32)}
    found = judged(built, host, tmp_path / "b", lost)[y]
    assert (found.kind, found.ratio, found.overflow) == ("nonfinite", float("inf"), False)


def test_a_lost_nan_is_a_suspect(host: Host, tmp_path: Path) -> None:
    net = Net()
    y = net.op("Sqrt", net.input("x", (1, 3), [[-1.0, 4.0, 9.0]]))
    net.output(net.op("Relu", y))
    found = judged(net.build(), host, tmp_path, {y: np.array([[0.0, 2.0, 3.0]], np.float32)})
    assert found[y].kind == "nonfinite"


def test_infinity_beyond_the_stated_range_is_an_overflow(host: Host, tmp_path: Path) -> None:
    net = Net()
    y = net.op("Exp", net.input("x", (1, 3), [[1.0, 12.0, 2.0]]))
    net.output(net.op("Atan", y))
    value = np.exp(np.array([[1.0, 12.0, 2.0]], np.float32))
    value[0, 1] = np.inf
    found = judged(net.build(), host, tmp_path, {y: value}, stated=2.0**-11, largest=65504.0)
    assert found[y].overflow


def argmax(values: list[list[float]]) -> tuple[Built, str]:
    net = Net()
    x = net.op("Identity", net.input("x", (len(values), len(values[0])), values))
    best = net.op("ArgMax", x, axis=1, keepdims=0)
    net.output(best, dtype=np.int64, shape=(len(values),))
    return net.build(), best


@pytest.mark.parametrize(
    ("row", "index", "kind"),
    [
        ([1.0, 1.0 + 2**-23, 0.0], 0, "ok"),  # within rounding of the winner
        ([1.0, 1.1, 0.0], 0, "discrete"),
        ([0.5, 2.0, 2.0], 2, "discrete"),  # an exact tie goes to the lower index by definition
    ],
)
def test_an_index_is_explained_by_rounding_or_by_the_definition(
    row: list[float], index: int, kind: str, host: Host, tmp_path: Path
) -> None:
    built, best = argmax([row])
    found = judged(built, host, tmp_path, {best: np.array([index], np.int64)})
    assert found[best].kind == kind


def test_a_shape_that_noise_changes_is_explained(host: Host, tmp_path: Path) -> None:
    net = Net()
    x = net.op("Mul", net.input("x", (1, 4), [[1.0, 0.5, 2.0, -1.0]]), net.const(1.0))
    over = net.op("Greater", x, net.const(0.5))
    where = net.op("NonZero", over)
    net.output(where, dtype=np.int64, shape=(2, "n"))
    built = net.build()
    near = {where: np.array([[0, 0, 0], [0, 1, 2]], np.int64)}
    assert judged(built, host, tmp_path / "a", near)[where].kind == "ok"
    far = {where: np.array([[0, 0, 0, 0], [0, 1, 2, 3]], np.int64)}
    steady = Net()
    x = steady.op("Mul", steady.input("x", (1, 4), [[1.0, 0.1, 2.0, -1.0]]), steady.const(1.0))
    where = steady.op("NonZero", steady.op("Greater", x, steady.const(0.5)))
    steady.output(where, dtype=np.int64, shape=(2, "n"))
    assert judged(steady.build(), host, tmp_path / "b", far)[where].kind == "wrong_shape"


def test_flushed_subnormals_are_no_fault(host: Host, tmp_path: Path) -> None:
    net = Net()
    rng = np.random.default_rng(0)
    y = net.op("Relu", net.input("x", (4, 64), 1e-40 * rng.random((4, 64))))
    net.output(net.op("Neg", y))
    flushed = {t: np.zeros((4, 64), np.float32) for t in (y, "Neg_output_0")}
    assert suspects(judged(net.build(), host, tmp_path, flushed)) == []


# -- operators that cannot be judged ------------------------------------------------------------


def test_random_numbers_of_another_stream_are_not_judged(host: Host, tmp_path: Path) -> None:
    built = ZOO["dropout_and_random"]()
    reference = reference_of(built, host, tmp_path)
    values = engine_values(reference, built.feeds)
    drawn = next(n.writes[0] for n in reference.graph.nodes if n.op == "RandomNormalLike")
    assert Replay(reference, built.feeds, values).judge()[0][drawn].kind == "ok"
    values[drawn] = values[drawn][::-1].copy()
    found, _ = Replay(reference, built.feeds, values).judge([drawn])
    assert found[drawn].kind == "not_judged"


def test_a_wrong_type_or_shape_is_a_suspect(host: Host, tmp_path: Path) -> None:
    net = Net()
    y = net.op("Relu", net.input("x", (2, 3)))
    net.output(net.op("Neg", y))
    built = net.build()
    shaped = judged(built, host, tmp_path / "a", {y: np.zeros((3, 2), np.float32)})
    assert shaped[y].kind == "wrong_shape"
    typed = judged(built, host, tmp_path / "b", {y: np.zeros((2, 3), np.int32)})
    assert typed[y].kind == "wrong_dtype"


@pytest.mark.parametrize("stated", [None, 2.0**-8])
def test_a_suspect_is_held_against_float64(
    stated: float | None, host: Host, tmp_path: Path
) -> None:
    """ONNX Runtime's own Sigmoid is 0 at -18: an engine that is right there is no suspect."""
    net = Net()
    x = np.random.default_rng(0).uniform(-40, -18, (4, 256)).astype(np.float32)
    y = net.op("Sigmoid", net.op("Identity", net.input("x", x.shape, x)))
    net.output(net.op("Log", y))
    right = {y: (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)}
    found = judged(net.build(), host, tmp_path, right, stated=stated)
    assert suspects(found) == ["Log_output_0"]


def test_windows_bound_what_is_held_and_change_no_judgement(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = ZOO["transformer"]()
    reference = reference_of(built, host, tmp_path)
    wrong = reference.topology.tappable[20]
    values = engine_values(reference, built.feeds, {wrong: 0.05})
    whole, _ = Replay(reference, built.feeds, values).judge()
    most = 40 * max(value.nbytes for value in values.values())
    monkeypatch.setattr(measuring, "WINDOW_BYTES", most)
    held = []

    class Watched(Replay):
        def _session(self, names: Sequence[str], level: float, samples: int) -> Measured:
            held.append(sum(6 * values[t].nbytes for t in names))
            return super()._session(names, level, samples)

    found, _ = Watched(reference, built.feeds, values).judge()
    assert {t: j.kind for t, j in found.items()} == {t: j.kind for t, j in whole.items()}
    assert suspects(found) == [wrong]
    assert len(held) > 3
    assert max(held) <= most
