"""What TensorRT logs: plans in both layouts, an inspector's JSON, errors.

The plans and the errors were logged by TensorRT-RTX 1.4.0 and 1.7.1 for the network
``conv0 → relu0 → "we]ird | n (X)" → Relu → last``; long lists are cut.  The table of tactics
follows the layout that TensorRT's own samples print.
"""

import json

NEW_PLAN = (
    "Layers:\n"
    "Name: __myl_Move_myl0_0, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [1,8,16,16], "
    "Strides: [2048,256,16,1], StrideOrder: [3,2,1,0], Datatype: Float, Format: (Linear) Row major "
    "linear format }], Constants: [], Outputs: [ { Name: r0.1_2_myl0, Dimensions: [1,8,16,16], "
    "Strides: [2048,1,128,8], StrideOrder: [3,0,2,1], Datatype: Float, Format: (NHWC) Channel "
    "major format }], TacticName: __myl_Move_0x3ea98178ef1cd51b696fba1502422510, StreamId: 0, "
    "Metadata: \n"
    "Name: conv0_myl0_1, LayerType: correlation, Inputs: [ { Name: r0.1_2_myl0, Dimensions: "
    "[1,8,16,16], Strides: [2048,1,128,8], StrideOrder: [3,0,2,1], Datatype: Float, Format: (NHWC) "
    "Channel major format }], Constants: [ { Name: __mye92dconst_myl0, Dimensions: [8,8,3,3], "
    "Strides: [72,1,24,8], StrideOrder: [3,0,2,1], Datatype: Half, Format: (NHWC) Channel major "
    "format }, { Name: __mye121_const_myl0, Dimensions: [1], Strides: [1], StrideOrder: [0], "
    "Datatype: Float, Format: (Linear) Row major linear format }], Outputs: [ { Name: r1.1_3_myl0, "
    "Dimensions: [1,8,16,16], Strides: [2048,1,128,8], StrideOrder: [3,0,2,1], Datatype: Float, "
    "Format: (NHWC) Channel major format }], TacticName: __myelin_CASK_STUB, StreamId: 0, "
    "Metadata: [ONNX Layer: conv0]\x1f[ONNX Layer: relu0]\n"
    "Name: last, odd_myl0_2, LayerType: kgen, Inputs: [ { Name: r1.1_3_myl0, Dimensions: [1,8], "
    "Datatype: Float, Format: (Linear) Row major linear format }], Constants: [], Outputs: [ { "
    "Name: y, Dimensions: [1,8], Datatype: Half, Format: (Linear) Row major linear format }], "
    "TacticName: , StreamId: 0, Metadata: [ONNX Layer: onnx-node:0]\x1f[ONNX Layer: in | f (F)]\n\n"
    "I/O Tensors:\n Name: x, IOMode: Input, DataType: Float, Dimensions: [1,8,16,16]\n"
)

OLD_PLAN = (
    "Layers:\n"
    "Name: __myl_Move_myl0_0, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [1,8,16,16], "
    "Format/Datatype: Float }], Outputs: [ { Name: r0.1_2_myl0, Dimensions: [1,8,16,16], "
    "Format/Datatype: Float }], TacticName: __myl_Move_0x3ea98178ef1cd51b696fba1502422510, "
    "StreamId: 0, Metadata: \n"
    "Name: conv0_myl0_1, LayerType: correlation, Inputs: [ { Name: r0.1_2_myl0, Dimensions: "
    "[1,8,16,16], Format/Datatype: Half }], Outputs: [ { Name: r1.1_3_myl0, Dimensions: "
    "[1,8,16,16], Format/Datatype: Float }], TacticName: __myelin_CASK_STUB, StreamId: 0, "
    "Metadata: [ONNX Layer: conv0]\x1f[ONNX Layer: relu0]\n"
)

OLD_INSPECTOR = json.dumps({
    "Layers": [
        {"Name": "conv0 + relu0", "LayerType": "CaskConvolution",
         "Inputs": [{"Name": "x", "Format/Datatype": "Row major linear FP16"}],
         "Outputs": [{"Name": "r0", "Format/Datatype": "Row major linear FP32"}],
         "TacticName": "sm80_xmma_fprop", "StreamId": 0,
         "Metadata": "[ONNX Layer: conv0]\x1f[ONNX Layer: relu0]"},
    ],
    "Bindings": ["x", "y"],
})  # fmt: skip

NAMES_ONLY_INSPECTOR = json.dumps({"Layers": ["conv0 + relu0", "last"], "Bindings": []})

NO_GPU = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError: "
    "cudaError 35: CUDA driver version is insufficient for CUDA runtime version)"
)
MYELIN = (
    "IBuilder::buildSerializedNetwork: Error Code 1: Myelin ([pass.cpp:337: "
    "check_turing_op_compatibility] Cannot compile operation 'n0' for Turing (SM75): FP32 GEMM is "
    "not supported. In compileGraph at /_src/optimizer/myelin/codeGenerator.cpp:2012)"
)
SPAN = (
    "IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any "
    "implementation for node {ForeignNode[node_of_a...tail]}. In computeCosts at "
    "/_src/optimizer/common/tactic/optimizer.cpp:4115)"
)
MEMORY = (
    "Skipping tactic 0x0000000000000001 due to insufficient memory on requested size of 33554432 "
    "detected for tactic 0x0000000000000001."
)
CANCELLED = (
    "IBuilder::buildSerializedNetwork: Error Code 7: BuildCanceled (In stepComplete at p.cpp:1)"
)

TACTICS = """
Autotuning op matMul1(key: 0x1814870c44ff0f8574df6e3dda04cbd7):
Candidate tactics
   0, 0.011264, 0.011264, 0.011264, sm80_xmma_gemm_A, 0x0006660000000001
   1, 0.021264, 0.021264, 0.021264, sm80_xmma_gemm_B, 0x0006660000000002
The selected tactic is (tactic hash, cost(in ms)): 0x0006660000000001, 0.011264
"""
