"""What cublasLt can run: matrix products and 1×1 convolutions, with its epilogues.

``permute_dims`` on the operands or the result become transpose flags, leading dimensions and batch
strides. The predicates ask the same planner that generates code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
from tvm import relax

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.problem import (
    DTYPES,
    Epilogue,
    Product,
    derive,
    matrix_views,
)
from collage.backends.relax.calls.strided_views import View, operand_view, result_view
from collage.backends.relax.patterns import (
    Chain,
    all_of,
    bias_per_channel,
    derives,
    operator,
    permuted_matmuls,
    residual_same_shape,
    with_activation,
    with_bias,
    with_residual,
)
from collage.backends.relax.static_shape import static_shape, tensor_dtype, tensor_shape

MATMUL, CONV2D = "relax.matmul", "relax.nn.conv2d"

_EPILOGUES = (
    Epilogue(),
    Epilogue(activation="relu"),
    Epilogue(activation="gelu"),
    Epilogue(activation="gelu_tanh"),
    Epilogue(residual=True),
    Epilogue(residual=True, activation="relu"),
    Epilogue(bias=True),
    Epilogue(bias=True, activation="relu"),
    Epilogue(bias=True, activation="gelu"),
    Epilogue(bias=True, activation="gelu_tanh"),
    Epilogue(bias=True, residual=True),
    Epilogue(bias=True, residual=True, activation="relu"),
)
"""By rising priority. cublasLt applies the activation last, so none comes before a residual."""


@dataclass(frozen=True)
class Kind:
    """What a triple's name stands for."""

    core: str
    epilogue: Epilogue


def kinds() -> dict[str, Kind]:
    """Every triple's name, by rising priority, and what its composite holds."""
    table = {"cublas.matmul": Kind(MATMUL, Epilogue())}
    table |= dict.fromkeys(_permuted(), Kind(MATMUL, Epilogue()))
    for core, name in ((MATMUL, "cublas.matmul"), (CONV2D, "cublas.conv2d_1x1")):
        for epilogue in _EPILOGUES:
            table[f"{name}{epilogue.suffix}"] = Kind(core, epilogue)
    return table


def pattern_table(options: CublasOptions) -> list[PatternTriple]:
    """The pattern triples, by rising priority."""
    permuted = _permuted()
    return [
        _triple(
            name,
            permuted.get(name) or _with_epilogue(operator(kind.core, 2), kind.epilogue),
            kind,
            options,
        )
        for name, kind in kinds().items()
    ]


def _permuted() -> dict[str, Chain]:
    return {f"cublas.matmul_{what}": chain for what, chain in permuted_matmuls(("arg0", "arg1"))}


def _with_epilogue(chain: Chain, epilogue: Epilogue) -> Chain:
    if epilogue.bias:
        chain = with_bias(chain)
    if epilogue.residual:
        chain = with_residual(chain)
    return with_activation(chain, epilogue.activation) if epilogue.activation else chain


def _triple(name: str, chain: Chain, kind: Kind, options: CublasOptions) -> PatternTriple:
    checks: list[Predicate] = [_floating_tensors, _operands_are_arguments]
    if kind.epilogue.activation == "gelu" and not options.approximate_gelu:
        checks.append(_exact_gelu)
    if kind.core == CONV2D:
        checks.append(_pointwise)
    if kind.epilogue.bias:
        checks.append(bias_per_channel(-1))
    if kind.epilogue.residual:
        checks.append(residual_same_shape)

    def product(match: Match) -> Product:
        operands = (match.annotated["arg0"], match.annotated["arg1"])
        return product_of(kind, operands, match.root, options)

    return PatternTriple(name, chain.pattern, all_of(*checks, derives(product)), chain.annotations)


def _floating_tensors(match: Match) -> Verdict:
    dtype = tensor_dtype(match.root)
    if dtype not in DTYPES:
        return Verdict.no(f"dtype {dtype}; cublas takes {', '.join(DTYPES)}")
    for name, expr in {"the result": match.root, **match.annotated}.items():
        shape = tensor_shape(expr)
        if shape is None:
            return Verdict.no(f"{name} has no static shape: {expr.ty}")
        if 0 in shape:
            return Verdict.no(f"{name} is empty: shape {shape}")
        if tensor_dtype(expr) != dtype:
            return Verdict.no(f"{name} has dtype {tensor_dtype(expr)}, the result {dtype}")
    return Verdict.yes()


def _operands_are_arguments(match: Match) -> Verdict:
    for name, expr in match.annotated.items():
        # Constants become arguments, in device memory; only single elements stay in the code.
        if isinstance(expr, tvm.ir.GenericConst) and math.prod(tensor_shape(expr) or ()) == 1:
            return Verdict.no(f"{name} is a constant of one element")
    return Verdict.yes()


def _exact_gelu(_: Match) -> Verdict:
    return Verdict.no(
        "cublasLt's GELU is the tanh approximation; approximate_gelu allows it for the exact one"
    )


def _pointwise(match: Match) -> Verdict:
    conv = match.annotated["root"]
    attrs, weights = conv.attrs, tensor_shape(match.annotated["arg1"])
    out_layout = str(attrs.out_layout) or str(attrs.data_layout)
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), out_layout)
    if layouts != ("NHWC", "OHWI", "NHWC"):
        return Verdict.no(f"layouts {', '.join(layouts)}; a product needs NHWC, OHWI, NHWC")
    if weights is None or weights[1:3] != (1, 1):
        return Verdict.no(f"kernel {weights} is not 1x1")
    if int(attrs.groups) != 1:
        return Verdict.no(f"{int(attrs.groups)} groups")
    if any(int(s) != 1 for s in attrs.strides):
        return Verdict.no(
            f"strides {[int(s) for s in attrs.strides]}: rows would not be contiguous"
        )
    if any(int(p) != 0 for p in attrs.padding):
        return Verdict.no(f"padding {[int(p) for p in attrs.padding]}")
    return Verdict.yes()


def product_of(
    kind: Kind, operands: tuple[relax.Expr, relax.Expr], root: relax.Expr, options: CublasOptions
) -> Product:
    """The product that a matched chain asks for.

    Parameters
    ----------
    kind : Kind
        Which chain it is.
    operands : (relax.Expr, relax.Expr)
        Of the ``matmul`` or the 1×1 ``conv2d``, seen through their variables: ``permute_dims``
        calls where the pattern took these in.
    root : relax.Expr
        The chain's result, perhaps a ``permute_dims`` of the product.
    options : CublasOptions
        Whether TF32 is allowed, and the limit of the workspace.

    Returns
    -------
    Product
        As cublasLt computes it.

    Raises
    ------
    UnsupportedProblemError
        When cublasLt cannot run it.
    """
    if kind.core == CONV2D:
        views = _convolution_views(*operands)
    else:
        lhs, rhs = (operand_view(operand) for operand in operands)
        views = matrix_views(lhs, rhs, result_view(root))
    return derive(
        *views,
        kind.epilogue,
        dtype=tensor_dtype(root),
        allow_tf32=options.allow_tf32,
        workspace_limit=options.workspace_limit,
    )


def _convolution_views(x: relax.Expr, w: relax.Expr) -> tuple[View, View, View]:
    """A 1×1 convolution's pixels by channels, its weights by columns, and its result."""
    data, weights = static_shape(x, "the data"), static_shape(w, "the weights")
    pixels = data[0] * data[1] * data[2]
    return (
        View.dense((pixels, data[3])),
        View.dense((weights[0], weights[3])).transposed(),
        View.dense((pixels, weights[0])),
    )
