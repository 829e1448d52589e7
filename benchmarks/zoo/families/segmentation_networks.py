"""Segmentation networks from segmentation-models-pytorch: each architecture over some encoder."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from benchmarks.zoo.network import SEGMENTATION, Network, image

_NETWORKS = {
    "Unet": "resnet18",
    "UnetPlusPlus": "resnet18",
    "MAnet": "mobilenet_v2",
    "Linknet": "resnet18",
    "FPN": "efficientnet-b0",
    "PSPNet": "resnet18",
    "DeepLabV3Plus": "mobilenet_v2",
    "PAN": "resnet18",
    "UPerNet": "resnet18",
    "Segformer": "mit_b0",
}


def _maker(architecture: str, encoder: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import segmentation_models_pytorch as smp

        module: nn.Module = getattr(smp, architecture)(encoder, encoder_weights=None, classes=4)
        return module

    return make


NETWORKS = [
    Network(
        f"smp/{architecture.lower()}_{encoder}",
        SEGMENTATION,
        _maker(architecture, encoder),
        (image(1, 3, 256, 256),),
        ("segmentation_models_pytorch", "timm", "torchvision"),
    )
    for architecture, encoder in _NETWORKS.items()
]
