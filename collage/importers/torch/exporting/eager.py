"""What PyTorch does where it runs a module at once, and leaves out where it traces it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def as_run_at_once() -> Iterator[None]:
    """Modules that are exported as long as this lasts compute what they compute in inference.

    An encoder of transformers leaves padded places out, whose results are zeros then; traced, it
    computes something there. Distributions do not look whether their parameters are possible.

    Examples
    --------
    >>> with as_run_at_once():
    ...     pass
    """
    import torch

    encoder, distribution = torch.nn.TransformerEncoder, torch.distributions.Distribution
    with ExitStack() as stack:
        _exchange(stack, encoder, "forward", _with_zeros(encoder.forward))
        _exchange(stack, distribution, "_validate_args", False)
        _exchange(stack, torch.nn.Module, "to", _as_it_is(torch.nn.Module.to))
        yield


def _as_it_is(to: Callable[..., Any]) -> Callable[..., Any]:
    """A module's ``to`` that does nothing where nothing changes: traced weights cannot be moved."""
    import torch

    @functools.wraps(to)
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, _, order = torch._C._nn._parse_to(*args, **kwargs)
        tensors = [*self.parameters(), *self.buffers()]
        changed = any(
            (device is not None and tensor.device != torch.device(device))
            or (dtype is not None and tensor.is_floating_point() and tensor.dtype != dtype)
            for tensor in tensors
        )
        return to(self, *args, **kwargs) if changed or order is not None else self

    return moved


def _exchange(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, new)


def _with_zeros(forward: Callable[..., Any]) -> Callable[..., Any]:
    """An encoder's ``forward``, with zeros before its last norm at the places that are padded."""
    import torch

    @functools.wraps(forward)
    def padded(
        self: Any,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: Any = None,
    ) -> Any:
        found = forward(
            self, src, mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=is_causal
        )
        if src_key_padding_mask is None or mask is not None or src.dim() != 3:
            return found
        fast = self.use_nested_tensor and torch.backends.mha.get_fastpath_enabled()
        if not fast or self.training or not torch.compiler.is_compiling():
            return found
        away = src_key_padding_mask != 0
        if self.mask_check:
            # Only where all are padded behind their ends.
            away = away & (away[:, 1:] >= away[:, :-1]).all()
        empty = found.new_zeros(1, 1, found.shape[-1])
        empty = empty if self.norm is None else self.norm(empty)
        return torch.where(away.unsqueeze(-1), empty, found)

    return padded
