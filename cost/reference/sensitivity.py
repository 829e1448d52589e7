"""How much a network's outputs change when one of its products is computed with fewer digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import tvm
from tvm import relax

from collage.backends.relax.byte_products import ByteProduct
from collage.backends.relax.stepped import Steps
from collage.cost.deadline import NEVER, Deadline
from collage.cost.reference.arithmetic import MEANT
from collage.cost.reference.compare import distance
from collage.cost.reference.evaluator import Evaluator
from collage.cost.reference.rounding import rounded
from collage.cost.reference.values import Array, Value, leaves

_PRODUCTS = ("relax.matmul", "relax.nn.conv", "relax.nn.attention")


def is_product(value: relax.Expr) -> bool:
    """Whether a binding's value multiplies tensors: what libraries compute with fewer digits."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    return str(value.op.name).startswith(_PRODUCTS)


Operand = Callable[[Value, relax.Expr], Value]
"""What a product computes with in place of an argument, given its value and its expression."""

Rounding = Callable[[relax.Binding], Operand | None]
"""For a binding, what becomes of its operands; None where it is left as it is."""


def in_form(form: str) -> Rounding:
    """Products with their float32 operands, weights among them, rounded to a format.

    Parameters
    ----------
    form : str
        A key of :data:`~collage.cost.reference.rounding.EPSILON`.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(4,)], lambda _, x: relax.op.exp(x))
    >>> in_form("bfloat16")(mod["main"].body.blocks[0].bindings[0]) is None
    True
    """
    fewer = partial(_fewer, form)
    return lambda binding: fewer if is_product(binding.value) else None


def in_bytes(steps: Mapping[relax.Var, Steps], most: int) -> Rounding:
    """Products with their first operand rounded to steps, and weights to signed bytes.

    Parameters
    ----------
    steps : mapping of relax.Var to Steps
        By the variable that is bound to the product.
    most : int
        Weights are whole numbers up to it.

    Returns
    -------
    callable
        Leaves products alone that bytes cannot stand for.

    Examples
    --------
    >>> in_bytes({}, 127)(relax.VarBinding(relax.Var("y"), relax.const(1.0))) is None
    True
    """

    def rounding(binding: relax.Binding) -> Operand | None:
        product = ByteProduct.of(binding.value)
        known = steps.get(binding.var)
        if product is None or known is None:
            return None

        def operand(value: Value, expr: relax.Expr) -> Value:
            if expr.same_as(product.call.args[1]):
                return product.rounded_weights(most)
            if not expr.same_as(product.operand):
                return value
            whole = np.clip(np.rint(value / np.float32(known.step)) + known.point, 0, 255)
            return (whole - np.float32(known.point)) * np.float32(known.step)

        return operand

    return rounding


def sensitivities(
    mod: tvm.IRModule,
    inputs: Sequence[Array],
    rounding: Rounding,
    deadline: Deadline = NEVER,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[relax.Var, float]:
    """What rounding the operands of one product at a time does to the outputs of ``main``.

    The network is evaluated once as it is meant, and for each product once more from there on, with
    that product's operands rounded and its sums in full.

    Parameters
    ----------
    mod : IRModule
        Its ``main`` has one block of bindings.
    inputs : sequence of ndarray
        One per parameter.
    rounding : callable
        From :func:`in_form` or :func:`in_bytes`; bindings that it leaves alone are left out.
    deadline : Deadline, optional
        Products that were not looked at by then are as bad as the worst of the others; where that
        is none, infinitely bad.
    progress : callable, optional
        Told how many of how many are done.

    Returns
    -------
    dict of relax.Var to float
        For each variable that is bound to a product, the largest change of an output relative to
        that output's largest value.

    Raises
    ------
    MeasurementError
        When an operator can be evaluated neither by numpy nor by TVM.

    Notes
    -----
    One evaluation holds every intermediate result. Time is quadratic in the depth of the network,
    at the speed of numpy.

    Examples
    --------
    >>> from collage.testing import constant, graph
    >>> mod = graph([(4, 8)], lambda emit, x: relax.op.matmul(x, constant(8, 8)))
    >>> x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    >>> (found,) = sensitivities(mod, [x], in_form("bfloat16")).values()
    >>> 2**-12 < found < 2**-6
    True
    """
    found: dict[relax.Var, float] = {}
    with np.errstate(all="ignore"):
        walk = Walk(mod, inputs)
        rounded = {i: made for i, b in enumerate(walk.bindings) if (made := rounding(b))}
        products = list(rounded)
        # Spread over the network, so that what there was time for tells of the rest.
        for done, index in enumerate(_spread(products)):
            if deadline.is_up:
                break
            found[walk.bindings[index].var] = walk.change(index, rounded[index])
            progress(done + 1, len(products))
    worst = max(found.values(), default=float("inf"))
    return {walk.bindings[i].var: found.get(walk.bindings[i].var, worst) for i in products}


class Walk:
    """A network's values as they are meant, and what becomes of them from some binding on.

    Parameters
    ----------
    mod : IRModule
        Its ``main`` has one block of bindings.
    inputs : sequence of ndarray
        One per parameter.
    """

    def __init__(self, mod: tvm.IRModule, inputs: Sequence[Array]) -> None:
        function = mod["main"]
        self.bindings = [b for block in function.body.blocks for b in block.bindings]
        self._result = function.body.body
        self._evaluator = Evaluator(mod, MEANT)
        self._readers = _readers(self.bindings)
        env = self._evaluator.env
        env.update(zip(function.params, map(MEANT.wide, inputs), strict=True))
        for binding in self.bindings:
            env[binding.var] = self._evaluator.expr(binding.value)
        self._expected = leaves(self._evaluator.expr(self._result))
        self._meant = dict(env)

    def change(self, index: int, operand: Operand) -> float:
        """How far the outputs are off when one product's operands are rounded.

        Parameters
        ----------
        index : int
            Of the product among the bindings.
        operand : callable
            What becomes of them.

        Returns
        -------
        float
            The largest of an output's, relative to its largest value.
        """
        env, binding = self._evaluator.env, self.bindings[index]
        touched = [index]
        env[binding.var] = self._evaluator.call(binding.value, operand)
        waiting = set(self._readers.get(binding.var, ()))
        while waiting:
            reader = min(waiting)
            waiting.discard(reader)
            var = self.bindings[reader].var
            env[var] = self._evaluator.expr(self.bindings[reader].value)
            touched.append(reader)
            waiting.update(self._readers.get(var, ()))
        error = self._error()
        self._restore(touched)
        return error

    def together(self, rounding: Rounding) -> float:
        """How far the outputs are off when all products are rounded."""
        env = self._evaluator.env
        with np.errstate(all="ignore"):
            for binding in self.bindings:
                operand = rounding(binding)
                env[binding.var] = (
                    self._evaluator.expr(binding.value)
                    if operand is None
                    else self._evaluator.call(binding.value, operand)
                )
            error = self._error()
        self._restore(range(len(self.bindings)))
        return error

    def _error(self) -> float:
        got = leaves(self._evaluator.expr(self._result))
        pairs = zip(got, self._expected, strict=True)
        return max((distance(one, wanted).largest for one, wanted in pairs), default=0.0)

    def _restore(self, touched: Iterable[int]) -> None:
        for position in touched:
            var = self.bindings[position].var
            self._evaluator.env[var] = self._meant[var]


def _readers(bindings: Sequence[relax.Binding]) -> dict[relax.Var, list[int]]:
    readers: dict[relax.Var, list[int]] = {}
    for index, binding in enumerate(bindings):
        for var in relax.analysis.free_vars(binding.value):
            readers.setdefault(var, []).append(index)
    return readers


def _fewer(form: str, value: Value, operand: relax.Expr) -> Value:
    """The value with float32 numbers rounded; what is of few digits anyway is left as it is."""
    if not isinstance(value, np.ndarray) or not isinstance(operand.ty, relax.TensorType):
        return value
    return rounded(value, form) if str(operand.ty.dtype) == "float32" else value


def _spread(indices: Sequence[int]) -> list[int]:
    """The same in another order: halves before quarters before eighths."""
    order: list[int] = []
    step = 1
    while step < len(indices):
        step *= 2
    seen: set[int] = set()
    while step:
        order += [i for i in range(0, len(indices), step) if i not in seen]
        seen.update(order)
        step //= 2
    return [indices[i] for i in order]
