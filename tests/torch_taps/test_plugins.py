"""Plugins: boundaries are tapped without marks, compared where anything tells their value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")

from debugtaps import TapEntry, UsageError, read_npz  # noqa: E402
from support.torch_files import prepared, write_model  # noqa: E402

CUSTOM = """
    from typing import Optional, Sequence
    from torch import Tensor

    @torch.library.custom_op("tapsect_tests::Argsort1D", mutates_args=())
    def argsort1d(x: Tensor, bias: Optional[Tensor] = None, descending: bool = False,
                  scale: float = 1.0, mode: str = "plain",
                  steps: Optional[Sequence[int]] = None) -> tuple[Tensor, Tensor]:
        y = x * scale * steps[1]
        y = y if bias is None else y + bias
        values, indices = torch.sort(y, descending=descending)
        return values.clone(), indices.to(torch.int32)

    @argsort1d.register_fake
    def _(x, bias=None, descending=False, scale=1.0, mode="plain", steps=None):
        return torch.empty_like(x), torch.empty_like(x, dtype=torch.int32)

    class Sort(nn.Module):
        def forward(self, x, bias=None):
            return torch.ops.tapsect_tests.Argsort1D(x, bias, descending=True, scale=0.5,
                                                     steps=[1, 2])

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.sort = nn.Linear(8, 8), Sort()

        def forward(self, x):
            x = torch.tanh(self.linear(x))
            values, indices = self.sort(x)
            values = tap(values, "sorted")
            again, _ = self.sort(values * 2, x)
            return self.linear(again), indices
"""
RANDOM = "torch.randn(4, 8)"


def by_name(taps: tuple[TapEntry, ...]) -> dict[str, TapEntry]:
    return {t.name: t for t in taps}


def test_an_operator_written_in_python_becomes_rows(tmp_path: Path) -> None:
    found = prepared(write_model(tmp_path, CUSTOM, args=RANDOM), "sorted", plugin_taps=True)
    taps, reference = by_name(found.manifest.taps), read_npz(found.reference)
    assert set(taps) == {
        "sorted",
        "sort/Argsort1D__in0", "sort/Argsort1D__out0", "sort/Argsort1D__out1",
        "sort/Argsort1D_1__in0", "sort/Argsort1D_1__in1",
        "sort/Argsort1D_1__out0", "sort/Argsort1D_1__out1",
    }  # fmt: skip
    assert {t.reference for t in found.manifest.taps} == {"torch"}
    assert found.uncompared == ()
    np.testing.assert_array_equal(reference["sorted"], reference["sort/Argsort1D__out0"])
    expected = -np.sort(-reference["sort/Argsort1D__in0"], axis=-1)
    np.testing.assert_allclose(reference["sort/Argsort1D__out0"], expected, rtol=1e-6)
    model = onnx.load(found.onnx)
    node = next(n for n in model.graph.node if n.domain == "tapsect_tests")
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert given == {"descending": 1, "scale": 0.5, "steps": [1, 2], "mode": b"plain"}
    assert any("exported as a node tapsect_tests::Argsort1D" in n for n in found.notes)


WRAPPED = """
    import onnx
    import onnxscript
    from torch import Tensor
    from onnxscript import opset18 as op

    @torch.library.custom_op("tapsect_tests::flip", mutates_args=())
    def flip(x: Tensor) -> Tensor:
        return x.flip(-1).clone()

    @flip.register_fake
    def _(x):
        return torch.empty_like(x)

    F = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        "Flip", "{domain}", 1, inputs=[F("x", "T")], outputs=[F("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")])
    Flip = onnxscript.values.Op(onnxscript.values.Opset("{domain}", 1), "Flip", op_schema=schema)

    class Model(nn.Module):
        def forward(self, x):
            return torch.ops.tapsect_tests.flip(x * 2) + 1

    def onnx_translations():
        return {{torch.ops.tapsect_tests.flip:
                lambda x: op.Mul(Flip(op.Mul(x, op.Constant(value_float=3.0))),
                                 op.Constant(value_float=1 / 3))}}

    def reference(x):
        return x[..., ::-1]

    def broken(x):
        raise ValueError("not today")
"""


def test_a_plugin_inside_a_translation_is_recomputed(tmp_path: Path) -> None:
    """Its tensors have no torch value: what enters is computed, what leaves by a function."""
    model = write_model(tmp_path, WRAPPED.format(domain="trt.plugins"), args=RANDOM)
    given = f"trt.plugins::Flip={model}:reference"
    found = prepared(model, plugin_taps=True, plugin_references=[given])
    taps, reference = by_name(found.manifest.taps), read_npz(found.reference)
    assert taps["Flip__in0"].reference == "onnxruntime"
    assert taps["Flip__out0"].reference == "torch-op"
    np.testing.assert_array_equal(reference["Flip__out0"], reference["Flip__in0"][:, ::-1])

    bare = prepared(model, plugin_taps=True)
    assert [name for name, _ in bare.uncompared] == ["Flip__out0"]
    assert bare.uncompared[0][1] == (
        "trt.plugins::Flip: ONNX Runtime has no such operator; tell what it computes with "
        "--plugin-reference trt.plugins::Flip=module:function"
    )
    assert "Flip__out0" not in read_npz(bare.reference)
    assert "Flip__out0" in [v.name for v in onnx.load(bare.onnx).graph.output]


def test_a_reference_that_raises_is_a_reason(tmp_path: Path) -> None:
    model = write_model(tmp_path, WRAPPED.format(domain="trt.plugins"), args=RANDOM)
    found = prepared(
        model, plugin_taps=True, plugin_references=[f"trt.plugins::Flip={model}:broken"]
    )
    assert "its reference raised ValueError: not today" in found.uncompared[0][1]


def test_a_standard_operator_can_count_as_one(tmp_path: Path) -> None:
    body = """
    class Model(nn.Module):
        def forward(self, x):
            return torch.relu(x) * 2
    """
    model = write_model(tmp_path, body)
    found = prepared(model, plugin_ops=["Relu"])
    assert list(by_name(found.manifest.taps)) == ["Relu__in0", "Relu__out0"]
    with pytest.raises(UsageError, match="plugin operator 'Rellu' is not in the model; it has"):
        prepared(model, plugin_ops=["Rellu"])
    assert prepared(model, plugin_taps=True).manifest.taps == ()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a::B", "not of the form"),
        ("a::B=module", "not of the form"),
        ("a::B=no_such_module:f", "no module 'no_such_module'"),
        ("a::B=no/such/file.py:f", "does not exist"),
        ("a::B=math:nothing", r"math has no function nothing\(\)"),
    ],
)
def test_a_reference_that_names_nothing(tmp_path: Path, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepared(write_model(tmp_path, "Model = nn.Identity()"), plugin_references=[word])
