"""Medical networks from MONAI: most of them over volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from benchmarks.zoo.network import GENERATOR, SEGMENTATION, VOLUME, Input, Network, Tensors, image

_VOLUME = (image(1, 1, 32, 64, 64),)
_PORTS = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}

# Family, class, configuration, inputs.
_Row = tuple[str, str, dict[str, Any], tuple[Input, ...]]
_NETWORKS: dict[str, _Row] = {
    "unet_3d": (
        VOLUME, "UNet",
        {**_PORTS, "channels": (16, 32, 64, 128), "strides": (2, 2, 2), "num_res_units": 2},
        _VOLUME,
    ),
    "basic_unet_3d": (VOLUME, "BasicUNet", _PORTS, _VOLUME),
    "attention_unet_3d": (
        VOLUME, "AttentionUnet", {**_PORTS, "channels": (16, 32, 64), "strides": (2, 2)}, _VOLUME,
    ),
    "dynunet_3d": (
        VOLUME, "DynUNet",
        {**_PORTS, "kernel_size": (3, 3, 3, 3), "strides": (1, 2, 2, 2),
         "upsample_kernel_size": (2, 2, 2)},
        _VOLUME,
    ),
    "segresnet_3d": (VOLUME, "SegResNet", _PORTS, _VOLUME),
    "vnet": (VOLUME, "VNet", _PORTS, _VOLUME),
    "highresnet": (VOLUME, "HighResNet", _PORTS, (image(1, 1, 32, 32, 32),)),
    "densenet121_3d": (VOLUME, "DenseNet121", _PORTS, (image(1, 1, 64, 64, 64),)),
    "unetr": (
        VOLUME, "UNETR",
        {"in_channels": 1, "out_channels": 2, "img_size": (32, 64, 64), "hidden_size": 192,
         "num_heads": 6, "mlp_dim": 768},
        _VOLUME,
    ),
    "swin_unetr": (
        VOLUME, "SwinUNETR", {"in_channels": 1, "out_channels": 2, "feature_size": 12},
        (image(1, 1, 64, 64, 64),),
    ),
    "flexible_unet": (
        SEGMENTATION, "FlexibleUNet",
        {"in_channels": 3, "out_channels": 2, "backbone": "efficientnet-b0"},
        (image(1, 3, 224, 224),),
    ),
    "var_autoencoder": (
        GENERATOR, "AutoEncoder",
        {"spatial_dims": 2, "in_channels": 1, "out_channels": 1, "channels": (16, 32, 64),
         "strides": (2, 2, 2)},
        (image(1, 1, 128, 128),),
    ),
}  # fmt: skip


def _maker(kind: str, config: dict[str, Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from monai.networks import nets

        return Tensors(getattr(nets, kind)(**config))

    return make


NETWORKS = [
    Network(f"monai/{name}", family, _maker(kind, config), inputs, ("monai",))
    for name, (family, kind, config, inputs) in _NETWORKS.items()
]
