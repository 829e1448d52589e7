"""Predicates on matches: refusals with their reasons, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from collage.backends.contract import Match, Predicate, Verdict
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape


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
    """Every matched tensor is float32 with a static, non-empty shape.

    Examples
    --------
    >>> half = relax.Var("x", relax.TensorType((8, 8), "float16"))
    >>> float32_tensors(Match(half, {})).reason
    'result has dtype float16; only float32 is supported'
    """
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

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    >>> bias_per_channel(-1)(Match(x, {"bias": x})).reason
    'bias of shape (4, 8) is not one value per channel of (4, 8)'
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
    """The annotated ``residual`` has the shape of the result, so that it can be added in place.

    Examples
    --------
    >>> x, row = (relax.Var("x", relax.TensorType((n, 8), "float32")) for n in (4, 1))
    >>> residual_same_shape(Match(x, {"residual": row})).reason
    'residual of shape (1, 8) is broadcast to (4, 8)'
    """
    residual = tensor_shape(match.annotated["residual"])
    result = tensor_shape(match.root)
    if residual != result:
        return Verdict.no(f"residual of shape {residual} is broadcast to {result}")
    return Verdict.yes()
