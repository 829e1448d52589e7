"""Networks from torchvision; detectors without the selection of boxes that follows their heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.zoo.network import (
    CLASSIC,
    CONVNEXT,
    DENSE,
    DEPTHWISE,
    DETECTION,
    MULTI,
    RESIDUAL,
    SEGMENTATION,
    VISION,
    VOLUME,
    WINDOWS,
    Input,
    Network,
    Tensors,
    image,
)  # fmt: skip

_IMAGE = (image(1, 3, 224, 224),)
_LARGE = (image(1, 3, 320, 320),)
_VIDEO = (image(1, 3, 16, 112, 112),)

_CLASSIFIERS: dict[str, tuple[str, tuple[Input, ...]]] = {
    "alexnet": (CLASSIC, _IMAGE),
    "vgg11_bn": (CLASSIC, _IMAGE),
    "squeezenet1_1": (CLASSIC, _IMAGE),
    "googlenet": (CLASSIC, _IMAGE),
    "inception_v3": (CLASSIC, (image(1, 3, 299, 299),)),
    "resnet50": (RESIDUAL, _IMAGE),
    "wide_resnet50_2": (RESIDUAL, _IMAGE),
    "densenet121": (DENSE, _IMAGE),
    "resnext50_32x4d": (DENSE, _IMAGE),
    "shufflenet_v2_x1_0": (DENSE, _IMAGE),
    "regnet_y_400mf": (DENSE, _IMAGE),
    "mobilenet_v2": (DEPTHWISE, _IMAGE),
    "mobilenet_v3_small": (DEPTHWISE, _IMAGE),
    "mnasnet0_5": (DEPTHWISE, _IMAGE),
    "efficientnet_v2_s": (DEPTHWISE, _IMAGE),
    "convnext_tiny": (CONVNEXT, _IMAGE),
    "vit_b_16": (VISION, _IMAGE),
    "swin_t": (WINDOWS, _IMAGE),
    "swin_v2_t": (WINDOWS, (image(1, 3, 256, 256),)),
    "maxvit_t": (WINDOWS, _IMAGE),
}
_SEGMENTERS = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
_VIDEOS: dict[str, tuple[Input, ...]] = {
    "r3d_18": _VIDEO,
    "mc3_18": _VIDEO,
    "r2plus1d_18": _VIDEO,
    "s3d": (image(1, 3, 16, 224, 224),),
    "swin3d_t": (image(1, 3, 8, 112, 112),),
    "mvit_v2_s": (image(1, 3, 16, 224, 224),),
}


def _torchvision() -> Any:
    import torchvision

    return torchvision


def _classifier(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        # Inception's and GoogLeNet's further heads are for training alone.
        extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        module: nn.Module = getattr(_torchvision().models, name)(weights=None, **extra)
        return module

    return make


def _segmenter(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        models = _torchvision().models.segmentation
        module = getattr(models, name)(weights=None, weights_backbone=None, num_classes=21)
        return Tensors(module)

    return make


def _video(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        module: nn.Module = getattr(_torchvision().models.video, name)(weights=None)
        return module

    return make


class Heads(nn.Module):
    """A detector's backbone, feature pyramid and heads: class scores and box offsets per anchor."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = self.head(list(self.backbone(images).values()))
        values = found.values() if isinstance(found, dict) else [x for part in found for x in part]
        return tuple(values)


def _detector(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        models = _torchvision().models.detection
        whole = getattr(models, name)(weights=None, weights_backbone=None)
        return Heads(whole.backbone, whole.rpn.head if hasattr(whole, "rpn") else whole.head)

    return make


def _flow() -> nn.Module:
    """RAFT: correlations of two images, looked up and refined a few times by a gated unit."""
    return Tensors(
        _torchvision().models.optical_flow.raft_small(weights=None), fixed={"num_flow_updates": 2}
    )


_NEEDS = ("torchvision",)
NETWORKS = [
    *(
        Network(f"torchvision/{name}", family, _classifier(name), inputs, _NEEDS)
        for name, (family, inputs) in _CLASSIFIERS.items()
    ),
    *(
        Network(f"torchvision/{name}", SEGMENTATION, _segmenter(name), _IMAGE, _NEEDS)
        for name in _SEGMENTERS
    ),
    *(
        Network(f"torchvision/{name}", VOLUME, _video(name), inputs, _NEEDS)
        for name, inputs in _VIDEOS.items()
    ),
    *(
        Network(f"torchvision/{name}", DETECTION, _detector(name), _LARGE, _NEEDS)
        for name in (
            "ssdlite320_mobilenet_v3_large",
            "retinanet_resnet50_fpn",
            "fcos_resnet50_fpn",
            "fasterrcnn_mobilenet_v3_large_320_fpn",
        )
    ),
    Network(
        "torchvision/raft_small",
        MULTI,
        _flow,
        (image(1, 3, 128, 160), image(1, 3, 128, 160)),
        _NEEDS,
        reduced="2 of 12 refinements",
    ),
]
