"""Denoisers and autoencoders from diffusers, with fewer channels than the published ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from benchmarks.zoo.network import DIFFUSION, Input, Network, Tensors, image, noise, unit

_TEXT = noise(1, 77, 256)
_FEW = "fewer channels and layers"

# Class, its configuration, the names of its inputs, the inputs.
_Row = tuple[str, dict[str, Any], tuple[str, ...], tuple[Input, ...]]
_DENOISER = ("sample", "timestep")
_GUIDED = ("sample", "timestep", "encoder_hidden_states")

_NETWORKS: dict[str, _Row] = {
    "unet": (
        "UNet2DModel",
        {
            "sample_size": 64,
            "block_out_channels": (128, 256, 384, 512),
            "layers_per_block": 1,
            "norm_num_groups": 32,
            "down_block_types": ("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        },
        _DENOISER,
        (image(1, 3, 64, 64), unit(1)),
    ),
    "unet_conditioned": (
        "UNet2DConditionModel",
        {
            "sample_size": 32,
            "block_out_channels": (64, 128, 256),
            "layers_per_block": 1,
            "cross_attention_dim": 256,
            "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        },
        _GUIDED,
        (image(1, 4, 32, 32), unit(1), _TEXT),
    ),
    "unet_1d": (
        "UNet1DModel",
        {
            "sample_size": 1024,
            "in_channels": 2,
            "extra_in_channels": 64,
            "block_out_channels": (32, 64, 128),
        },
        _DENOISER,
        (image(1, 2, 1024), unit(1)),
    ),
    "unet_video": (
        "UNet3DConditionModel",
        {
            "block_out_channels": (32, 64),
            "norm_num_groups": 8,
            "layers_per_block": 1,
            "cross_attention_dim": 256,
            "attention_head_dim": 8,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        _GUIDED,
        (image(1, 4, 4, 16, 16), unit(1), _TEXT),
    ),
    "dit": (
        "DiTTransformer2DModel",
        {"num_layers": 4, "num_attention_heads": 6, "attention_head_dim": 64, "sample_size": 32},
        ("hidden_states", "timestep", "class_labels"),
        (image(1, 4, 32, 32), Input("tokens", (1,), 1000), Input("tokens", (1,), 1000)),
    ),
    "pixart": (
        "PixArtTransformer2DModel",
        {
            "num_layers": 3,
            "num_attention_heads": 6,
            "attention_head_dim": 64,
            "sample_size": 32,
            "cross_attention_dim": 384,
            "caption_channels": 256,
            "use_additional_conditions": False,
        },
        ("hidden_states", "encoder_hidden_states", "timestep"),
        (image(1, 4, 32, 32), _TEXT, unit(1)),
    ),
    "sd3": (
        "SD3Transformer2DModel",
        {
            "sample_size": 32,
            "num_layers": 3,
            "attention_head_dim": 32,
            "num_attention_heads": 8,
            "joint_attention_dim": 256,
            "caption_projection_dim": 256,
            "pooled_projection_dim": 128,
            "in_channels": 4,
            "out_channels": 4,
        },
        ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"),
        (image(1, 4, 32, 32), _TEXT, noise(1, 128), unit(1)),
    ),
    "autoencoder_kl": (
        "AutoencoderKL",
        {
            "block_out_channels": (32, 64, 128),
            "layers_per_block": 1,
            "latent_channels": 4,
            "sample_size": 64,
            "down_block_types": ("DownEncoderBlock2D",) * 3,
            "up_block_types": ("UpDecoderBlock2D",) * 3,
        },
        ("sample",),
        (image(1, 3, 128, 128),),
    ),
    "autoencoder_tiny": ("AutoencoderTiny", {}, ("sample",), (image(1, 3, 128, 128),)),
    "vq_model": (
        "VQModel",
        {"block_out_channels": (64, 128), "layers_per_block": 1, "num_vq_embeddings": 256,
         "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        ("sample",),
        (image(1, 3, 64, 64),),
    ),
    "prior": (
        "PriorTransformer",
        {"num_layers": 3, "num_attention_heads": 6, "attention_head_dim": 64,
         "embedding_dim": 256, "num_embeddings": 77, "additional_embeddings": 4},
        ("hidden_states", "timestep", "proj_embedding", "encoder_hidden_states"),
        (noise(1, 256), unit(1), noise(1, 256), _TEXT),
    ),
}  # fmt: skip


def _maker(row: _Row) -> Callable[[], nn.Module]:
    kind, config, names, _ = row

    def make() -> nn.Module:
        import diffusers

        return Tensors(getattr(diffusers, kind)(**config), names)

    return make


NETWORKS = [
    Network(f"diffusers/{name}", DIFFUSION, _maker(row), row[3], ("diffusers",), reduced=_FEW)
    for name, row in _NETWORKS.items()
]
