"""What a module keeps from call to call in plain attributes: tensors, numbers, lists of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from collage.backends.contract.errors import ModelError
from collage.importers.torch.exporting.caches import plain_caches

_PLAIN = (bool, int, float, str)
_DEEPEST = 3
"""Lists in dicts in lists are looked into, what lies deeper is not."""


class KeptTensorError(ModelError):
    """A module changes attributes that hold tensors, and its results depend on them.

    Parameters
    ----------
    paths : sequence of str
        The attributes'.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            f"the model changes its attribute '{paths[0]}' and its results depend on it; keep it "
            "in a buffer (register_buffer) of one shape and type, which goes on from call to call",
            value=paths,
        )
        self.paths = tuple(paths)


class OutsideTensorError(Exception):
    """A module writes into a tensor that is neither a buffer nor an attribute of it.

    Parameters
    ----------
    name : str
        What PyTorch calls it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"it writes into a tensor that is none of its buffers ('{name}'): one from outside, or "
            "by its 'data'; keep it in a buffer (register_buffer)"
        )


@contextmanager
def watched(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, strict: bool
) -> Iterator[list[Any]]:
    """Notice what the export of a module changes in its attributes.

    ``torch.export`` takes such a tensor for a constant, and such a number for a number: what one
    call leaves behind would not reach the next one.

    Parameters
    ----------
    module : torch.nn.Module
        That is exported.
    args, kwargs
        What it is called with.
    strict : bool
        Whether PyTorch reads the module's code, and that of whoever watches it.

    Yields
    ------
    list
        Takes the program.

    Raises
    ------
    KeptTensorError
        For a tensor that is read and then changed or replaced by another one.
    ModelError
        For a buffer that only a call makes.
    OutsideTensorError
        For what else is written.

    Warns
    -----
    UserWarning
        Of everything else that calls change, if a second call of the module gives something else
        for that reason.
    """
    programs: list[Any] = []
    before: dict[str, Any] = {}
    unmade, made = _unmade(module), list[str]()
    after: dict[str, Any] = {}
    hooks = []
    if not strict or any(_is_tensor(value) for _, _, value in _attributes(module)):
        hooks = [
            module.register_forward_pre_hook(lambda *_: before.update(_held(module))),
            module.register_forward_hook(lambda *_: after.update(_held(module))),
            module.register_forward_hook(lambda *_: made.extend(unmade - _unmade(module))),
            *_with_own_memory(module),
        ]
    try:
        with warnings.catch_warnings():
            # It is said below, where it matters.
            warnings.filterwarnings("ignore", message=".*assigned during export")
            yield programs
    except Exception as err:
        if made:
            raise _unmade_error(made[0]) from err
        raise
    finally:
        for hook in hooks:
            hook.remove()
        for path in made:
            owner, _, name = path.rpartition(".")
            module.get_submodule(owner)._buffers[name] = None
    if made:
        raise _unmade_error(made[0])
    read = {name for program in programs for name in program.constants}
    changed = [path for path in {**before, **after} if not _same(before, after, path)]
    tensors = [path for path in changed if path in read and _is_tensor(before.get(path))]
    written = [name for program in programs for name in _written(program)]
    tensors += [name for name in written if _is_tensor(before.get(name))]
    if tensors:
        raise KeptTensorError(tensors)
    if written:
        # Objects of other kinds may hold what is a buffer, too, as caches do: only PyTorch's
        # reading of the code tells.
        raise OutsideTensorError(written[0])
    if changed and _second_call_differs(module, args, kwargs):
        warnings.warn(
            f"the model changes its attribute '{_attribute(changed[0])}' and a second call gives "
            "something else: compiled is what the first one computes; what is kept from call to "
            "call has to be in a buffer (register_buffer) that is changed in place",
            stacklevel=2,
        )


def _with_own_memory(module: Any) -> list[Any]:
    """Hooks that copy what is assigned to a buffer where it is an input, which PyTorch 2.14 does
    not take, and what is given where it is a buffer that was assigned another tensor, into which
    PyTorch writes at the end."""
    from torch.utils import _pytree

    old: dict[tuple[Any, str], Any] = {}

    def begin(*_: Any) -> None:
        old.update({(part, name): held for part, name, held in _buffers(module)})

    def end(_module: Any, args: Any, kwargs: Any, results: Any) -> Any:
        given = set(map(id, _pytree.tree_leaves((args, kwargs))))
        written = set()
        for part, name, held in _buffers(module):
            before = old.get((part, name))
            if before is not None and before is not held:
                written.add(_memory(before))
            if id(held) in given:
                setattr(part, name, held.clone())
        if not written:
            return results
        return _pytree.tree_map(
            lambda one: one.clone() if _is_tensor(one) and _memory(one) in written else one, results
        )

    return [
        module.register_forward_pre_hook(begin),
        module.register_forward_hook(end, with_kwargs=True),
    ]


def _buffers(module: Any) -> list[tuple[Any, str, Any]]:
    return [
        (part, name, held)
        for part in module.modules()
        for name, held in part._buffers.items()
        if held is not None
    ]


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _unmade_error(path: str) -> ModelError:
    return ModelError(
        f"its buffer '{path}' is None until a first call makes it; make it beforehand, in one "
        "shape and type",
        value=path,
    )


def _unmade(module: Any) -> set[str]:
    """Buffers that are None, by their paths."""
    return {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        for name, held in part._buffers.items()
        if held is None
    }


@contextmanager
def as_buffers(module: Any, paths: Sequence[str]) -> Iterator[None]:
    """A module that keeps some of its tensors in buffers, and afterwards as it was.

    Parameters
    ----------
    module : torch.nn.Module
        Whose forward gives them the same shapes and types again.
    paths : sequence of str
        Of attributes that hold tensors.

    Yields
    ------
    None
        Meanwhile they are not persistent buffers of the same names.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.ReLU()
    >>> net.last = torch.zeros(3)
    >>> with as_buffers(net, ["last"]):
    ...     [name for name, _ in net.named_buffers()]
    ['last']
    >>> [name for name, _ in net.named_buffers()], "last" in vars(net)
    ([], True)
    """
    with plain_caches(module), ExitStack() as stack:
        for path in paths:
            owner, _, name = path.rpartition(".")
            part = module.get_submodule(owner)
            tensor = vars(part).pop(name)
            stack.callback(vars(part).__setitem__, name, tensor)
            part.register_buffer(name, tensor, persistent=False)
            stack.callback(part.__delattr__, name)
        yield


def _written(program: Any) -> list[str]:
    from collage.importers.torch.state import written_constants

    return written_constants(program)


def _attributes(module: Any) -> Iterator[tuple[Any, str, Any]]:
    """The parts' own attributes: whose, by their paths, and what they hold."""
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_") and name != "training":
                yield part, f"{path}.{name}" if path else name, value


def _held(module: Any) -> dict[str, Any]:
    """Tensors, numbers and text in attributes and in their lists and dicts, by their paths."""
    found: dict[str, Any] = {}
    for _, path, value in _attributes(module):
        _look_into(value, path, found, _DEEPEST)
    return found


def _look_into(value: Any, path: str, found: dict[str, Any], depth: int) -> None:
    if value is None or isinstance(value, _PLAIN) or _is_tensor(value):
        found[path] = value
    elif depth and type(value) in (list, tuple, dict):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        found[path] = len(value)
        for key, one in pairs:
            _look_into(one, f"{path}[{key!r}]", found, depth - 1)


def _same(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> bool:
    if path not in before or path not in after:
        return False
    old, new = before[path], after[path]
    if old is new:
        return True
    return type(old) is type(new) and isinstance(old, _PLAIN) and old == new


def _attribute(path: str) -> str:
    return path.partition("[")[0]


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)


def _second_call_differs(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether what a call leaves in attributes changes the next one; of what does not run, too."""
    import torch
    from torch.utils import _pytree

    attributes = [(part, dict(vars(part))) for part in module.modules()]
    registered = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    inside = [(value, _copy(value)) for _, _, value in _attributes(module)]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]

    def restore_buffers() -> None:
        for own, held in registered:
            own.clear()
            own.update(held)
        for buffer, held in buffers:
            buffer.copy_(held)

    def call() -> Any:
        own_args, own_kwargs = _pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        return module(*own_args, **own_kwargs)

    with torch.inference_mode():
        try:
            first = _pytree.tree_map_only(torch.Tensor, torch.clone, call())
            restore_buffers()
            return not _equal(_pytree.tree_leaves(first), _pytree.tree_leaves(call()))
        except Exception:  # noqa: BLE001 - a model's own code may raise anything
            return True
        finally:
            restore_buffers()
            for part, held in attributes:
                vars(part).clear()
                vars(part).update(held)
            for value, held in inside:
                _restore(value, held)


def _restore(value: Any, held: Any) -> None:
    if isinstance(value, list):
        value[:] = held
    elif isinstance(value, dict):
        value.clear()
        value.update(held)


def _copy(value: Any) -> Any:
    return type(value)(value) if type(value) in (list, dict) else value


def _equal(first: list[Any], second: list[Any]) -> bool:
    import torch

    if len(first) != len(second):
        return False
    return all(
        torch.equal(a, b)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        else type(a) is type(b) and (not isinstance(a, _PLAIN) or a == b)
        for a, b in zip(first, second, strict=True)
    )
