"""What of ONNX Runtime can be turned: its graph passes by name, and what else changes arithmetic.

Python 3.8 and onnxruntime only: the worker runs this under any interpreter.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

import onnxruntime as ort

# Rules of the rule-based passes: no version logs their names, and unknown ones do nothing.
RULES = """
EliminateIdentity EliminateSlice EliminateDropout UnsqueezeElimination ExpandElimination
CastElimination CastChainElimination NoopElimination PreShapeNodeElimination DivMulFusion
FuseReluClip GemmSumFusion GemmTransposeFusion NotWhereFusion ConvAddFusion ConvMulFusion
ConvBNFusion Pad_Fusion PadFusion MatMul_BatchNormalization_Fusion LabelEncoderFusion
ClipQuantRewrite ReluQuantRewrite
"""
# The passes of ONNX Runtime 1.16, which does not log them.
PASSES = """
ConstantFolding ConstantSharing CommonSubexpressionElimination MatMulAddFusion ReshapeFusion
DoubleQDQPairsRemover QDQPropagationTransformer EnsureUniqueDQForNodeUnit TransposeOptimizer
QDQSelectorActionTransformer QDQS8ToU8Transformer QDQFinalCleanupTransformer
GemmActivationFusion ConvActivationFusion ConvAddActivationFusion MatMulIntegerToFloatFusion
DynamicQuantizeMatMulFusion GeluFusion LayerNormFusion SimplifiedLayerNormFusion AttentionFusion
EmbedLayerNormFusion GatherToSplitFusion GatherToSliceFusion MatmulTransposeFusion BiasGeluFusion
SkipLayerNormFusion BiasSkipLayerNormFusion FastGeluFusion QuickGeluFusion BiasSoftmaxFusion
BiasDropoutFusion MatMulScaleFusion MatMulActivationFusion NchwcTransformer NhwcTransformer
"""
# Cannot be left out: copies between devices, casts for missing kernels, given dimensions.
ALWAYS = ("MemcpyTransformer", "CastFloat16Transformer", "FreeDimensionOverrideTransformer")

# y = Identity(x), opset 13: enough for ONNX Runtime to go through its passes and name them.
IDENTITY = (
    b'\x08\x07:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01'
    b"\x12\x04\n\x02\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)


def knobs() -> dict[str, Any]:
    """Returns the options that can be turned, those that change least first."""
    return {
        "disabled_optimizers": {"any": passes() + RULES.split()},
        "intra_op_num_threads": [1],
        "enable_mem_pattern": [False],
        "enable_cpu_mem_arena": [False],
        "session.disable_prepacking": ["1"],
        "session.disable_quant_qdq": ["1"],
        "session.disable_aot_function_inlining": ["1"],
        "session.set_denormal_as_zero": ["1"],
        "mlas.enable_gemm_fastmath_arm64_bfloat16": ["0"],
        "graph_optimization_level": ["disable", "basic", "extended"],
    }


def passes() -> list[str]:
    """Returns the names of the graph passes, as this ONNX Runtime logs them itself."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 1, 1
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)  # the log goes to the stream of C, whatever sys.stderr is
        try:
            os.dup2(log.fileno(), 2)
            ort.InferenceSession(IDENTITY, options, providers=["CPUExecutionProvider"])
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        text = log.read().decode("utf-8", "replace")
    named = re.findall(r"GraphTransformer (\w+) modified", text)
    found = [n for n in dict.fromkeys(named) if n not in ALWAYS and "RuleBased" not in n]
    return found or PASSES.split()
