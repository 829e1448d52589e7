"""What PyTorch does where it runs a module at once, and leaves out where it traces it."""

from __future__ import annotations

import copy
import functools
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from collage.backends.contract.errors import ModelError, telling_line

_MOST = 0.1
"""Of its size, what a result may be off by. Both sides run the same kernels; rounding alone, of
kernels that PyTorch joins where it runs a module at once, is far below."""


_LONGEST = 240
"""Characters of a reason: some of PyTorch's list all kinds of devices."""


@contextmanager
def as_run_at_once() -> Iterator[None]:
    """Modules that are exported as long as this lasts compute what they compute in inference.

    An encoder of transformers leaves padded places out, whose results are zeros then; traced, it
    computes something there. Distributions do not look whether their parameters are possible.
    Nor is a mask of transformers looked at, whether it leaves out what comes later and nothing
    else: it is applied as it is. Losses and covariances that look at what tensors hold are written
    otherwise. And numbers that tensors hold may be members of sets.

    Examples
    --------
    >>> with as_run_at_once():
    ...     pass
    """
    import torch

    from collage.importers.torch.exporting.hashed import hash_of_number
    from collage.importers.torch.exporting.losses import ctc_loss, gaussian_nll_loss
    from collage.importers.torch.exporting.statistics import corrcoef, cov

    functional = torch.nn.functional
    encoder, distribution = torch.nn.TransformerEncoder, torch.distributions.Distribution
    with ExitStack() as stack:
        _exchange(stack, encoder, "forward", _with_zeros(encoder.forward))
        _exchange(stack, distribution, "_validate_args", False)
        _exchange(stack, torch.nn.Module, "to", _as_it_is(torch.nn.Module.to))
        _exchange(stack, torch.nn.modules.transformer, "_detect_is_causal_mask", _as_is_said)
        _exchange(stack, functional, "ctc_loss", ctc_loss)
        _exchange(stack, functional, "gaussian_nll_loss", gaussian_nll_loss)
        for owner in (torch, torch.Tensor):
            _exchange(stack, owner, "cov", cov)
            _exchange(stack, owner, "corrcoef", corrcoef)
        _exchange(stack, torch.SymInt, "__hash__", hash_of_number)
        yield


def require_same(
    program: Any,
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    changed: Callable[[Any], AbstractContextManager[None]],
    limit_sec: float | None = None,
    running: Callable[..., Any] | None = None,
) -> None:
    """Hold what was traced against the module itself, on the example inputs.

    Where one of them cannot be run, or not in time, there is nothing to compare, and that is said.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        What was traced.
    module : torch.nn.Module
        In evaluation mode. A copy of it runs, which shares the parameters that nothing writes into.
    args, kwargs : tuple and mapping
        The example inputs.
    changed : callable
        What is changed in a module so that its results are plain ones.
    limit_sec : float, optional
        How long both may run together; without it they run to their ends.
    running : callable, optional
        What runs the program, where that is not enough by itself.

    Warns
    -----
    UserWarning
        When nothing was compared, and why.

    Raises
    ------
    ModelError
        When a result differs: code of the model asks whether it is traced.

    Examples
    --------
    >>> import torch
    >>> from contextlib import nullcontext
    >>> x, relu = torch.ones(3), torch.nn.ReLU()
    >>> program = torch.export.export(relu, (x,))
    >>> require_same(program, relu, (x,), {}, lambda module: nullcontext())
    """
    import torch
    from torch.utils import _pytree

    def results(called: Any) -> list[Any]:
        own_args, own_kwargs = copy.deepcopy((args, kwargs))
        # The processor's alone: to seed all would get GPUs ready, and leave the caller's changed.
        torch.default_generator.manual_seed(0)
        leaves = _pytree.tree_leaves(called(*own_args, **own_kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def run(called: Callable[[], Any]) -> list[Any] | Exception:
        try:
            return results(called())
        except Exception as err:  # noqa: BLE001 - a model's own code may raise anything
            return err

    weights = _unwritten(program, module)

    def copied() -> Any:
        own = copy.deepcopy(module, {**weights, **_left_by_tracing(module)})
        stack.enter_context(changed(own))
        return own

    try:
        with (
            warnings.catch_warnings(),
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
            _ending_in(limit_sec),
            ExitStack() as stack,
        ):
            warnings.simplefilter("ignore")
            wanted = run(copied)
            if isinstance(wanted, list):
                found = run(lambda: running or copy.deepcopy(program.module(), dict(weights)))
                if not isinstance(found, list) and running is None:
                    # What PyTorch guards is looked at by who imports the program.
                    found = run(lambda: _without_guards(program, weights))
    except _OverTimeError:
        _say_uncompared(f"that takes longer than it may ({limit_sec:g} s)")
        return
    if not isinstance(wanted, list):
        _say_uncompared(f"it does not run: {telling_line(wanted)}")
        return
    if not isinstance(found, list):
        _say_uncompared(f"what was traced does not run by itself: {telling_line(found)}")
        return
    if len(found) != len(wanted):
        _say_uncompared(f"it gives {len(wanted)} tensors, and what was traced {len(found)}")
        return
    for place, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            _say_uncompared(
                f"its result {place} is {theirs.dtype} of {tuple(theirs.shape)}, and what was "
                f"traced {mine.dtype} of {tuple(mine.shape)}"
            )
        elif (off := _off_by(mine, theirs)) > _MOST:
            raise ModelError(
                f"what it traces gives something else than the module itself does on the example "
                f"inputs, result {place} is off by {off:.2g} of its size: code of the model asks "
                "whether it is traced, or what inputs hold, and then makes up something else, such "
                "as masks; give all inputs that it can take (attention_mask, token_type_ids)"
            )


def _left_by_tracing(module: Any) -> dict[int, Any]:
    """Tensors without numbers that a module has kept while it was traced, by identity: they cannot
    be copied, and what computes them anew does so when it runs."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree

    kept = [value for part in module.modules() for value in vars(part).values()]
    return {id(one): one for one in _pytree.tree_leaves(kept) if isinstance(one, FakeTensor)}


def _say_uncompared(why: str) -> None:
    why = textwrap.shorten(why, _LONGEST, placeholder=" ...")
    warnings.warn(f"what was traced is not held against the module: {why}", stacklevel=4)


def _without_guards(program: Any, weights: Mapping[int, Any]) -> Callable[..., Any]:
    """What runs a program's operators alone, on copies of all that is none of these weights."""
    import torch

    def run(*args: Any, **kwargs: Any) -> Any:
        flat = [
            copy.deepcopy(one) if id(one) not in weights else one
            for one in program._graph_module_flat_inputs(args, kwargs)
        ]
        results = torch.fx.Interpreter(program.graph_module).run(*flat)
        written = len(results) - len(program.graph_signature.user_outputs)
        return results[written:]

    return run


class _OverTimeError(BaseException):
    """Past what a model's own code catches."""


def _ending_in(limit_sec: float | None) -> AbstractContextManager[Any]:
    """Operators of PyTorch run for so long, and then no other one begins."""
    from torch.utils._python_dispatch import TorchDispatchMode

    if limit_sec is None:
        return nullcontext()
    end = time.monotonic() + limit_sec

    class Limited(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if time.monotonic() > end:
                raise _OverTimeError
            return func(*args, **(kwargs or {}))

    return Limited()


def _unwritten(program: Any, module: Any) -> dict[int, Any]:
    """The parameters that runs leave as they are, by who they are."""
    from collage.importers.torch.state import writing

    written = {base.name for _, base in writing(program)}
    specs = program.graph_signature.input_specs
    targets = {spec.target for spec in specs if spec.arg.name in written}
    named = list(module.named_parameters(remove_duplicate=False))
    changed = {id(each) for name, each in named if name in targets}
    return {id(each): each for _, each in named if id(each) not in changed}


def _off_by(mine: Any, theirs: Any) -> float:
    """Relative to the size of what the module gives; of whole numbers, how many differ."""
    import torch

    if not theirs.numel():
        return 0.0
    if not theirs.is_floating_point():
        return float((mine != theirs).double().mean())
    both = torch.isfinite(mine) & torch.isfinite(theirs)
    size = theirs[both].double().pow(2).mean().sqrt()
    gap = (mine[both].double() - theirs[both].double()).pow(2).mean().sqrt()
    return float(gap / size) if size > 0 else 0.0


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


def _as_is_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True


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
