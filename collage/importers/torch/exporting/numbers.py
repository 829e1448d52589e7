"""Modules that keep numbers in buffers, and compute with them what Python then branches on.

``torch.export`` takes a buffer for a tensor whose content it does not know. What a tensor holds
that is made while it traces it does know, and follows through arithmetic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from collage.importers.torch.exporting.caches import plain_caches


@contextmanager
def known_numbers(module: Any) -> Iterator[None]:
    """Buffers of one integer or truth value are made anew in each call, as long as this lasts.

    Parameters
    ----------
    module : torch.nn.Module
        Which keeps strides and paddings that way, as codecs for sound do. It is left as it was.
    """
    with plain_caches(module), ExitStack() as stack:
        for part, numbers in _parts(module):
            stack.callback(_restore, part, numbers)
            for name in numbers:
                del part._buffers[name]
            make = _maker(part, {name: (b.item(), b.dtype) for name, b in numbers.items()})
            make()  # For who looks at a part without calling it.
            hook = part.register_forward_pre_hook(lambda _part, _args, make=make: make())
            stack.callback(hook.remove)
        stack.enter_context(warnings.catch_warnings())
        # It is said of each that it should be a buffer.
        warnings.filterwarnings("ignore", message=".*assigned during export")
        yield


def has_numbers(module: Any) -> bool:
    """Whether a module has such buffers."""
    return bool(_parts(module))


def _parts(module: Any) -> list[tuple[Any, dict[str, Any]]]:
    parts = [(part, _numbers(part)) for part in module.modules()]
    return [(part, numbers) for part, numbers in parts if numbers]


def _numbers(part: Any) -> dict[str, Any]:
    return {
        name: buffer
        for name, buffer in part._buffers.items()
        if buffer is not None and buffer.dim() == 0 and not buffer.is_floating_point()
    }


def _maker(part: Any, values: dict[str, tuple[Any, Any]]) -> Callable[[], None]:
    import torch

    def make() -> None:
        for name, (value, dtype) in values.items():
            part.__dict__[name] = torch.tensor(value, dtype=dtype)

    return make


def _restore(part: Any, numbers: dict[str, Any]) -> None:
    for name, buffer in numbers.items():
        part.__dict__.pop(name, None)
        part._buffers[name] = buffer
