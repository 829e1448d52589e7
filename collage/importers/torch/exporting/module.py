"""PyTorch modules in memory: exported here, in evaluation mode, by their example inputs."""

from __future__ import annotations

import inspect
import io
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from collage.backends.contract.errors import InputError, ModelError
from collage.importers.torch.exporting.attributes import (
    KeptTensorError,
    OutsideTensorError,
    as_buffers,
    watched,
)
from collage.importers.torch.exporting.caches import (
    gives_cache,
    plain_caches,
    plain_results,
    without_cache,
)
from collage.importers.torch.exporting.derivatives import noticing, written_out
from collage.importers.torch.exporting.eager import as_run_at_once, require_same
from collage.importers.torch.exporting.numbers import has_numbers, known_numbers
from collage.importers.torch.exporting.reasons import gives_unknown, reason_of_failure, scripted
from collage.importers.torch.exporting.untold import Questions
from collage.structure import FixedTensor

_log = logging.getLogger(__name__)

ExampleInputs: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
"""What a module is called with, by position or by name."""
_Way: TypeAlias = tuple[bool, Callable[[Any], AbstractContextManager[None]]]
"""Whether to trace strictly, and what is changed in the module meanwhile."""


def is_module(source: object) -> bool:
    """Whether this is a ``torch.nn.Module``; torch is not imported to find out.

    Examples
    --------
    >>> import torch
    >>> is_module(torch.nn.ReLU()), is_module(torch.nn.functional.relu)
    (True, False)
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


@dataclass(frozen=True)
class ExportedModule:
    """A module's program, and how the module itself is called.

    Attributes
    ----------
    name : str
        Of its class.
    program : torch.export.ExportedProgram
        It.
    forward : inspect.Signature
        Of the module's ``forward``.
    fixed : tuple of FixedTensor
        Inputs whose numbers are compiled in.
    roomier : torch.export.ExportedProgram or None
        The program with other room for the rows that data choose, where it has room for all.

    Examples
    --------
    >>> import torch
    >>> export_module(torch.nn.ReLU(), torch.zeros(4)).name
    'ReLU'
    """

    name: str
    program: Any
    forward: inspect.Signature
    fixed: tuple[FixedTensor, ...] = ()
    roomier: Any = None

    def __str__(self) -> str:
        return self.name


def export_module(
    module: Any,
    example_inputs: ExampleInputs,
    dynamic_shapes: Any = None,
    check_sec: float | None = None,
) -> ExportedModule:
    """Export a module, with weights and modes of the module left as they were.

    Parameters
    ----------
    module : torch.nn.Module
        Exported in evaluation mode, whatever it is in.
    example_inputs : sequence or mapping
        What ``forward`` takes, by position or by name; all extents are theirs but for those of
        ``dynamic_shapes``.
    dynamic_shapes : dict, tuple or list, optional
        The open dimensions, as ``torch.export.export`` takes them.
    check_sec : float, optional
        How long what was traced may be held against the module.

    Returns
    -------
    ExportedModule
        With the signature of ``forward``.

    Raises
    ------
    InputError
        When there are none, or ``forward`` does not take them, or it is no module.
    ModelError
        When PyTorch cannot export it, with these dimensions open.

    Examples
    --------
    >>> import torch
    >>> exported = export_module(torch.nn.Linear(8, 2), torch.zeros(4, 8))
    >>> list(exported.forward.parameters)
    ['input']
    """
    name = type(module).__name__
    if not is_module(module):
        raise InputError(f"dynamic_shapes are for a torch.nn.Module, not for a {name}", value=name)
    if reason := scripted({"": module}):
        raise ModelError(f"torch.export cannot export '{name}': {reason}", value=name)
    # Not before: this is imported with or without PyTorch.
    from collage.importers.torch.exporting.finite import is_undecided

    questions, call = Questions(), _call(module, example_inputs)
    try:
        return _by_some_way(module, *call, dynamic_shapes, check_sec, questions)
    except ModelError as err:
        why = err.__cause__
        if not questions.asked or (isinstance(why, Exception) and is_undecided(why)):
            raise
        try:
            return _by_some_way(module, *call, dynamic_shapes, check_sec, Questions(told=False))
        except ModelError as other:
            _log.debug("nor can it be exported where it is not told that it is: %s", other)
            raise err from why


def _by_some_way(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    check_sec: float | None,
    questions: Questions,
) -> ExportedModule:
    """The program of the first way that takes the module."""
    # Not before: this is imported with or without PyTorch.
    from collage.importers.torch.exporting.decided import Decided, numbers_as_sizes
    from collage.importers.torch.exporting.finite import is_undecided, taken_for_finite
    from collage.importers.torch.exporting.packed import has_recurrent, padded_sequences
    from collage.importers.torch.exporting.rooms import (
        running_with_room,
        with_other_rooms,
        with_room,
    )
    from collage.importers.torch.uncounted import with_all_rows

    name = type(module).__name__
    export = partial(_exported, module, args, kwargs, dynamic_shapes, questions)
    failed: Exception | None = None
    refused: ModelError | None = None
    # Strictly it reads the code, and takes bodies behind others that it otherwise does not.
    ways: list[_Way] = [(False, plain_caches), *[(True, plain_caches)] * questions.told]
    ways += [(False, without_cache)] * gives_cache(module)
    ways += [(False, known_numbers)] * has_numbers(module)
    ways += [(False, padded_sequences)] * has_recurrent(module)
    finite: list[_Way] = [
        (False, partial(taken_for_finite, changed=way)) for strict, way in ways if not strict
    ]
    decided = Decided(args, kwargs)
    changes = [plain_caches, *[without_cache] * gives_cache(module)]
    followed: list[_Way] = [(False, partial(decided.followed, changed=way)) for way in changes]
    rooms: list[_Way] = [(False, partial(with_room, changed=way)) for way in changes]
    later = [[*followed], finite, [*rooms]]
    unsized: ExportedModule | None = None
    while ways or (later and is_undecided(failed) and unsized is None):
        ways = ways or later.pop(0)
        way = strict, changed = ways.pop(0)
        try:
            with noticing() as derivatives, changed(module):
                program = with_all_rows(export(strict=strict))
            roomier, called = None, None
            if way in rooms and not derivatives:
                plainly = partial(export, strict=False)
                roomier, empty = with_other_rooms(plainly, partial(changed, module))
                called = running_with_room(program, roomier, empty)
            if not derivatives:
                parts = _parts_of(changed)
                others = (one for one in (without_cache, plain_results) if one in parts)
                plain = next(others, plain_caches)
                with _evaluating(module):
                    require_same(program, module, args, kwargs, plain, check_sec, called)
                sizes = numbers_as_sizes(program)
                fixed = decided.fixed() if way in followed else ()
                call = inspect.signature(module.forward)
                found = ExportedModule(name, program, call, fixed, roomier)
                if not sizes or (way in followed and not decided.learns_sizes(sizes)):
                    return found
                ways, unsized = [way if way in followed else followed[0]], found
                continue
        except KeptTensorError as err:
            if refused is not None:
                break
            refused = err
            ways = [(False, partial(as_buffers, paths=err.paths))]
        except ModelError as err:
            refused = err
            break
        except Exception as err:  # noqa: BLE001 - torch raises anything; the first says why
            ways = [(False, plain_results)] * (failed is None and gives_unknown(err)) + ways
            ways = [way] * decided.learns(err) + ways
            failed = err if isinstance(err, OutsideTensorError) else failed or err
        if derivatives:
            return _differentiated(module, args, kwargs, dynamic_shapes)
    if unsized is not None:  # Who imports it says what is in the way.
        return unsized
    failed = failed or refused
    assert failed is not None, "it was tried"
    why = refused or reason_of_failure(failed, dict(module.named_modules()))
    raise ModelError(f"torch.export cannot export '{name}': {why}", value=name) from failed


def _parts_of(changed: Any) -> tuple[Any, ...]:
    """What is changed in a module, and what besides."""
    return changed, getattr(changed, "keywords", {}).get("changed")


def _differentiated(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedModule:
    """A module that computes derivatives, of one shape."""
    name = type(module).__name__
    if dynamic_shapes is not None:
        raise ModelError(
            f"'{name}' differentiates as it runs, which is written out for one shape; leave out "
            "dynamic_shapes",
            value=name,
        )
    try:
        with _evaluating(module), written_out(module, args, kwargs):
            program = _exported(module, args, kwargs, None, Questions(), strict=False)
    except Exception as err:
        reason = reason_of_failure(err, dict(module.named_modules()))
        raise ModelError(
            f"'{name}' differentiates as it runs, which cannot be written out: {reason}", value=name
        ) from err
    return ExportedModule(name, program, inspect.signature(module.forward))


def _exported(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    questions: Questions,
    *,
    strict: bool,
) -> Any:
    import torch

    from collage.importers.torch.exporting.checks import passing_checks
    from collage.importers.torch.exporting.layer_shapes import shapes_of_layers
    from collage.importers.torch.exporting.weight_notes import notes_of_weights

    # What bodies of control flow were traced with before must not open their dimensions.
    fixed = torch._dynamo.config.patch(automatic_dynamic_shapes=False)
    changes = (as_run_at_once(), shapes_of_layers(), notes_of_weights())
    with ExitStack() as stack:
        # In strict mode PyTorch knows the functions by their names.
        asked = () if strict else (questions.heard(module), passing_checks())
        for each in (_evaluating(module), torch.no_grad(), _quietly(), fixed, *changes, *asked):
            stack.enter_context(each)
        programs = stack.enter_context(watched(module, args, kwargs, strict=strict))
        program = torch.export.export(
            module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict
        )
        programs.append(program)
    return program


def _call(module: Any, example_inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call as ``forward`` has its parameters: by position as far as there is one for each."""
    name = type(module).__name__
    if example_inputs is None:
        raise InputError(
            f"to optimize the module '{name}' give example_inputs=(...), what it is called with",
            value=name,
        )
    if isinstance(example_inputs, Mapping):
        given: tuple[tuple[Any, ...], dict[str, Any]] = ((), dict(example_inputs))
    elif isinstance(example_inputs, tuple | list):
        given = (tuple(example_inputs), {})
    else:
        # One tensor would be taken for a sequence of its rows.
        given = ((example_inputs,), {})
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*given[0], **given[1])
    except TypeError as err:
        raise InputError(
            f"'{name}' cannot be called with these example inputs: {err}; it takes {signature}",
            value=name,
        ) from err
    return bound.args if not given[1] else (), _named(bound) if given[1] else {}


def _named(bound: inspect.BoundArguments) -> dict[str, Any]:
    """By name, in the order of the parameters."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the graph that PyTorch writes to the terminal before it raises."""
    said = io.StringIO()
    with redirect_stderr(said):
        yield
    sys.stderr.write(said.getvalue())


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode, and afterwards each part in the mode that it was in."""
    modes = {part: part.training for part in module.modules()}
    with suppress(NotImplementedError):  # Of a program, exported before, that is settled.
        module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
