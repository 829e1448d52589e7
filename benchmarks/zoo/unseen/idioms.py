"""How people write PyTorch: small functions and modules, each of a kind that trips importers up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from benchmarks.zoo.network import MULTI, Input, Network, image, noise, tokens, unit
from benchmarks.zoo.unseen import idiom_functions as functions
from benchmarks.zoo.unseen import idiom_modules as modules
from benchmarks.zoo.unseen.source import Made, Source, made

_ROWS, _IMAGE = (noise(4, 6),), (image(2, 4, 12, 12),)
_PAIR = (noise(4, 6), noise(4, 6))
_SEQUENCE, _CUBE = (noise(2, 9, 8),), (noise(2, 3, 4, 5),)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


@dataclass(frozen=True)
class _Idiom:
    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]


def _of(function: Callable[..., object], inputs: tuple[Input, ...]) -> _Idiom:
    return _Idiom(lambda: _Function(function), inputs)


_IDS = (tokens(11, 3, 5),)
_IDIOMS = {
    "gru_cell_loop": _Idiom(lambda: modules.Recurrent(nn.GRUCell), _SEQUENCE),
    "rnn_cell_loop": _Idiom(lambda: modules.Recurrent(nn.RNNCell), _SEQUENCE),
    "packed_gru": _Idiom(modules.Packed, _SEQUENCE),
    "lstm_projected": _Idiom(lambda: nn.LSTM(8, 6, 2, batch_first=True, proj_size=3), _SEQUENCE),
    "attention_masks": _Idiom(modules.Masked, _SEQUENCE),
    "transformer_encoder": _Idiom(modules.transformer, _SEQUENCE),
    "written_in_place": _Idiom(modules.Written, _SEQUENCE),
    "shared_weights": _Idiom(modules.Shared, _IDS),
    "embedding_bag": _Idiom(lambda: nn.EmbeddingBag(11, 4, mode="max"), _IDS),
    "hooks": _Idiom(modules.Hooked, _ROWS),
    "parametrizations": _Idiom(modules.spectral, _ROWS),
    "bilinear": _Idiom(lambda: nn.Bilinear(6, 6, 5), _PAIR),
    "instance_norms": _Idiom(
        lambda: nn.Sequential(
            nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
            nn.LocalResponseNorm(3),
            nn.GroupNorm(2, 4),
        ),
        _IMAGE,
    ),
    "circular_convolution": _Idiom(
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
            nn.Conv2d(6, 6, 4, padding="same", groups=2, dilation=2),
            nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, groups=2, dilation=2),
        ),
        _IMAGE,
    ),
    "shuffles": _Idiom(
        lambda: nn.Sequential(nn.ChannelShuffle(2), nn.PixelShuffle(2), nn.PixelUnshuffle(3)),
        (image(2, 4, 12, 12),),
    ),
    "convolution_of_lines": _Idiom(
        lambda: nn.Sequential(
            nn.Conv1d(9, 6, 3, stride=2), nn.ConvTranspose1d(6, 3, 4), nn.PReLU(3)
        ),
        _SEQUENCE,
    ),
    "volumes": _Idiom(
        lambda: nn.Sequential(
            nn.ConvTranspose3d(2, 3, 2, 2), nn.AdaptiveAvgPool3d((3, 2, 4)), nn.Dropout3d()
        ),
        (image(1, 2, 4, 4, 4),),
    ),
    "functional_call": _of(functions.functional_call, (noise(4, 6), noise(6, 6))),
    "vmap": _of(functions.per_sample, _ROWS),
    "grad": _of(functions.gradient, _ROWS),
    "jacrev": _of(functions.jacobian, _ROWS),
    "while_loop": _of(functions.looped, _ROWS),
    "patches": _of(functions.patches, _IMAGE),
    "max_unpool": _of(functions.unpooled, _IMAGE),
    "grid_sample": _of(functions.warped, _IMAGE),
    "pieces_in_a_structure": _of(functions.pieces, _ROWS),
    "sorts": _of(functions.sorted, _ROWS),
    "counts": _of(functions.counted, _IDS),
    "scatters": _of(functions.scattered, _PAIR),
    "filter_of_a_spectrum": _of(functions.filtered, (noise(2, 30),)),
    "short_time_spectrum": _of(functions.short_time, (noise(2, 64),)),
    "linear_algebra": _of(functions.solved, (noise(2, 4, 5),)),
    "distances": _of(functions.distances, _PAIR),
    "products": _of(functions.products, _PAIR),
    "running": _of(functions.running, _ROWS),
    "choices": _of(functions.chosen, _PAIR),
    "reductions": _of(functions.summed, _CUBE),
    "shapes": _of(functions.shaped, _CUBE),
    "pads": _of(functions.padded, _IMAGE),
    "pools": _of(functions.pooled, _IMAGE),
    "activations": _of(functions.activated, _ROWS),
    "losses": _of(functions.losses, _PAIR),
    "special_functions": _of(functions.special, (unit(4, 6),)),
    "integers": _of(functions.integers, _IDS),
}


def _make(name: str, seed: int) -> Made:
    idiom = _IDIOMS[name]
    return made(name, Network(name, MULTI, idiom.make, idiom.inputs), seed)


SOURCE = Source((), lambda _each: list(_IDIOMS), _make)
