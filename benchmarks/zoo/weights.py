"""Random weights under which activations keep their scale, seeded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SPREAD = 0.05


def settle(module: nn.Module, inputs: Sequence[Tensor]) -> nn.Module:
    """Draw what starts all equal, take batch norms' statistics from inputs, freeze the module.

    Equal scales and biases hide mix-ups, and scales that start at zero hide whole branches. With
    their initial statistics a residual network's activations grow past what float16 holds.

    Parameters
    ----------
    module : nn.Module
        Changed in place. Random numbers come from torch's own generator: seed it.
    inputs : sequence of Tensor
        Of several samples; with one alone a batch norm over one pixel has no variance.
    """
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.is_floating_point() and weight.numel() > 1:
                _draw(weight, is_bias=name.endswith("bias"))
        norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        module.eval()
        if norms:
            for norm in norms:
                norm.momentum = 1.0
                norm.train()
            module(*inputs)
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module


def _draw(weight: Tensor, *, is_bias: bool) -> None:
    first = float(weight.flatten()[0])
    if not bool((weight == first).all()):
        return
    if weight.dim() > 1 and first == 0.0:
        weight.normal_(0.0, 0.02)
    elif weight.dim() == 1:
        # A layer's scale may start at nothing, so that training begins with a shallow network.
        mean = 0.0 if is_bias else first if abs(first) > SPREAD else 1.0
        weight.normal_(mean, SPREAD * max(abs(mean), 0.2))
