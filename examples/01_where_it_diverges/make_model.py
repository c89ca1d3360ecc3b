"""Writes the small network of a published fault of ONNX Runtime, and an input for it."""

from debugtaps import write_npz
from tapsect.published_faults import layernorm_keepdims0

model, feeds = layernorm_keepdims0()
with open("model.onnx", "wb") as file:
    file.write(model.SerializeToString())
write_npz("inputs.npz", feeds)
