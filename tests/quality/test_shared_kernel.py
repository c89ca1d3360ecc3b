"""A kernel that engine and reference share: only a second leg can see its fault."""

from pathlib import Path

import numpy as np
import pytest

from debugtaps import write_npz
from support.build import Net
from tapsect import bisect


def test_a_wrong_kernel_of_the_reference_itself_is_suspected(tmp_path: Path) -> None:
    """ONNX Runtime computes Elu as exp(x) - 1, which loses small numbers; the truth does not."""
    x = np.linspace(-3e-6, -1e-6, 24, dtype=np.float32).reshape(2, 12)
    net = Net()
    root = net.op("Identity", net.input("x", x.shape, x))
    net.output(net.op("Mul", net.op("Elu", root), net.const(1e5)))
    built = net.build()
    model, inputs = built.save(tmp_path)
    truth = np.expm1(x.astype(np.float64)) * 1e5
    golden = tmp_path / "golden.npz"
    write_npz(golden, {built.model.graph.output[0].name: truth.astype(np.float32)})
    finding = bisect(model, inputs=[inputs], reference=golden, out=tmp_path / "out")
    if finding.status == "agrees":
        pytest.skip("this ONNX Runtime has the fault no more")
    assert (finding.status, finding.cause) == ("diverges", "reference_suspect"), finding.message
    assert finding.first_divergence is not None
    assert finding.first_divergence.op_type == "Elu"
    assert finding.exit_code == 1


def test_an_unread_output_that_is_defined_otherwise_explains_nothing(tmp_path: Path) -> None:
    """Of an old Dropout, ONNX Runtime fills the mask with False; the definition says True."""
    net = Net(opset=9)
    kept, _ = net.multi("Dropout", net.linear(net.input("x", (4, 16)), 16, 16), outputs=2)
    net.output(net.op("Tanh", kept))
    built = net.build()
    model, inputs = built.save(tmp_path)
    name = built.model.graph.output[0].name
    golden = tmp_path / "golden.npz"
    other = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    write_npz(golden, {name: np.tanh(other)})  # what neither of the two computes
    finding = bisect(model, inputs=[inputs], reference=golden, out=tmp_path / "out")
    assert (finding.status, finding.cause) == ("inconclusive", None), finding.message
    assert not finding.culprit_nodes
