"""The enumerations of the stand-in; their numbers are its own, as each version's are."""

import enum

DataType = enum.IntEnum("DataType", "FLOAT HALF INT32 INT64 BOOL INT8 UINT8 BF16")
float32, float16, bfloat16 = DataType.FLOAT, DataType.HALF, DataType.BF16
_TYPES = {1: DataType.FLOAT, 10: DataType.HALF, 6: DataType.INT32, 7: DataType.INT64,
          9: DataType.BOOL, 16: DataType.BF16, 11: DataType.FLOAT}  # fmt: skip
NetworkDefinitionCreationFlag = enum.IntEnum("Flag", {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1})
LayerType = enum.IntEnum("LayerType", "CONVOLUTION MATRIX_MULTIPLY DECONVOLUTION CONSTANT OTHER")
ProfilingVerbosity = enum.IntEnum("ProfilingVerbosity", "LAYER_NAMES_ONLY DETAILED NONE")
TensorIOMode = enum.IntEnum("TensorIOMode", "NONE INPUT OUTPUT")
TensorLocation = enum.IntEnum("TensorLocation", "DEVICE HOST")
LayerInformationFormat = enum.IntEnum("LayerInformationFormat", "ONELINE JSON")
MemoryPoolType = enum.IntEnum("MemoryPoolType", "WORKSPACE")
TacticSource = enum.IntEnum("TacticSource", "EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS")
BuilderFlag = enum.IntEnum(
    "BuilderFlag", "FP16 INT8 TF32 STRICT_NANS EDITABLE_TIMING_CACHE DISABLE_COMPILATION_CACHE "
    "ERROR_ON_TIMING_CACHE_MISS OBEY_PRECISION_CONSTRAINTS",
)  # fmt: skip
Severity = enum.IntEnum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE")
