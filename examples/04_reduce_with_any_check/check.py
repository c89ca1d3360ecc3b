"""Exits with 1 when an output of the model is not a number."""

import sys

import numpy as np
import onnxruntime

model, inputs = sys.argv[1:3]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
feeds = dict(np.load(inputs))
wanted = {each.name for each in session.get_inputs()}
outputs = session.run(None, {name: value for name, value in feeds.items() if name in wanted})
sys.exit(1 if any(np.isnan(value).any() for value in outputs) else 0)
