"""Buffers in float32 beside narrow ones, and the stages that round the one into the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Range, Var

WIDE = "float32"


def as_type(dtype: str, value: Any) -> Any:
    """A value in a type.

    Parameters
    ----------
    dtype : str
        A scalar type.
    value : tirx.PrimExpr
        Of any.

    Returns
    -------
    tirx.PrimExpr
        The same where it is of that type.
    """
    return value if str(value.ty) == dtype else tirx.Cast(dtype, value)


def wide_buffer(buffer: Var) -> Var:
    """The same in float32."""
    return tirx.decl_buffer(buffer.shape, WIDE, f"{buffer.name}_wide", scope=buffer.scope())


def with_rounding(body: s_tir.SBlockRealize, wide: Mapping[Var, Var]) -> s_tir.SBlockRealize:
    """The stages with one more behind them for each wide buffer, which rounds it into its own.

    Parameters
    ----------
    body : s_tir.SBlockRealize
        Of a kernel.
    wide : mapping of Var to Var
        By the buffer that is stored into, the one that holds the same in float32.

    Returns
    -------
    s_tir.SBlockRealize
        Allocates the wide ones, too.
    """
    root = body.block
    stages = [root.body, *(_rounding_stage(b, source) for b, source in wide.items())]
    allocated = [*root.alloc_buffers, *wide.values()]
    block = with_buffers(root, tirx.SeqStmt(stages), allocated)
    return s_tir.SBlockRealize(body.iter_values, body.predicate, block)


def _rounding_stage(target: Var, source: Var) -> Any:
    extents = [tirx.const(int(extent), str(extent.ty)) for extent in target.shape]
    loops = [Var(f"i{n}", str(extent.ty)) for n, extent in enumerate(extents)]
    axes = [
        tirx.IterVar(Range(0, extent), Var(f"v{n}", str(extent.ty)), tirx.IterVar.DataPar)
        for n, extent in enumerate(extents)
    ]
    place = [axis.var for axis in axes]
    point = [Range.from_min_extent(var, tirx.const(1, str(var.ty))) for var in place]
    value = as_type(str(target.dtype), tirx.BufferLoad(source, place))
    block = s_tir.SBlock(
        axes,
        [tirx.BufferRegion(source, point)],
        [tirx.BufferRegion(target, point)],
        f"{target.name}_rounded",
        tirx.BufferStore(target, value, place),
    )
    body: Any = s_tir.SBlockRealize(loops, True, block)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        body = tirx.For(loop, tirx.const(0, str(extent.ty)), extent, tirx.ForKind.SERIAL, body)
    return body


def with_buffers(block: s_tir.SBlock, body: Any, allocated: list[Var]) -> s_tir.SBlock:
    """A block with another body and other buffers.

    Parameters
    ----------
    block : s_tir.SBlock
        Tells all the rest.
    body : tirx.Stmt
        What it does.
    allocated : list of Var
        What it allocates.

    Returns
    -------
    s_tir.SBlock
        A new one.
    """
    return s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        allocated,
        block.match_buffers,
        block.annotations,
        block.span,
    )
