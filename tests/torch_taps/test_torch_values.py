"""torch as reference for everything: each tensor of the export has a value, and it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from debugtaps import UsageError, load_graph, load_sources, open_torch_model, torch_values  # noqa: E402
from debugtaps.engines.host import Host  # noqa: E402
from debugtaps.engines.registry import resolve  # noqa: E402
from debugtaps.recompute import recompute  # noqa: E402
from support.torch_files import write_model  # noqa: E402

MODELS = {
    "cnn": """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), Tap("relu"),
                nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.GELU(),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

        def forward(self, x):
            return torch.softmax(self.net(x), -1)

    def get_fwd_args():
        return (torch.randn(1, 3, 16, 16),)
    """,
    "transformer": """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2,
                enable_nested_tensor=False)

        def forward(self, x):
            y = self.net(x)[None]
            return nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)

    def get_fwd_args():
        return (torch.randn(2, 5, 16),)
    """,
    "recurrent": """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.LSTM(8, 8, num_layers=2, batch_first=True)
            self.b = nn.GRU(8, 4, bidirectional=True, batch_first=True)

        def forward(self, x):
            return self.b(self.a(x)[0])[0].topk(3).values

    def get_fwd_args():
        return (torch.randn(2, 5, 8),)
    """,
}


@pytest.mark.parametrize(
    ("name", "least"), [("cnn", 0.7), ("transformer", 0.5), ("recurrent", 0.2)]
)
def test_every_tensor_has_a_right_value(tmp_path: Path, name: str, least: float) -> None:
    model = open_torch_model(write_model(tmp_path, MODELS[name]))
    path = model.export(tmp_path / "build")
    found = model.values()
    assert found.missing == {}
    assert found.mapped >= least * found.total
    graph = load_graph(path, tmp_path / "work")
    made = [t for n in graph.nodes for t in n.writes]
    with Host(resolve("ort-reference")) as host:
        plain = recompute(graph, model.feeds, made, host).values
    for tensor in made:
        np.testing.assert_allclose(
            found.values[tensor], plain[tensor], rtol=1e-3, atol=1e-4, err_msg=tensor
        )
    for output, value in model.outputs.items():
        np.testing.assert_allclose(found.values[output], value, rtol=1e-4, atol=1e-5)
    lines = load_sources(path)
    assert {s.line.partition(":")[0] for s in lines.values() if s.line} == {"model.py"}
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_an_export_that_is_wrong_keeps_torchs_values(tmp_path: Path) -> None:
    body = """
    from onnxscript import opset18 as op

    class Model(nn.Module):
        def forward(self, x):
            return tap(torch.relu(x + 1), "r") * 2

    def onnx_translations():
        return {torch.ops.aten.relu.default: lambda x: op.Sigmoid(x)}
    """
    model = open_torch_model(write_model(tmp_path, body, args="torch.randn(4, 8)"))
    with pytest.raises(UsageError, match="export the model first"):
        _ = model.outputs
    path = model.export(tmp_path)
    values: dict[str, Any] = dict(model.values().values)
    (feed,) = model.feeds.values()
    np.testing.assert_array_equal(values[model.taps["r"]], np.maximum(feed + 1, 0))
    graph = load_graph(path, tmp_path / "work")
    wrong = graph.nodes[graph.producer[model.taps["r"]]]
    assert wrong.op == "Sigmoid"
    assert model.sources[model.taps["r"]].line == "model.py:10"
    assert model.boundaries == {}


def test_a_program_of_ones_own_is_enough() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).eval()
    x = torch.randn(2, 4)
    program = torch.onnx.export(net, (x,), dynamo=True, verbose=False)
    found = torch_values(program, (x,))
    assert (found.mapped, found.total, found.missing) == (2, 2, {})
    np.testing.assert_array_equal(found.values["tanh"], net(x).detach().numpy())
