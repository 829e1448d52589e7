"""One network of the zoo: what it is, how it is made and what it is fed.

Nothing here, and no file of :mod:`benchmarks.zoo.families`, imports a package of models before a
network is made: the list can be read where none of them is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from benchmarks.zoo.torchvision_operators import declare_missing

RESIDUAL = "residual CNN"
CLASSIC = "classic CNN"
DEPTHWISE = "depthwise and squeeze-excitation CNN"
DENSE = "dense and grouped CNN"
CONVNEXT = "ConvNeXt-like CNN"
SEGMENTATION = "segmentation"
DETECTION = "detection"
SUPER_RESOLUTION = "super-resolution"
GENERATOR = "generator"
DIFFUSION = "diffusion and VAE"
VOLUME = "3-D and video"
ENCODER = "encoder transformer"
DECODER = "decoder transformer"
ENCODER_DECODER = "encoder-decoder transformer"
VISION = "vision transformer"
WINDOWS = "windowed vision transformer"
HYBRID = "convolution and attention"
MIXER = "mixer"
SPEECH = "speech and audio"
RECURRENT = "recurrent and state space"
RECOMMENDATION = "recommendation"
MULTI = "several inputs or outputs"


@dataclass(frozen=True)
class Input:
    """A random input.

    Attributes
    ----------
    kind : str
        ``image`` (any number of axes after the channels: coarse blobs under noise, for white noise
        alone averages out to one and the same answer), ``noise`` (normal), ``unit`` (uniform from 0
        to 1), ``tokens`` (integers below ``high``) or ``ones`` (a mask that masks nothing).
    shape : tuple of int
    high : int
        Of ``tokens``.
    """

    kind: str
    shape: tuple[int, ...]
    high: int = 0

    def draws(self, samples: int, generator: torch.Generator) -> Tensor:
        """Several, joined along the first axis."""
        return torch.cat([self.draw(generator) for _ in range(samples)])

    def draw(self, generator: torch.Generator) -> Tensor:
        """Integers as int64, all others as float32."""
        match self.kind:
            case "tokens":
                return torch.randint(0, self.high, self.shape, generator=generator)
            case "ones":
                return torch.ones(self.shape, dtype=torch.int64)
            case "unit":
                return torch.rand(self.shape, generator=generator)
            case "noise":
                return torch.randn(self.shape, generator=generator)
            case "image":
                return _blobs(self.shape, generator)
            case other:
                raise ValueError(f"no kind of input is called '{other}'")


def _blobs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    spatial = shape[2:]
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(spatial)]
    coarse = torch.randn(*shape[:2], *(min(7, n) for n in spatial), generator=generator)
    noise = torch.randn(shape, generator=generator)
    return nn.functional.interpolate(coarse, spatial, mode=mode) + 0.3 * noise


def image(*shape: int) -> Input:
    """Of (batch, channels, one axis or more)."""
    return Input("image", shape)


def noise(*shape: int) -> Input:
    """Normal values."""
    return Input("noise", shape)


def unit(*shape: int) -> Input:
    """Uniform values from 0 to 1: a time, a price, a probability."""
    return Input("unit", shape)


def tokens(high: int, *shape: int) -> Input:
    """Integers from 0 on."""
    return Input("tokens", shape, high)


def ones(*shape: int) -> Input:
    """An attention mask over sequences of full length."""
    return Input("ones", shape)


@dataclass(frozen=True)
class Network:
    """A network of the zoo.

    Attributes
    ----------
    name : str
        ``package/network``.
    family : str
        One of the names above.
    make : callable
        The module with its initial weights, taking the inputs in their order.
    inputs : tuple of Input
    needs : tuple of str
        Packages besides torch.
    reduced : str
        What is smaller than what its authors published; empty for the real size.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    needs: tuple[str, ...] = ()
    reduced: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Of what it needs, what is not installed."""
        return tuple(package for package in self.needs if find_spec(package) is None)

    @property
    def convolutional(self) -> bool:
        """Whether PyTorch is advised to keep its images channels last."""
        return (
            len(self.inputs) == 1
            and self.inputs[0].kind == "image"
            and len(self.inputs[0].shape) == 4
        )

    def module(self) -> nn.Module:
        """With its initial weights, in inference mode."""
        # Packages that need no torchvision import it where it is installed.
        declare_missing()
        return self.make().eval()

    def draw(self, seed: int) -> tuple[Tensor, ...]:
        """Its inputs, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(wanted.draw(generator) for wanted in self.inputs)


class Tensors(nn.Module):
    """A network whose inputs have names and whose result is a structure, as one of tensors alone.

    Parameters
    ----------
    network : nn.Module
    names : tuple of str
        Keywords for the inputs; by default they are given by position.
    fixed : dict, optional
        Keywords that stay the same.
    pick : tuple of str
        Of the result's fields; by default all tensors in it.
    """

    def __init__(
        self,
        network: nn.Module,
        names: tuple[str, ...] = (),
        fixed: dict[str, object] | None = None,
        pick: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.network = network
        self.names, self.fixed, self.pick = names, fixed or {}, pick

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        if self.names:
            result = self.network(**dict(zip(self.names, inputs, strict=True)), **self.fixed)
        else:
            result = self.network(*inputs, **self.fixed)
        if self.pick:
            result = [getattr(result, name) for name in self.pick]
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return leaves[0] if len(leaves) == 1 else tuple(leaves)
