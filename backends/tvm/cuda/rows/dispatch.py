"""The pass that gives sorts and scans kernels of ours, before TVM's pass gives them its own."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.ir import Op

from collage.backends.tvm.cuda.ranks import ranked
from collage.backends.tvm.cuda.rows.scans import scanned
from collage.backends.tvm.cuda.rows.sorts import sorted_lines

_Dispatch = Callable[[relax.BlockBuilder, relax.Call, relax.Expr], relax.Expr | None]

_ROWS: dict[str, tuple[_Dispatch, ...]] = {
    **dict.fromkeys(["relax.sort", "relax.argsort", "relax.topk"], (ranked, sorted_lines)),
    **dict.fromkeys(["relax.cumsum", "relax.cumprod"], (scanned,)),
}
"""The first one that takes a call has it."""


def dispatch_rows() -> tvm.transform.Pass:
    """The pass; what none takes, as rows of symbolic lengths, is left to TVM's.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(4, 64)], lambda _, x: relax.op.sort(x, axis=1))
    >>> [str(gvar.name_hint) for gvar in dispatch_rows()(mod).get_global_vars()]
    ['main', 'ranked']
    """

    def dispatch(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mutator = _Dispatcher(mod)
        for var, func in mod.functions.items():
            if isinstance(func, relax.Function):
                mutator.builder_.update_func(var, mutator.visit_expr(func))
        return mutator.builder_.get()

    return tvm.transform.module_pass(dispatch, opt_level=0, name="DispatchRows")


@relax.expr_functor.mutator
class _Dispatcher(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        visited = super().visit_call_(call)
        if not isinstance(call.op, Op):
            return visited
        for dispatch in _ROWS.get(str(call.op.name), ()):
            found = dispatch(self.builder_, call, visited.args[0])
            if found is not None:
                return found
        return visited
