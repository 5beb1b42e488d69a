"""Element types that pass between ONNX and TensorRT as they are."""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.types import DataType

__all__ = ["ELEMENT_TYPES"]

ELEMENT_TYPES: Mapping[DataType, str] = {
    DataType.FLOAT: "FLOAT",
    DataType.FLOAT16: "HALF",
    DataType.BFLOAT16: "BF16",
    DataType.INT8: "INT8",
    DataType.UINT8: "UINT8",
    DataType.INT32: "INT32",
    DataType.INT64: "INT64",
    DataType.BOOL: "BOOL",
}
"""By TensorRT's names. 64-bit floats aren't among them: TensorRT computes them in 32 bits."""
