"""Pattern and predicate builders that the library backends share.

Patterns follow the canonical form that ``normalize`` produces: weights and biases are constants,
biases are added after the operator, hard-swish and its kin are chains. Addition and multiplication
are matched in either operand order where the operands' roles differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from collage.backends.contract import Match, Predicate, Verdict
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape


@dataclass(frozen=True)
class Chain:
    """A pattern under construction: its root and the sub-patterns that a predicate asks for.

    Examples
    --------
    >>> root = wildcard()
    >>> chain = Chain(root, {"root": root}).then(is_op("relax.nn.relu")(root))
    >>> list(chain.annotations)
    ['root']
    """

    pattern: DFPattern
    annotations: Mapping[str, DFPattern] = field(default_factory=dict)

    def then(self, pattern: DFPattern, **named: DFPattern) -> Chain:
        """The chain with ``pattern`` as its new root and more named sub-patterns.

        Parameters
        ----------
        pattern : DFPattern
            The root; it stands on the chain's.
        **named : DFPattern
            Sub-patterns by the names that predicates know them by.
        """
        return Chain(pattern, {**self.annotations, **named})


def operator(name: str, operands: int, constants: Sequence[int] = ()) -> Chain:
    """A call of a Relax operator, named ``root``; its operands are named ``arg0``, ``arg1``, ….

    Parameters
    ----------
    name : str
        For example ``relax.nn.conv2d``.
    operands : int
        How many arguments the operator takes.
    constants : sequence of int
        Positions that must hold a ``relax.Constant``.

    Examples
    --------
    >>> list(operator("relax.nn.conv2d", 2, constants=[1]).annotations)
    ['root', 'arg0', 'arg1']
    """
    args = [is_const() if i in constants else wildcard() for i in range(operands)]
    call = is_op(name)(*args)
    return Chain(call, {"root": call, **{f"arg{i}": arg for i, arg in enumerate(args)}})


def permuted_matmuls(names: tuple[str, str]) -> Iterator[tuple[str, Chain]]:
    """Products with a ``permute_dims`` on an operand or the result, and what their names say.

    Parameters
    ----------
    names : (str, str)
        The operands'; what is permuted is named ``<name>_source``.

    Yields
    ------
    (str, Chain)
        For example ``permuted_lhs_result``.
    """
    for places in itertools.product((False, True), repeat=3):
        if not any(places):
            continue
        named: dict[str, DFPattern] = {}
        for name, permuted in zip(names, places[:2], strict=True):
            named[f"{name}_source"] = source = wildcard()
            named[name] = is_op("relax.permute_dims")(source) if permuted else source
        product = is_op("relax.matmul")(*(named[name] for name in names))
        chain = Chain(product, {"root": product, **named})
        if places[2]:
            chain = chain.then(is_op("relax.permute_dims")(product))
        where = zip(("lhs", "rhs", "result"), places, strict=True)
        yield "permuted_" + "_".join(what for what, on in where if on), chain


def either_order(name: str, a: DFPattern, b: DFPattern) -> DFPattern:
    """``add`` or ``multiply`` with its operands in any order.

    Relax's matcher tries both orders of these two by itself; an alternative here would double the
    work at every level.

    Parameters
    ----------
    name : str
        ``add`` or ``multiply``.
    a, b : DFPattern
        The operands.

    Raises
    ------
    ValueError
        For another operator.
    """
    if name not in ("relax.add", "relax.multiply"):
        raise ValueError(f"the matcher does not swap the operands of {name}")
    return is_op(name)(a, b)


def with_bias(chain: Chain) -> Chain:
    """``add(chain, constant)``; the constant is named ``bias``.

    Examples
    --------
    >>> list(with_bias(operator("relax.matmul", 2)).annotations)
    ['root', 'arg0', 'arg1', 'bias']
    """
    bias = is_const()
    return chain.then(either_order("relax.add", chain.pattern, bias), bias=bias)


def with_residual(chain: Chain) -> Chain:
    """``add`` of the chain and another value, in either order; the other is named ``residual``.

    Where both operands match the chain, the matcher takes the first one as the chain.

    Examples
    --------
    >>> list(with_residual(operator("relax.matmul", 2)).annotations)
    ['root', 'arg0', 'arg1', 'residual']
    """
    residual = wildcard()
    return chain.then(either_order("relax.add", chain.pattern, residual), residual=residual)


def clip(x: DFPattern) -> DFPattern:
    """``clip(x, min, max)``; the bounds are numbers, not tensors."""
    return is_op("relax.clip")(x, wildcard(), wildcard())


def hard_sigmoid(x: DFPattern) -> DFPattern:
    """``clip(x * a + b, 0, 1)`` with constants ``a`` and ``b``."""
    scaled = either_order("relax.multiply", x, is_const())
    return clip(either_order("relax.add", scaled, is_const()))


def hard_swish(x: DFPattern) -> DFPattern:
    """``x * clip(x * a + b, 0, 1)``."""
    return either_order("relax.multiply", x, hard_sigmoid(x))


def silu_chain(x: DFPattern) -> DFPattern:
    """``x * sigmoid(x)``."""
    return either_order("relax.multiply", x, is_op("relax.sigmoid")(x))


def _unary(name: str) -> Callable[[DFPattern], DFPattern]:
    """Builder of a call of a one-operand operator."""
    return lambda x: is_op(name)(x)


ACTIVATIONS: Mapping[str, Callable[[DFPattern], DFPattern]] = {
    "relu": _unary("relax.nn.relu"),
    "clip": clip,
    "sigmoid": _unary("relax.sigmoid"),
    "tanh": _unary("relax.tanh"),
    "gelu": _unary("relax.nn.gelu"),
    "gelu_tanh": _unary("relax.nn.gelu_tanh"),
    "silu": lambda x: is_op("relax.nn.silu")(x) | silu_chain(x),
    "leakyrelu": _unary("relax.nn.leakyrelu"),
    "hardsigmoid": hard_sigmoid,
    "hardswish": hard_swish,
}
"""Activations by the name that goes into a triple's name."""


def with_activation(chain: Chain, activation: str) -> Chain:
    """The chain followed by one of :data:`ACTIVATIONS`.

    Parameters
    ----------
    chain : Chain
        What it is applied to.
    activation : str
        One of their names.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    >>> chain = with_activation(operator("relax.matmul", 2), "relu")
    >>> chain.pattern.match(relax.op.nn.relu(relax.op.matmul(x, x)))
    True
    """
    return chain.then(ACTIVATIONS[activation](chain.pattern))


def permutation(expr: relax.Expr) -> list[int] | None:
    """The axes of a ``permute_dims`` call, counted from 0, or None for anything else.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((2, 3, 5), "float32"))
    >>> permutation(relax.op.permute_dims(x, [0, -1, 1])), permutation(x)
    ([0, 2, 1], None)
    """
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        # FuseOpsByPattern goes over a module pattern by pattern: calls of what it made are met.
        return None
    if expr.op.name != "relax.permute_dims":
        return None
    rank = int(expr.args[0].ty.ndim)
    axes = expr.attrs.axes
    given = list(reversed(range(rank))) if axes is None else [int(axis) for axis in axes]
    return [axis % rank for axis in given]


def all_of(*predicates: Predicate) -> Predicate:
    """The first refusal of the given predicates, or yes.

    Examples
    --------
    >>> def even(match):
    ...     rows = tensor_shape(match.root)[0]
    ...     return Verdict.no(f"{rows} rows are odd") if rows % 2 else Verdict.yes()
    >>> match = Match(relax.Var("x", relax.TensorType((7, 8), "float32")), {})
    >>> all_of(float32_tensors, even)(match).reason
    '7 rows are odd'
    """

    def check(match: Match) -> Verdict:
        for predicate in predicates:
            verdict = predicate(match)
            if not verdict:
                return verdict
        return Verdict.yes()

    return check


def derives(derive: Callable[[Match], object]) -> Predicate:
    """Yes where a problem can be derived from the match, else the reason why not.

    Parameters
    ----------
    derive : callable
        Raises :class:`~collage.backends.contract.errors.UnsupportedProblemError` with the reason.

    Examples
    --------
    >>> def rows(match):
    ...     if tensor_shape(match.root) is None:
    ...         raise UnsupportedProblemError("the number of rows is not known")
    ...     return tensor_shape(match.root)[0]
    >>> derives(rows)(Match(relax.Var("x", relax.TensorType(ndim=2, dtype="float32")), {})).reason
    'the number of rows is not known'
    """

    def check(match: Match) -> Verdict:
        try:
            derive(match)
        except UnsupportedProblemError as err:
            return Verdict.no(str(err))
        return Verdict.yes()

    return check


def float32_tensors(match: Match) -> Verdict:
    """Every matched tensor is float32 with a static, non-empty shape."""
    for name, expr in {"result": match.root, **match.annotated}.items():
        if not isinstance(expr.ty, relax.TensorType):
            continue
        dtype = tensor_dtype(expr)
        if dtype != "float32":
            return Verdict.no(f"{name} has dtype {dtype}; only float32 is supported")
        shape = tensor_shape(expr)
        if shape is None:
            return Verdict.no(f"{name} has no static shape: {expr.ty}")
        if 0 in shape:
            return Verdict.no(f"{name} is empty: shape {shape}")
    return Verdict.yes()


def bias_per_channel(axis: int) -> Predicate:
    """The annotated ``bias`` has one value per index of ``axis`` of the result, or a single one.

    ``axis`` counts from the end: -3 for NCHW channels, -1 for the columns of a matmul.
    """

    def check(match: Match) -> Verdict:
        bias = tensor_shape(match.annotated["bias"])
        result = tensor_shape(match.root)
        if bias is None or result is None:
            return Verdict.no("the bias or the result has no static shape")
        wanted = [1] * (-axis)
        wanted[0] = result[axis]
        padded = [1] * (len(result) - len(bias)) + list(bias)
        full = [1] * (len(result) - len(wanted)) + wanted
        if padded not in (full, [1] * len(result)):
            return Verdict.no(f"bias of shape {bias} is not one value per channel of {result}")
        return Verdict.yes()

    return check


def residual_same_shape(match: Match) -> Verdict:
    """The annotated ``residual`` has the shape of the result, so that it can be added in place."""
    residual = tensor_shape(match.annotated["residual"])
    result = tensor_shape(match.root)
    if residual != result:
        return Verdict.no(f"residual of shape {residual} is broadcast to {result}")
    return Verdict.yes()
