"""Patterns of an operator and what follows it, built one step at a time.

Patterns follow the canonical form that ``normalize`` produces: weights and biases are constants,
biases are added after the operator, hard-swish and its kin are chains. Addition and multiplication
are matched in either operand order where the operands' roles differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard


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

        Returns
        -------
        Chain
            A new one, with the names of both.
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

    Returns
    -------
    Chain
        With ``root`` as its last pattern.

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

    Examples
    --------
    >>> [where for where, _ in permuted_matmuls(("lhs", "rhs"))][:3]
    ['permuted_result', 'permuted_rhs', 'permuted_rhs_result']
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

    Returns
    -------
    DFPattern
        A single one, not an alternative.

    Raises
    ------
    ValueError
        For another operator.

    Examples
    --------
    >>> from tvm import relax
    >>> x = relax.Var("x", relax.TensorType((8,), "float32"))
    >>> either_order("relax.add", wildcard(), is_const()).match(relax.const(1.0) + x)
    True
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
