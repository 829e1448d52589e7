"""The networks, a file for each package or kind; :data:`NETWORKS` has all of them by name."""

from __future__ import annotations

from benchmarks.zoo.families import (
    diffusers_networks,
    monai_networks,
    plain_audio,
    plain_deployed,
    plain_fields,
    plain_generators,
    plain_images,
    plain_sequences,
    plain_tables,
    segmentation_networks,
    timm_networks,
    torchvision_networks,
    transformers_seeing,
    transformers_speaking,
)
from benchmarks.zoo.network import Network

__all__ = ["NETWORKS"]

_FILES = (
    plain_generators,
    plain_images,
    plain_audio,
    plain_tables,
    plain_sequences,
    plain_fields,
    plain_deployed,
    torchvision_networks,
    timm_networks,
    transformers_speaking,
    transformers_seeing,
    diffusers_networks,
    segmentation_networks,
    monai_networks,
)

NETWORKS: dict[str, Network] = {
    network.name: network for file in _FILES for network in file.NETWORKS
}
