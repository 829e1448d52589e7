"""What Relax's ``RunCodegen`` calls for a backend: which function is for which of its targets.

Our own compiling goes this way, and so does plain TVM, which knows no targets of ours: there the
options are a target's attributes, and what was compiled for what is said beside the code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from collage.backends.contract.abilities import PreparesPartitions
from collage.backends.contract.backend import TARGET_ATTR, Backend, ExternalBackend
from collage.backends.contract.bound_constants import bind_constants
from collage.backends.contract.context import BuildContext, default_context
from collage.backends.contract.errors import CodegenError, CollageError, TargetError, last_line
from collage.backends.contract.target import BackendTarget
from collage.backends.devices import device_named

_NAMED = "collage target "


def run_codegen(
    backend: ExternalBackend,
    functions: Sequence[relax.Function],
    options: Mapping[str, Any],
    names: Mapping[Any, str],
) -> list[tvm.runtime.Module]:
    """Compile all functions of one backend in a module; ``RunCodegen`` calls this.

    Parameters
    ----------
    backend : ExternalBackend
        Who compiles.
    functions : sequence of relax.Function
        With the attributes ``Codegen`` and ``global_symbol``.
    options : mapping of str to object
        What ``RunCodegen`` was given for the backend: from :func:`codegen_options`, from
        :meth:`TargetSet.codegen_options`, or attributes of the backend's target.
    names : mapping of Constant to str
        Names of constants in the module's ``const_name_to_constant``: by these, functions get those
        that they take as arguments. Other backends embed theirs.

    Returns
    -------
    list of tvm.runtime.Module
        What the backend's ``codegen`` gave, with stubs and names of targets that a plain link
        needs.

    Raises
    ------
    CodegenError, CompileError, TargetError
        As the backend and :func:`target_of` raise them.
    """
    # None of these is there in plain Relax BYOC, whose options are the target's attributes.
    targets = options.get("targets") or [_plain_target(backend, options)]
    context = options.get("context") or default_context()
    modules: list[tvm.runtime.Module] = []
    if "failures" not in options and backend.constants_as_arguments:
        device = int(tvm.device(backend.device).dlpack_device_type())
        functions, modules = bind_constants(functions, names, device)
    try:
        for target, mine in _by_target(functions, targets).items():
            with target.scope:
                modules += backend.codegen(prepared(mine, target), target, context)
    except CollageError as err:
        # An error loses its type on its way through TVM: the caller finds it here instead.
        if "failures" in options:
            options["failures"].errors.append(err)
        raise
    if "failures" not in options:
        # Whoever links these has no list of targets.
        modules += [_named_target(target) for target in _by_target(functions, targets)]
    return modules


def _named_target(target: BackendTarget) -> tvm.runtime.Module:
    """A module without any function that says which target others beside it were compiled for."""
    text = json.dumps(str(target.scope))
    source = f"static const char* const collage_target[] __attribute__((unused)) = {{{text}}};"
    create = tvm_ffi.get_global_func("runtime.CSourceModuleCreate")
    # TVM asks such a module for the first of its functions, and nobody calls it.
    return create(f"/* {_NAMED}*/ {source}\n", "cc", [_NAMED.strip()], [])


def named_targets(module: tvm.runtime.Module) -> list[BackendTarget]:
    """The targets that a module's imports were compiled for, as far as they say so.

    Parameters
    ----------
    module : tvm.runtime.Module
        What ``tvm.compile`` made of what ``RunCodegen`` gave.
    """
    found: dict[BackendTarget, None] = {}
    seen: list[tvm.runtime.Module] = [module]
    for one in seen:
        seen += [other for other in one.imports if not any(other.same_as(m) for m in seen)]
        text = str(one.inspect_source()) if one.kind == "c" else ""
        if _NAMED in text:
            scope = json.loads(text[text.index("{") + 1 : text.rindex("}")])
            found[BackendTarget.of_scope(tvm.target.Target(scope))] = None
    return list(found)


def _by_target(
    functions: Sequence[relax.Function], targets: Sequence[BackendTarget]
) -> dict[BackendTarget, list[relax.Function]]:
    """Functions of one backend by the targets that are to compile them."""
    found: dict[BackendTarget, list[relax.Function]] = {}
    for function in functions:
        found.setdefault(target_of(function, targets), []).append(function)
    return found


def prepared(functions: Sequence[relax.Function], target: BackendTarget) -> list[relax.Function]:
    """Partition functions as their backend's own passes leave them.

    Parameters
    ----------
    functions : sequence of relax.Function
        Of one target; of any number of modules: symbols may repeat.
    target : BackendTarget
        Its backend's passes run, if it has any.

    Returns
    -------
    list of relax.Function
        In the order of ``functions``; these themselves where the backend has no passes.

    Raises
    ------
    CodegenError
        When a pass fails, or does not keep a function's symbol, parameters and results.
    """
    backend = target.implementation
    if not isinstance(backend, PreparesPartitions):
        return list(functions)
    passes = tvm.transform.Sequential(list(backend.partition_passes(target)))
    return [_prepared(function, passes, backend.name) for function in functions]


def _prepared(function: relax.Function, passes: tvm.transform.Pass, backend: str) -> relax.Function:
    symbol = str(function.attrs["global_symbol"])
    try:
        after = passes(tvm.IRModule({symbol: function}))[symbol]
    except (RuntimeError, ValueError, TypeError) as err:
        raise CodegenError(
            f"a pass of '{backend}' fails on '{symbol}': {last_line(err)}", value=symbol
        ) from err
    kept = {name: after.attrs.get(name) for name in ("Codegen", "global_symbol", TARGET_ATTR)}
    if kept != {name: function.attrs.get(name) for name in kept} or not _same_type(after, function):
        raise CodegenError(
            f"the passes of '{backend}' change what '{symbol}' is called or takes", value=symbol
        )
    return after


def _same_type(one: relax.Function, other: relax.Function) -> bool:
    types = [relax.FuncType([p.ty for p in f.params], f.ret_ty) for f in (one, other)]
    return bool(tvm_ffi.structural_equal(*types))


def target_of(function: relax.Function, targets: Sequence[BackendTarget]) -> BackendTarget:
    """The target that a partition function is for.

    Parameters
    ----------
    function : relax.Function
        With the attribute ``Codegen``.
    targets : sequence of BackendTarget
        One of them.

    Returns
    -------
    BackendTarget
        One of ``targets``.

    Raises
    ------
    TargetError
        When none of them is.
    """
    backend = str(function.attrs["Codegen"])
    name = str(function.attrs.get(TARGET_ATTR) or backend)
    mine = [target for target in targets if target.backend == backend]
    for target in mine:
        # Whoever partitions by hand names backends alone.
        if target.name == name or (len(mine) == 1 and name == backend):
            return target
    raise TargetError(
        f"a function is for the target '{name}', which is none of these: "
        f"{', '.join(target.name for target in targets)}",
        value=name,
    )


def _plain_target(backend: Backend, attributes: Mapping[str, Any]) -> BackendTarget:
    """What Relax's own passes compile for: the current target, if it is of the backend's device."""
    kind = device_named(backend.device)
    device = tvm.target.Target.current(allow_none=True)
    if device is None or device.kind.name != kind.target_kind:
        device = kind.any_target()
    given = {str(name): _plain(value) for name, value in attributes.items()}
    return BackendTarget.of(backend.name, device, given)


def _plain(value: Any) -> Any:
    """An attribute as Python has it: through TVM, texts and numbers become objects of TVM's."""
    return str(value) if isinstance(value, str) else getattr(value, "value", value)


@dataclass
class CodegenFailures:
    """Errors that code generators raised under ``RunCodegen``, with their types and values."""

    errors: list[CollageError] = field(default_factory=list)


def codegen_options(
    targets: Sequence[BackendTarget], context: BuildContext, failures: CodegenFailures
) -> dict[str, Any]:
    """What ``RunCodegen`` is to hand to a backend as its options.

    Parameters
    ----------
    targets : sequence of BackendTarget
        What the backend compiles for, each function for one of them.
    context : BuildContext
        Where and how.
    failures : CodegenFailures
        Gets the errors that the code generator raises.

    Returns
    -------
    dict[str, Any]
        As :func:`run_codegen` reads it.
    """
    return {"targets": list(targets), "context": context, "failures": failures}
