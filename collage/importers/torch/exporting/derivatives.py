"""Modules that differentiate as they run: forces as gradients of an energy, Jacobians.

``torch.export`` does not follow derivatives. ``make_fx`` does, which records the operators that
PyTorch's own rules make of them; what it recorded is exported in the module's place.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from collage.backends.contract.errors import ModelError
from collage.importers.torch.exporting.forward import replaced_forward


@contextmanager
def noticing() -> Iterator[list[str]]:
    """What is differentiated as long as this lasts, by the function that does it.

    Examples
    --------
    >>> import torch
    >>> with noticing() as found:
    ...     _ = torch.func.grad(torch.sin)(torch.zeros(()))
    >>> found[0]
    '_grad_increment_nesting'
    """
    import torch
    from torch._functorch import eager_transforms

    found: list[str] = []
    watched = [
        (eager_transforms, "_grad_increment_nesting"),
        (eager_transforms, "_jvp_increment_nesting"),
        (torch.autograd, "_engine_run_backward"),
    ]
    with ExitStack() as stack:
        for owner, name in watched:
            real = getattr(owner, name)
            stack.callback(setattr, owner, name, real)
            setattr(owner, name, _noting(name, real, found))
        yield found


def _noting(name: str, real: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    @functools.wraps(real)
    def noted(*args: Any, **kwargs: Any) -> Any:
        found.append(name)
        return real(*args, **kwargs)

    return noted


@contextmanager
def written_out(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """A module whose derivatives are operators like others, and afterwards as it was.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode; what it computes may depend on data, what it runs may not.
    args, kwargs
        What it is called with.

    Yields
    ------
    None
        Meanwhile its ``forward`` runs what was recorded.
    """
    import torch
    from torch.func import functional_call
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from collage.importers.torch.exporting.backward import derivatives

    def call(tensors: Any, given: Any, named: Any) -> Any:
        return functional_call(module, tensors, given, named)

    # Gradients are asked for inside, whatever mode this is in; of attention and recurrent layers
    # in plain operators, not of a library's kernels.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), _without_library():
        record = make_fx(call, derivatives(), tracing_mode="fake", _allow_non_fake_inputs=True)
        graph = record(_tensors(module), args, dict(kwargs))
    signature = inspect.signature(module.forward)

    def recorded(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        return graph(_tensors(module), bound.args, bound.kwargs)

    with replaced_forward(module, recorded):
        yield


@contextmanager
def _without_library() -> Iterator[None]:
    import torch

    with warnings.catch_warnings():
        # PyTorch 2.13 warns of Intel's GPUs where there are none.
        warnings.filterwarnings("ignore", "TF32 acceleration")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _tensors(module: Any) -> dict[str, Any]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


_LEVELS = frozenset(["_enter_dual_level", "_jvp_increment_nesting", "_unwrap_for_grad"])
"""What an exported program has that differentiates."""


def require_no_derivatives(program: Any) -> None:
    """Refuse a program that PyTorch has left levels of differentiation in.

    To take it apart would leave PyTorch itself inside of such a level.

    Raises
    ------
    ModelError
        Says what to give in its place.
    """
    for node in program.graph.nodes:
        if getattr(node.target, "__name__", "") in _LEVELS:
            raise ModelError(
                "the program differentiates (torch.func), which torch.export leaves half done; "
                "give the torch.nn.Module, with example_inputs",
                value=node.name,
            )
