"""Networks of `networks` in 8 bits, as ONNX Runtime's own tools write them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import networks
from networks import Array

__all__ = ["bert_base_dynamic", "resnet50_qdq"]


class _OneFeed(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feed: dict[str, Array]) -> None:
        self._feeds = iter([feed])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def resnet50_qdq() -> tuple[bytes, dict[str, Array]]:
    """Return ResNet-50 between QuantizeLinear and DequantizeLinear, one scale per filter."""
    model, feed = networks.resnet50(halves_sums=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantize_static(
            onnx.load_model_from_string(model),
            path,
            _OneFeed(feed),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return path.read_bytes(), feed


def bert_base_dynamic() -> tuple[bytes, dict[str, Array]]:
    """Return BERT-base with activations that are quantised as they come."""
    model, feed = networks.bert_base()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantize_dynamic(onnx.load_model_from_string(model), path, weight_type=QuantType.QInt8)
        return path.read_bytes(), feed
