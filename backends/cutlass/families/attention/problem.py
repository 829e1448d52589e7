"""Which attentions the fused kernel takes: extents, strides, mask; and why others are refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import DTYPE_BITS
from collage.backends.relax.static_shape import static_shape, tensor_dtype, tensor_shape

_MASKS = {"": 0, "TopLeft": 1, "BottomRight": 2}
"""The kernel's codes of causal masks, by the name that Relax has for them."""

_MAX_DIM = 256
_MAX_GRID = 65535
_MIN_ACCESS = 4
"""CUTLASS's kernel moves at least four elements at once."""
_BULK = 8
"""Elements of 16 bits that bulk copies move at least."""


@dataclass(frozen=True)
class Strides:
    """Distances, in elements, between rows, heads and batches."""

    row: int
    head: int
    batch: int

    def values(self) -> tuple[int, int, int]:
        return (self.row, self.head, self.batch)


@dataclass(frozen=True)
class AttentionProblem:
    """``softmax(scale * q @ k^T + bias) @ v`` for every head of every batch.

    Attributes
    ----------
    queries, keys : int
        Lengths of the sequences.
    dim, dim_value : int
        Elements of a head of q and k, and of v.
    mask : str
        A key of ``_MASKS``.
    q, k, v, bias : Strides
        Of the operands; elements of a row are dense. All zero for a bias that is not there.
    layout : str
        Of the result: ``bshd`` or ``bhsd`` (batch, sequence, head, element).
    joined : bool
        Whether q, k and v are parts of one tensor.
    offsets : tuple of int
        Elements before q, k and v in their tensor.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    dim: int
    dim_value: int
    dtype: str
    scale: float
    q: Strides
    k: Strides
    v: Strides
    layout: str
    mask: str = ""
    bias: Strides = field(default_factory=lambda: Strides(0, 0, 0))
    has_bias: bool = False
    joined: bool = False
    offsets: tuple[int, int, int] = (0, 0, 0)

    @property
    def bits(self) -> int:
        return DTYPE_BITS[self.dtype]

    def sizes(self) -> tuple[int, ...]:
        """The run-time integers of the kernel unit, in the order of its template."""
        extents = (self.batch, self.heads, self.queries, self.keys, self.dim, self.dim_value)
        strides = (s for view in (self.q, self.k, self.v, self.bias) for s in view.values())
        return (*extents, _MASKS[self.mask], *strides, *self.offsets)


def takes_bulk_copies(dtype: str, sizes: Sequence[int]) -> bool:
    """Whether Hopper's kernel can run a problem: half types, rows of whole 16 bytes.

    Parameters
    ----------
    dtype : str
        Of the operands.
    sizes : sequence of int
        As :meth:`AttentionProblem.sizes` has them.

    Returns
    -------
    bool
        It has heads of at most 256 elements, and any bias.
    """
    dims, strides, offsets = sizes[4:6], sizes[7:16], sizes[19:22]
    moved = (*dims, *strides, *offsets)
    return (
        DTYPE_BITS[dtype] == 16
        and max(dims) <= _MAX_DIM
        and all(number % _BULK == 0 for number in moved)
    )


def bshd(shape: tuple[int, ...]) -> Strides:
    """Strides of a dense (batch, sequence, head, element) tensor."""
    _, sequence, heads, dim = shape
    return Strides(heads * dim, dim, sequence * heads * dim)


def bhsd(shape: tuple[int, ...]) -> Strides:
    """Strides of a dense (batch, head, sequence, element) tensor."""
    _, heads, sequence, dim = shape
    return Strides(dim, sequence * dim, heads * sequence * dim)


def read_attention(call: relax.Call, *, hopper: bool = False) -> AttentionProblem:
    """The problem of a ``relax.nn.attention`` or ``relax.nn.attention_bias`` call.

    Parameters
    ----------
    call : relax.Call
        The attention.
    hopper : bool
        Whether Hopper's kernel may run it, which takes more.

    Returns
    -------
    AttentionProblem
        Operands laid out (batch, sequence, head, element).

    Raises
    ------
    UnsupportedProblemError
        When the kernel cannot run it.
    """
    (q, k, v), dtype = _shapes(call.args[:3]), _dtype(call, *call.args)
    batch, queries, heads, dim = q
    _, keys, key_heads, _ = k
    if key_heads != heads or v[2] != heads:
        raise UnsupportedProblemError(f"{heads} heads of queries and {key_heads} of keys")
    if getattr(call.attrs, "window_size", None) is not None:
        raise UnsupportedProblemError("sliding-window attention")
    mask, scale = call.attrs.causal_mask, call.attrs.scale
    has_bias = len(call.args) > 3
    problem = AttentionProblem(
        *(batch, heads, queries, keys, dim, v[3], dtype),
        scale=1 / math.sqrt(dim) if scale is None else float(scale.value),
        q=bshd(q),
        k=bshd(k),
        v=bshd(v),
        layout="bshd",
        mask="" if mask is None else str(mask),
        bias=bias_strides(call.args[3], batch, heads, queries, keys)
        if has_bias
        else Strides(0, 0, 0),
        has_bias=has_bias,
    )
    check(problem, hopper=hopper)
    return problem


def read_joined(call: relax.Call, split: relax.Call, *, hopper: bool = False) -> AttentionProblem:
    """As :func:`read_attention`, where q, k and v are reshaped parts of one split tensor.

    Parameters
    ----------
    call : relax.Call
        The attention; its first three operands are the reshaped parts, in their order.
    split : relax.Call
        Cuts its operand along the last axis into three.
    hopper : bool
        Whether Hopper's kernel may run it, which takes more.

    Returns
    -------
    AttentionProblem
        Its strides and offsets are into the split tensor, so that nothing is copied.

    Raises
    ------
    UnsupportedProblemError
        When the kernel cannot run it, or the parts are cut otherwise.
    """
    problem = read_attention(call, hopper=hopper)
    source = tensor_shape(split.args[0])
    parts = [static_shape(part, "a part") for part in split.ty.fields]
    if source is None or len(source) < 2 or len(parts) != 3:
        raise UnsupportedProblemError(f"{len(parts)} parts of a tensor of shape {source}")
    if int(split.attrs.axis) % len(source) != len(source) - 1:
        raise UnsupportedProblemError(f"parts of axis {int(split.attrs.axis)}, not of the last")
    rows, width = math.prod(source[:-1]), source[-1]
    wanted = [problem.heads * dim for dim in (problem.dim, problem.dim, problem.dim_value)]
    if rows != problem.batch * problem.queries or [part[-1] for part in parts] != wanted:
        raise UnsupportedProblemError(
            f"parts of shapes {parts} do not hold {problem.heads} heads of "
            f"{problem.dim} and {problem.dim_value} elements"
        )
    joined = dataclasses.replace(
        problem,
        q=Strides(width, problem.dim, problem.queries * width),
        k=Strides(width, problem.dim, problem.keys * width),
        v=Strides(width, problem.dim_value, problem.keys * width),
        joined=True,
        offsets=(0, wanted[0], wanted[0] + wanted[1]),
    )
    check(joined, hopper=hopper)
    return joined


def _shapes(operands: Any) -> list[tuple[int, ...]]:
    shapes = [tensor_shape(operand) for operand in operands]
    for shape in shapes:
        if shape is None or len(shape) != 4 or 0 in shape:
            raise UnsupportedProblemError(f"operands of shapes {shapes}; four extents are needed")
    return [shape for shape in shapes if shape is not None]


def _dtype(*exprs: relax.Expr) -> str:
    dtypes = {tensor_dtype(expr) for expr in exprs}
    dtype = min(dtypes)
    if len(dtypes) != 1 or dtype not in DTYPE_BITS:
        raise UnsupportedProblemError(
            f"dtypes {sorted(dtypes)}; all must have the same one of {', '.join(DTYPE_BITS)}"
        )
    return dtype


def bias_strides(bias: relax.Expr, batch: int, heads: int, queries: int, keys: int) -> Strides:
    """Strides of a bias that is broadcast to (batch, head, query, key): 0 along what it lacks.

    Parameters
    ----------
    bias : relax.Expr
        Of at most four axes.
    batch, heads, queries, keys : int
        Extents that it broadcasts to.

    Returns
    -------
    Strides
        In elements, by row of queries, head and batch.

    Raises
    ------
    UnsupportedProblemError
        When it does not broadcast so, or has not one value per key.
    """
    shape = tensor_shape(bias)
    if shape is None or len(shape) > 4 or not shape:
        raise UnsupportedProblemError(f"a bias of shape {shape}")
    full = (1,) * (4 - len(shape)) + shape
    if full[3] != keys or any(
        given not in (1, wanted)
        for given, wanted in zip(full, (batch, heads, queries, keys), strict=True)
    ):
        raise UnsupportedProblemError(
            f"a bias of shape {shape} for scores of shape {(batch, heads, queries, keys)}"
        )
    return Strides(
        row=keys if full[2] > 1 else 0,
        head=full[2] * keys if full[1] > 1 else 0,
        batch=full[1] * full[2] * keys if full[0] > 1 else 0,
    )


def check(problem: AttentionProblem, *, hopper: bool = False) -> None:
    """Whether a kernel can run a problem.

    Parameters
    ----------
    problem : AttentionProblem
        What is asked.
    hopper : bool
        Whether Hopper's kernel may run it, which takes more.

    Raises
    ------
    UnsupportedProblemError
        When none can.
    """
    if problem.mask not in _MASKS:
        raise UnsupportedProblemError(f"mask '{problem.mask}'")
    if problem.mask == "BottomRight" and problem.queries > problem.keys:
        raise UnsupportedProblemError(
            f"a mask from the bottom right with {problem.queries} queries and {problem.keys} keys"
        )
    if max(problem.batch, problem.heads) > _MAX_GRID:
        raise UnsupportedProblemError(f"{problem.batch} batches of {problem.heads} heads")
    # Positions within one batch are 32-bit numbers.
    largest = max(
        problem.queries * problem.q.row,
        problem.keys * max(problem.k.row, problem.v.row),
        problem.queries * problem.heads * problem.dim_value,
        problem.queries * problem.bias.row,
    )
    if largest >= 2**31:
        raise UnsupportedProblemError("a batch has more than 2^31 elements")
    if not (hopper and takes_bulk_copies(problem.dtype, problem.sizes())):
        _check_example(problem)


def _check_example(problem: AttentionProblem) -> None:
    """What CUTLASS's example asks besides."""
    for name, dim in (("queries", problem.dim), ("values", problem.dim_value)):
        if dim > _MAX_DIM or dim % _MIN_ACCESS:
            raise UnsupportedProblemError(
                f"heads of {name} have {dim} elements; a multiple of {_MIN_ACCESS} up to "
                f"{_MAX_DIM} is needed"
            )
    if problem.layout == "bhsd" and max(problem.dim, problem.dim_value) > 128:
        raise UnsupportedProblemError(
            f"heads of {max(problem.dim, problem.dim_value)} elements laid out by head"
        )
    # The bias is fetched in accesses of 16 bytes.
    if problem.has_bias and problem.keys % (128 // problem.bits):
        raise UnsupportedProblemError(
            f"a bias with {problem.keys} keys; a multiple of {128 // problem.bits} is needed"
        )
