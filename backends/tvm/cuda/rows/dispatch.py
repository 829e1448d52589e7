"""The pass that gives sorts and scans kernels of ours, before TVM's pass gives them its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax
from tvm.ir import Op

from collage.backends.relax.kept_whole.order_statistics import NAME as ORDER_STATISTIC
from collage.backends.relax.kept_whole.order_statistics import expanded
from collage.backends.tvm.cuda.ranks import ranked
from collage.backends.tvm.cuda.rows.scans import scanned
from collage.backends.tvm.cuda.rows.sorts import sorted_lines
from collage.backends.tvm.cuda.rows.statistics import looked_up
from collage.backends.tvm.cuda.sort_calls import SORTS

_Dispatch = Callable[[relax.BlockBuilder, relax.Call, relax.Expr], relax.Expr | None]

_ROWS: dict[str, tuple[_Dispatch, ...]] = {
    **dict.fromkeys(SORTS, (ranked, sorted_lines)),
    **dict.fromkeys(["relax.cumsum", "relax.cumprod"], (scanned,)),
    ORDER_STATISTIC: (looked_up,),
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

    return tvm.transform.Sequential(
        [
            _of_functions(lambda mod: _Dispatcher(mod, _ROWS), "DispatchRows"),
            expand_statistics(),
            # What they stand for has sorts.
            _of_functions(lambda mod: _Dispatcher(mod, _ROWS), "DispatchExpandedRows"),
        ]
    )


def expand_statistics() -> tvm.transform.Pass:
    """Medians and modes without a kernel become what they stand for, before any sort is lowered.

    Examples
    --------
    >>> from collage.backends.relax.kept_whole.order_statistics import MEDIAN, order_statistic
    >>> from collage.testing import graph
    >>> mod = graph([(4, 64)], lambda _, x: order_statistic(x, MEDIAN, 1), "int32")
    >>> "R.argsort" in expand_statistics()(mod).script()
    True
    """

    def expand(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr:
        again = builder.normalize(relax.Call(call.op, [x], call.attrs))
        return relax.Tuple(expanded(builder, again))

    return _of_functions(
        lambda mod: _Dispatcher(mod, {ORDER_STATISTIC: (expand,)}), "ExpandStatistics"
    )


def _of_functions(make: Callable[[tvm.IRModule], _Dispatcher], name: str) -> tvm.transform.Pass:
    def dispatch(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mutator = make(mod)
        for var, func in mod.functions.items():
            if isinstance(func, relax.Function):
                mutator.builder_.update_func(var, mutator.visit_expr(func))
        return mutator.builder_.get()

    return tvm.transform.module_pass(dispatch, opt_level=0, name=name)


@relax.expr_functor.mutator
class _Dispatcher(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, ways: Mapping[str, tuple[_Dispatch, ...]]) -> None:
        super().__init__(mod)
        self._ways = ways

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        visited = super().visit_call_(call)
        if not isinstance(call.op, Op):
            return visited
        for dispatch in self._ways.get(str(call.op.name), ()):
            found = dispatch(self.builder_, call, visited.args[0])
            if found is not None:
                return found
        return visited
