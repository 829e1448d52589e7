"""From partition functions to calls of scheduled PrimFuncs.

Each partition function is legalized and fused by itself, so what was measured alone is what runs in
the whole module; then its body is inlined into ``main``. Functions of other backends are set aside
while Relax's passes run, because those passes would legalize their operators too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
import tvm_ffi
from tvm import relax, tirx

from collage.backends.contract import PARTITION_ATTR
from collage.backends.tvm.common.bounds import keep_inside
from collage.backends.tvm.common.shifted_indices import guard_shifted_indices

OP_PATTERN_OPAQUE = 8
"""``kOpaque`` of ``relax::OpPatternKind``: keeps later passes from fusing a scheduled kernel."""

ScheduleAll = Callable[[Sequence[tirx.PrimFunc]], Sequence[tirx.PrimFunc]]
"""Schedules the fused kernels of a module, all at once so that equal ones can share the work."""


_LOWERED_ATTR = "collage.lowered"
"""Of a kernel that has been scheduled here: a module may bring others that importers wrote, which
nothing fuses where they are opaque."""


def lower_module(
    mod: tvm.IRModule,
    device: tvm.target.Target,
    legalize_passes: Sequence[tvm.transform.Pass],
    schedule_all: ScheduleAll,
) -> tvm.IRModule:
    """Lower partitions of this backend and the operators left in ``main``.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitions of other backends stay as they are, and so do kernels that are scheduled already.
    device : tvm.target.Target
        The target that passes and schedules see as the current one.
    legalize_passes : sequence of tvm.transform.Pass
        From operators to fused tensor programs.
    schedule_all : callable
        From fused tensor programs to scheduled ones.

    Returns
    -------
    tvm.IRModule
        Without functions of this backend's partitions: their bodies stand where they were called.

    Examples
    --------
    >>> from collage.testing import graph
    >>> passes = [relax.transform.LegalizeOps()]
    >>> mod = graph([(8, 8)], lambda _, x: relax.op.nn.relu(x))
    >>> lowered = lower_module(mod, tvm.target.Target("llvm"), passes, list)
    >>> sorted(var.name_hint for var in lowered.get_global_vars())
    ['main', 'relu']
    """
    foreign = {gv: func for gv, func in mod.functions.items() if _is_foreign(func)}
    own = tvm.IRModule(
        {gv: func for gv, func in mod.functions.items() if gv not in foreign}, attrs=mod.attrs
    )
    # Relax fuses operators in dataflow blocks alone, and a partition's body is none yet.
    passes = [relax.transform.ConvertToDataflow(min_size=1), *legalize_passes]
    with device:
        own = tvm.transform.Sequential(passes)(own)
    # Inlining looks every call's target up, so the other backends' functions must be back by then.
    own = _inline_partitions(tvm.IRModule({**own.functions, **foreign}, attrs=own.attrs))
    own = tvm.IRModule(own.functions, attrs=own.attrs)
    fresh = {
        gv: func
        for gv, func in own.functions.items()
        if _is_kernel(func) and not func.attrs.get(_LOWERED_ATTR)
    }
    with device:
        scheduled = schedule_all(list(fresh.values()))
    for gv, func in zip(fresh, scheduled, strict=True):
        right = guard_shifted_indices(keep_inside(_unmarked(func)))
        own[gv] = right.with_attr({"op_pattern": OP_PATTERN_OPAQUE, _LOWERED_ATTR: True})
    return own


def lower_apart(
    mod: tvm.IRModule,
    wanted: Callable[[relax.Function], bool],
    lower: Callable[[tvm.IRModule], tvm.IRModule],
) -> tvm.IRModule:
    """Lower some partitions by themselves, in another way than the rest of their module.

    Their kernels get names of their own: the rest may make others of the same operators.

    Parameters
    ----------
    mod : tvm.IRModule
        ``main`` calls partition functions.
    wanted : callable
        Whether a partition function is one of them.
    lower : callable
        Lowers a module whose ``main`` calls one of them.

    Returns
    -------
    tvm.IRModule
        Those partition functions call scheduled kernels.
    """
    functions = dict(mod.functions)
    marked = [gv for gv, func in functions.items() if _is_partition(func) and wanted(func)]
    given = {gv: func for gv, func in functions.items() if _is_kernel(func)}
    for gv in marked:
        alone = tvm.IRModule({**given, relax.GlobalVar("main"): _as_main(functions[gv])})
        lowered = lower(alone)
        names = {
            kernel: _named(f"{gv.name_hint}_{kernel.name_hint}", kernel)
            for kernel, func in lowered.functions.items()
            if _is_kernel(func)
        }
        body = tvm_ffi.structural_map(
            lowered["main"], [(tvm.ir.GlobalVar, lambda var, names=names: names.get(var, var))]
        )
        functions[gv] = body.without_attr("global_symbol").with_attr(dict(functions[gv].attrs))
        functions.update((names[kernel], lowered[kernel]) for kernel in names)
    return tvm.IRModule(functions, attrs=mod.attrs) if marked else mod


def _as_main(func: relax.Function) -> relax.Function:
    """A partition function as the entry of a module of its own."""
    return func.without_attr(PARTITION_ATTR).with_attr("global_symbol", "main")


def _named(name: str, like: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
    var = relax.GlobalVar(name)
    relax.expr._update_type(var, like.ty)
    return var


def _unmarked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Without the marks of TVM's own programs that its code generation warns of, each time."""

    def attribute(stmt: tirx.AttrStmt) -> tirx.Stmt:
        return stmt.body if stmt.attr_key == "pragma_scope" else stmt

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.AttrStmt, attribute)]))


def _is_kernel(func: tvm.ir.BaseFunc) -> bool:
    return isinstance(func, tirx.PrimFunc)


def _is_foreign(func: tvm.ir.BaseFunc) -> bool:
    attrs = func.attrs
    return attrs is not None and ("Codegen" in attrs or "Composite" in attrs)


def _is_partition(func: tvm.ir.BaseFunc) -> bool:
    return func.attrs is not None and PARTITION_ATTR in func.attrs


def _inline_partitions(mod: tvm.IRModule) -> tvm.IRModule:
    """Inline the bodies of this backend's partition functions where they are called."""
    if not any(map(_is_partition, mod.functions.values())):
        return mod
    mod = relax.transform.InlinePrivateFunctions()(mod)
    return relax.transform.DeadCodeElimination()(mod)
