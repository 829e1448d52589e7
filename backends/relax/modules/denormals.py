"""Has functions run with denormal numbers flushed to zero, in every thread that takes part.

Values fade out in deep networks, and an operation on a denormal takes some processors a hundred
times as long as one on zero. What the two calls do is in ``toolchain/templates/denormals.c``.
"""

from __future__ import annotations

import tvm
from tvm import ir, relax

from collage.backends.contract import BuildContext
from collage.backends.toolchain import native

_EXTERNAL_MODS = "external_mods"
_FLUSH, _RESTORE = "collage_flush_denormals", "collage_restore_denormals"


def flush_denormals(
    mod: tvm.IRModule, context: BuildContext, *, with_pool: bool = True
) -> tvm.IRModule:
    """Flush denormals from the first binding of each public function to its last.

    Parameters
    ----------
    mod : tvm.IRModule
        Its external functions are compiled already, or it has none.
    context : BuildContext
        Where to build what is called.
    with_pool : bool
        Whether libraries run loops of their own on the pool that all share.

    Returns
    -------
    IRModule
        A copy; the module that was given is as it was.

    Raises
    ------
    CompileError
        When the compiler fails, or the processor's way to flush is not known.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> flushed = flush_denormals(mod, BuildContext(Path("cache"), Path("scratch")))
    >>> len(mod["main"].body.blocks), len(flushed["main"].body.blocks)
    (1, 3)
    """
    updated = mod.clone()
    # TVM's own kernels pass the caller's flags on; a library's loops do not.
    others = list(mod.attrs[_EXTERNAL_MODS]) if mod.attrs and _EXTERNAL_MODS in mod.attrs else []
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {}):
            updated[var] = _flushing(function, with_pool=with_pool and bool(others))
    library = tvm.runtime.load_static_library(
        str(native.denormals_object(context)), [_FLUSH, _RESTORE]
    )
    return relax.transform.Normalize()(updated.with_attr(_EXTERNAL_MODS, [*others, library]))


def _flushing(function: relax.Function, *, with_pool: bool) -> relax.Function:
    flags = relax.Var("denormals", relax.AnyType())
    output = relax.Var("output", function.ret_ty)
    restored = relax.Var("restored", relax.AnyType())
    first = relax.BindingBlock(
        [relax.VarBinding(flags, _call(_FLUSH, relax.prim_value(int(with_pool))))]
    )
    last = relax.BindingBlock(
        [
            relax.VarBinding(output, function.body.body),
            relax.VarBinding(restored, _call(_RESTORE, flags)),
        ]
    )
    body = relax.SeqExpr([first, *function.body.blocks, last], output)
    return relax.Function(function.params, body, function.ret_ty, False, function.attrs)


def _call(function: str, *args: relax.Expr) -> relax.Expr:
    return ir.Call(relax.ExternFunc(function), args, ty_args=[relax.AnyType()])
