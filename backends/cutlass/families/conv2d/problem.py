"""Which convolutions the kernels take: extents, attributes, epilogue; or why they do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import DTYPE_BITS
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape

ACTIVATIONS = ("relu", "relu6", "sigmoid", "silu", "hardswish", "gelu", "gelu_tanh")
"""Activations of the kernels' epilogues, in rising priority of their patterns."""

RESIDUALS = ("add", "multiply")

_MAX_TENSOR_BYTES = 2**31 - 1
"""CUTLASS indexes the tensors of a convolution with 32-bit byte offsets."""


@dataclass(frozen=True)
class Epilogue:
    """``final(residual_op(activation(conv + bias), residual))``; an empty name stands for nothing.

    Attributes
    ----------
    bias : bool
        One value per output channel is added first.
    activation, final : str
        One of :data:`ACTIVATIONS`.
    residual : str
        One of :data:`RESIDUALS`: a tensor of the result's shape is joined.
    """

    bias: bool = False
    activation: str = ""
    residual: str = ""
    final: str = ""

    @property
    def stages(self) -> list[str]:
        """What follows the convolution, the last one first; see ``Composite.take_apart``."""
        on = [
            ("activation", self.final),
            ("residual", self.residual),
            ("activation", self.activation),
            ("bias", self.bias),
        ]
        return [stage for stage, present in on if present]

    @property
    def name(self) -> str:
        """For example ``bias_silu_add``; ``none`` for nothing."""
        words = ["bias" if self.bias else "", self.activation, self.residual, self.final]
        return "_".join(word for word in words if word) or "none"


@dataclass(frozen=True)
class Conv2dProblem:
    """A convolution of NHWC data with OHWI weights.

    Attributes
    ----------
    n, h, w, c : int
        The data: batch, height, width, channels.
    k, r, s : int
        The weights: output channels, height, width.
    p, q : int
        Height and width of the result.
    pads : tuple of int
        Rows above, columns left, rows below, columns right of the data that count as zeros.
    strides, dilation : tuple of int
        Along height and width.
    dtype : str
    """

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    p: int
    q: int
    pads: tuple[int, int, int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    dtype: str

    @property
    def bits(self) -> int:
        return DTYPE_BITS[self.dtype]

    def sizes(self) -> tuple[int, ...]:
        """The run-time integers of the kernel units; the templates name them in this order."""
        extents = (self.n, self.h, self.w, self.c, self.k, self.r, self.s, self.p, self.q)
        return (*extents, *self.pads, *self.strides, *self.dilation)

    @classmethod
    def from_sizes(cls, sizes: tuple[int, ...], dtype: str) -> Conv2dProblem:
        """The inverse of :meth:`sizes`.

        Parameters
        ----------
        sizes : tuple of int
            As the property gives them.
        dtype : str
            Of its tensors.

        Returns
        -------
        Conv2dProblem
            Equal to the one whose sizes and dtype these are.
        """
        n, h, w, c, k, r, s, p, q, top, left, below, right, sh, sw, dh, dw = sizes
        pads, strides, dilation = (top, left, below, right), (sh, sw), (dh, dw)
        return cls(n, h, w, c, k, r, s, p, q, pads, strides, dilation, dtype)


def is_product(problem: Conv2dProblem) -> bool:
    """Whether the convolution is a plain matrix product of its pixels and its weights."""
    unit = (problem.r, problem.s, *problem.strides) == (1, 1, 1, 1)
    return unit and problem.pads == (0, 0, 0, 0)


def float32_math(options: CutlassOptions) -> str:
    """How float32 products are computed on tensor cores.

    Raises
    ------
    UnsupportedProblemError
        When the options allow neither way.
    """
    if options.allow_tf32:
        return "tf32"
    if options.use_3xtf32:
        return "3xtf32"
    raise UnsupportedProblemError(
        "float32 convolutions run on tensor cores only: set use_3xtf32 or allow_tf32"
    )


def read_problem(call: relax.Call, options: CutlassOptions) -> Conv2dProblem:
    """The problem of a ``relax.nn.conv2d`` call.

    Parameters
    ----------
    call : relax.Call
        In NHWC, with weights in OHWI.
    options : CutlassOptions
        They decide how float32 is computed.

    Returns
    -------
    Conv2dProblem
        None of its tensors takes more than 2 GiB.

    Raises
    ------
    UnsupportedProblemError
        When the kernels cannot run it.
    """
    attrs = call.attrs
    data, weight, result = (tensor_shape(expr) for expr in (*call.args, call))
    if data is None or weight is None or result is None:
        raise UnsupportedProblemError("the data or the weights have no static shape")
    if 0 in (*data, *weight, *result):
        raise UnsupportedProblemError(f"an operand is empty: {data}, {weight}, {result}")
    _check_layouts(attrs)
    dtype = tensor_dtype(call.args[0])
    dtypes = {tensor_dtype(expr) for expr in (*call.args, call)}
    if dtype not in DTYPE_BITS or dtypes != {dtype}:
        raise UnsupportedProblemError(
            f"operands and result have dtypes {sorted(dtypes)}; "
            f"all must have the same one of {', '.join(DTYPE_BITS)}"
        )
    if dtype == "float32":
        float32_math(options)
    if int(attrs.groups) != 1:
        raise UnsupportedProblemError(f"{int(attrs.groups)} groups; only 1 is supported")
    top, left, below, right = (int(width) for width in attrs.padding)
    if min(top, left, below, right) < 0:
        raise UnsupportedProblemError(f"negative padding {[top, left, below, right]}")
    (n, h, w, c), (k, r, s, _), (_, p, q, _) = data, weight, result
    problem = Conv2dProblem(
        *(n, h, w, c, k, r, s, p, q),
        pads=(top, left, below, right),
        strides=(int(attrs.strides[0]), int(attrs.strides[1])),
        dilation=(int(attrs.dilation[0]), int(attrs.dilation[1])),
        dtype=dtype,
    )
    for name, count in {
        "data": n * h * w * c,
        "weights": k * r * s * c,
        "result": n * p * q * k,
    }.items():
        if count * problem.bits // 8 > _MAX_TENSOR_BYTES:
            raise UnsupportedProblemError(f"the {name} take more than 2 GiB")
    return problem


def _check_layouts(attrs: Mapping[str, object]) -> None:
    wanted = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    for name, layout in wanted.items():
        given = str(getattr(attrs, name)) or "NHWC"
        if given != layout:
            raise UnsupportedProblemError(f"{name} is {given}; only {layout} is supported")


def check_epilogue(problem: Conv2dProblem, epilogue: Epilogue) -> None:
    """Whether the kernels can join this epilogue to this problem.

    Parameters
    ----------
    problem : Conv2dProblem
        A convolution.
    epilogue : Epilogue
        What follows it.

    Raises
    ------
    UnsupportedProblemError
        When they cannot.
    """
    if epilogue.bias and problem.k == 1:
        raise UnsupportedProblemError("a bias of one element is not passed as a tensor")
