"""Images and volumes looked up at places, and convolutions that read beside theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from tvm import relax
from tvm.relax import op

from collage.backends.relax.kept_whole.sampling import BEYOND, METHODS, Sampling, grid_sample
from collage.importers.deformed import DeformedWindow, deformed_convolution, pair
from collage.importers.torch.operators.arguments import Importer, arguments, shape_of


def _sampled(importer: Importer, node: fx.Node) -> relax.Expr:
    x, grid, how, beyond, corners = arguments(
        importer, node, *("input", "grid", "interpolation_mode", "padding_mode", "align_corners")
    )
    sampling = Sampling(METHODS[how], BEYOND[beyond], bool(corners))
    return importer.emit(grid_sample(x, grid, sampling))


def _deform_conv2d(importer: Importer, node: fx.Node) -> relax.Expr:
    """torchvision's deformable convolution."""
    x, weight, offset, mask, bias, use_mask, groups, offset_groups = arguments(
        *(importer, node, "input", "weight", "offset", "mask", "bias", "use_mask"),
        *("groups", "offset_groups"),
    )
    strides, pads, dilations = (
        pair(*arguments(importer, node, f"{name}_h", f"{name}_w"))
        for name in ("stride", "pad", "dilation")
    )
    window = DeformedWindow(strides, dilations, pads, int(groups), int(offset_groups))
    given = mask if use_mask else None
    found = importer.emit(deformed_convolution(importer.emit, x, weight, offset, given, window))
    wide = importer.emit(op.reshape(bias, [1, shape_of(weight)[0], 1, 1]))
    return importer.emit(op.add(found, wide))


SAMPLED: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "deform_conv2d.default": _deform_conv2d,
    "grid_sampler_2d.default": _sampled,
    "grid_sampler_3d.default": _sampled,
}
"""By the name that the translator has for an operator."""
