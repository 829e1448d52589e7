"""Activations as patterns: single operators, and the chains that some of them are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from collage.backends.relax.patterns.chains import Chain, either_order


def clip(x: DFPattern) -> DFPattern:
    """``clip(x, min, max)``; the bounds are numbers, not tensors.

    Examples
    --------
    >>> from tvm import relax
    >>> x = relax.Var("x", relax.TensorType((8,), "float32"))
    >>> clip(wildcard()).match(relax.op.clip(x, 0, 6))
    True
    """
    return is_op("relax.clip")(x, wildcard(), wildcard())


def hard_sigmoid(x: DFPattern) -> DFPattern:
    """``clip(x * a + b, 0, 1)`` with constants ``a`` and ``b``.

    Examples
    --------
    >>> from tvm import relax
    >>> x = relax.Var("x", relax.TensorType((8,), "float32"))
    >>> a = relax.const(0.2)
    >>> hard_sigmoid(wildcard()).match(relax.op.clip(x * a + a, 0, 1))
    True
    """
    scaled = either_order("relax.multiply", x, is_const())
    return clip(either_order("relax.add", scaled, is_const()))


def hard_swish(x: DFPattern) -> DFPattern:
    """``x * clip(x * a + b, 0, 1)``.

    Examples
    --------
    >>> from tvm import relax
    >>> x = relax.Var("x", relax.TensorType((8,), "float32"))
    >>> a = relax.const(0.2)
    >>> hard_swish(wildcard()).match(x * relax.op.clip(x * a + a, 0, 1))
    True
    """
    return either_order("relax.multiply", x, hard_sigmoid(x))


def silu_chain(x: DFPattern) -> DFPattern:
    """``x * sigmoid(x)``.

    Examples
    --------
    >>> from tvm import relax
    >>> x = relax.Var("x", relax.TensorType((8,), "float32"))
    >>> silu_chain(wildcard()).match(x * relax.op.sigmoid(x))
    True
    """
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

    Returns
    -------
    Chain
        A new one; the chain that was given is as it was.

    Examples
    --------
    >>> from tvm import relax
    >>> from collage.backends.relax import operator
    >>> x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    >>> chain = with_activation(operator("relax.matmul", 2), "relu")
    >>> chain.pattern.match(relax.op.nn.relu(relax.op.matmul(x, x)))
    True
    """
    return chain.then(ACTIVATIONS[activation](chain.pattern))
