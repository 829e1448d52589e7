"""Tensors that a module keeps as plain attributes, from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from collage.backends.contract.errors import ModelError


@contextmanager
def stateless(module: Any) -> Iterator[list[Any]]:
    """Refuse a module whose export changes an attribute that holds a tensor and has been read.

    ``torch.export`` takes such a tensor for a constant: what one call leaves behind would not reach
    the next one.

    Parameters
    ----------
    module : torch.nn.Module
        That is exported.

    Yields
    ------
    list
        Takes the program.

    Raises
    ------
    ModelError
        Names the attribute.
    """
    programs: list[Any] = []
    before: dict[str, Any] = {}
    changed: set[str] = set()

    def begin(*_: Any) -> None:
        before.update(_attributes(module))

    def end(*_: Any) -> None:
        now = _attributes(module)
        changed.update(path for path in before if now.get(path) is not before[path])

    hooks = []
    if _attributes(module):
        hooks = [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        yield programs
    finally:
        for hook in hooks:
            hook.remove()
    read = {name for program in programs for name in program.constants}
    for path in sorted(changed & read):
        raise ModelError(
            f"the model changes its attribute '{path}' and its results depend on it: a compiled "
            "model keeps nothing between calls; take it as an input and give it back",
            value=path,
        )


def _attributes(module: Any) -> dict[str, Any]:
    """Tensors that are neither parameters nor buffers, by their paths."""
    import torch

    return {
        f"{path}.{name}" if path else name: value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }
