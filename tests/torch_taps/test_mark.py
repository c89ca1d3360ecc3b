"""``tap`` gives back what it was given, wherever it stands; observed, it remembers."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from debugtaps import Tap, TapError, mark, tap  # noqa: E402
from debugtaps.recording import Recorder, observing  # noqa: E402
from debugtaps.torch_arrays import from_numpy, to_numpy  # noqa: E402

X = torch.arange(12.0).reshape(3, 4)


def observe(function: Any, *args: Any) -> Recorder:
    recorder = Recorder()
    with observing(recorder):
        function(*args)
    return recorder


def test_off_it_is_the_input_and_looks_at_nothing() -> None:
    assert mark.observer is None
    for value in (X, "text", None, [X], 3):
        assert tap(value, "") is value


def test_on_it_is_the_input_too() -> None:
    def check() -> None:
        assert tap(X, "a") is X
        pair = (X, [X])
        assert tap(pair, "b") is pair

    assert observe(check).names == ["a", "b.0", "b.1.0"]
    assert mark.observer is None


@pytest.mark.parametrize(
    "dtype",
    [
        "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8",
        "uint8", "int64", "bool", "complex64",
    ],
)  # fmt: skip
def test_every_type_is_kept_bit_for_bit(dtype: str) -> None:
    x = X.to(getattr(torch, dtype))
    value = to_numpy(observe(tap, x, "t").values["t"])
    if dtype == "complex64":
        assert value.shape == (3, 4, 2)
        return
    assert value.dtype.name == dtype
    assert from_numpy(value).view(torch.uint8).equal(x.view(torch.uint8))


def test_every_memory_format_is_kept() -> None:
    image = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    for x in (image, X.t(), X[:, ::2], X.new_empty(0, 3), X.sum()):
        kept = observe(tap, x, "t").values["t"]
        assert kept.equal(x)
        assert to_numpy(kept).shape == tuple(x.shape)
    assert observe(tap, image, "t").values["t"].is_contiguous(memory_format=torch.channels_last)


def test_what_happens_in_place_afterwards_does_not_reach_it() -> None:
    def forward(x: Any) -> None:
        tap(x, "before").relu_()

    assert observe(forward, -X).values["before"].equal(-X)


def test_gradients_are_those_without() -> None:
    def gradient() -> Any:
        x = X.clone().requires_grad_()
        (tap(x * 2, "m") ** 2).sum().backward()
        return x.grad

    plain, grads = gradient(), []
    recorder = observe(lambda: grads.append(gradient()))
    assert grads[0].equal(plain)
    assert recorder.values["m"].equal(X * 2)
    assert not recorder.values["m"].requires_grad


def test_a_tap_module_is_a_layer() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), Tap("hidden"), torch.nn.ReLU())
    assert isinstance(net[1], Tap)
    assert "Tap('hidden')" in repr(net)
    for one in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        recorder = observe(one, X)
        assert recorder.values["hidden"].equal(net[0](X))
        assert Path(__file__).name in recorder.places["hidden"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_runs_whole_and_is_recorded(backend: str) -> None:
    compiled = torch.compile(lambda x: tap(x * 2, "c") + 1, backend=backend, fullgraph=True)
    off = compiled(X)
    recorder = Recorder()
    with observing(recorder):
        assert compiled(X).equal(off)
    assert recorder.values["c"].equal(X * 2)
    assert compiled(X).equal(off)


def test_exported_programs_forget_it_when_off() -> None:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return tap(x * 2, "t") + 1

    for strict in (False, True):
        graph = torch.export.export(Net(), (X,), strict=strict).graph
        assert "tap" not in str(graph)


def test_a_repeated_name_tells_both_places() -> None:
    def twice() -> None:
        tap(X, "h")
        tap(X, "h")

    line = twice.__code__.co_firstlineno
    with pytest.raises(TapError, match=rf"'h' is used at .*:{line + 1} and at .*:{line + 2}"):
        observe(twice)
    with pytest.raises(TapError, match=r"twice at .* \(a loop, or a module .*more than once\)"):
        observe(lambda: [tap(X, "h") for _ in range(2)])


@pytest.mark.parametrize(
    ("value", "name", "said"),
    [
        ("text", "n", "tap 'n' got a value of type str; a tap takes a tensor"),
        (3, "n", "tap 'n' got a value of type int"),
        ({"a": 1}, "n", "tap 'n' got a dict without tensors"),
        (X, "", "a tap is named ''"),
        (X, 3, "a tap is named 3"),
        (X, "a\0b", "name it with text"),
        (X, "benchmark_timings_ms", "holds the timings"),
    ],
)
def test_what_is_no_tap_is_an_error_that_names_the_line(value: Any, name: Any, said: str) -> None:
    with pytest.raises(TapError, match=said) as caught:
        observe(tap, value, name)
    assert Path(__file__).name in str(caught.value)


def test_dictionaries_are_named_by_key() -> None:
    assert observe(tap, {"a": X, "b": (X, None)}, "d").parts == {"d": ["d.a", "d.b.0"]}


def test_values_that_no_output_can_show_are_refused_with_a_mend() -> None:
    assert "tap the result of vmap" in observe(torch.vmap(lambda x: tap(x, "v")), X).refused["v"]
    assert "x.to_dense()" in observe(tap, X.to_sparse(), "s").refused["s"]
    quantized = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    assert "x.dequantize()" in observe(tap, quantized, "q").refused["q"]
    assert observe(torch.func.grad(lambda x: tap(x, "g").sum()), X).names == ["g"]
