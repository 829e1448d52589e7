"""Looking at what a network's variables hold while it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tvm
from tvm import relax

from collage.cost.reference.arithmetic import MEANT
from collage.cost.reference.evaluator import Evaluator
from collage.cost.reference.values import Array


def observe(
    mod: tvm.IRModule,
    inputs: Sequence[Array],
    variables: Iterable[relax.Var],
    look: Callable[[relax.Var, Array], None],
) -> None:
    """Evaluate ``main`` and show some of its values, none of which is kept.

    Parameters
    ----------
    mod : IRModule
        Its ``main`` is evaluated.
    inputs : sequence of ndarray
        One per parameter.
    variables : iterable of relax.Var
        Tensors that ``main`` takes or binds.
    look : callable
        Called with a variable and its value.

    Raises
    ------
    MeasurementError
        When an operator can be evaluated neither by numpy nor by TVM.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(2,)], lambda emit, x: relax.op.exp(emit(relax.op.negative(x))))
    >>> first = mod["main"].body.blocks[0].bindings[0].var
    >>> observe(mod, [np.ones(2, np.float32)], [first], lambda var, value: print(value))
    [-1. -1.]
    """
    with np.errstate(all="ignore"):
        evaluator = _Observing(mod, frozenset(variables), look)
        evaluator.call_function(mod["main"], [MEANT.wide(array) for array in inputs])


class _Observing(Evaluator):
    def __init__(
        self,
        mod: tvm.IRModule,
        variables: frozenset[relax.Var],
        look: Callable[[relax.Var, Array], None],
    ) -> None:
        super().__init__(mod, MEANT)
        self._variables, self._look = variables, look

    def _keep(self, var: relax.Var) -> None:
        if var in self._variables:
            self._look(var, np.asarray(self.env[var]))
