"""The same network, exported with a wrong rule for ``elu``."""

import torch
from model import Model, get_fwd_args
from onnxscript import opset18 as op

__all__ = ["Model", "get_fwd_args", "onnx_translations"]


def onnx_translations():
    """Returns rules of the export; this one takes ``elu`` for a leaky ReLU."""
    return {
        torch.ops.aten.elu.default: lambda x, alpha=1.0, scale=1.0, input_scale=1.0: op.LeakyRelu(
            x, alpha=0.5
        )
    }
