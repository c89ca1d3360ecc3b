"""Contractions that read 11 bits of their operands: bit for bit what a tensor core reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from debugtaps import Array, Host, resolve
from support.build import Net
from support.replaying import engine_values, reference_of
from support.tf32_engine import in_tf32
from support.zoo import transformer
from tapsect.replay.alone import MODES, explains, read
from tapsect.replay.regions import Replay

NODE = "layer0/attention/MatMul_1"


def eleven_bits(values: Array, *, cut: bool) -> Array:
    bits = values.view(np.uint32)
    if not cut:
        bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.asarray((bits & np.uint32(0xFFFFE000)).view(np.float32))


@pytest.mark.parametrize("cut", MODES)
def test_each_operand_is_rounded_as_a_tensor_core_reads_it(cut: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((n, n)).astype(np.float32) for n in (8, 8))
    net = Net()
    net.output(net.op("MatMul", net.input("x", x.shape, x), net.const(w)))
    model = net.build().model
    assert read(model, cut)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": x})
    wanted = [eleven_bits(v, cut=c).astype(np.float64) for v, c in zip((x, w), cut, strict=True)]
    np.testing.assert_allclose(answer, wanted[0] @ wanted[1], rtol=0, atol=2e-6)


def test_a_model_without_contractions_reads_as_before() -> None:
    net = Net()
    net.output(net.op("Tanh", net.input("x", (2, 2))))
    assert not read(net.build().model, (False, False))


def test_an_error_is_explained_by_one_that_is_the_same() -> None:
    rng = np.random.default_rng(0)
    y, error, other = (rng.standard_normal(100) for _ in range(3))
    assert explains(y + error, y, y + 0.8 * error)
    assert not explains(y + error, y, y + other)
    assert not explains(y + error, y, y)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(resolve("ort-reference", {})) as running:
        yield running


@pytest.mark.parametrize("truncate", [False, True])
def test_the_replay_knows_one_contraction_in_tf32(
    truncate: bool, host: Host, tmp_path: Path
) -> None:
    """Its error alone is put down to the kernel; the same size at random is a fault."""
    built = transformer(1)
    reference = reference_of(built, host, tmp_path)
    plain = engine_values(reference, built.feeds)
    node = next(n for n in built.model.graph.node if n.name == NODE)
    (name,) = node.output
    built.model.graph.output.add(name=name)
    coarse = in_tf32(built.model, [NODE], truncate).SerializeToString()
    session = ort.InferenceSession(coarse, providers=["CPUExecutionProvider"])
    (tensor,) = session.run([name], built.feeds)
    error = tensor - plain[name]
    found, classes = Replay(reference, built.feeds, {**plain, name: tensor}).judge()
    assert classes.contraction == 0.0
    assert (found[name].kind, found[name].alone) == ("ok", True)
    other = plain[name] + np.random.default_rng(0).permutation(error.ravel()).reshape(error.shape)
    found, _ = Replay(reference, built.feeds, {**plain, name: other}).judge()
    assert (found[name].kind, found[name].alone) == ("accuracy", False)
