"""Programs that look values up are fused like those that move them."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

_OPAQUE = 8
_INJECTIVE = 2
_OUT_EWISE_FUSABLE = 4
"""Of ``relax::OpPatternKind``."""


def mark_gathers(most_elements: int) -> tvm.transform.Pass:
    """Let programs that look up a value for each element of their result be fused.

    TVM takes a load at an index that was loaded itself for opaque: in a recommender each table was
    a kernel of its own, and so were what makes its indices and the sum or concatenation behind.

    Parameters
    ----------
    most_elements : int
        Of a result that is fused with what moves values, too. One of more only takes elementwise
        operators along that follow: a concatenation asks for each element which table it is of.

    Examples
    --------
    >>> from tvm import relax
    >>> from collage.testing import graph
    >>> ids = relax.const([2, 0], "int64")
    >>> mod = graph([(4, 8)], lambda _, x: relax.op.take(x, ids, axis=0))
    >>> mod = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(mod))
    >>> [int(mark_gathers(most)(mod)["take"].attrs["op_pattern"]) for most in (16, 0)]
    [2, 4]
    """

    def mark(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(mod.functions)
        for gv, func in mod.functions.items():
            if isinstance(func, tirx.PrimFunc) and func.attrs.get("op_pattern") == _OPAQUE:
                elements = _looked_up(func)
                if elements is not None:
                    kind = _INJECTIVE if elements <= most_elements else _OUT_EWISE_FUSABLE
                    functions[gv] = func.with_attr("op_pattern", kind)
        return tvm.IRModule(functions, attrs=mod.attrs)

    return tvm.transform.module_pass(mark, opt_level=0, name="MarkGathers")


def _looked_up(func: tirx.PrimFunc) -> int | None:
    """How many elements a program of one stage stores, each once and of one that it loads; None for
    other programs."""
    blocks: list[s_tir.SBlock] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    inner = [block for block in blocks if block.iter_vars]
    if len(inner) != 1 or len(blocks) > 2 or inner[0].init is not None:
        return None
    (block,) = inner
    store, axes = block.body, block.iter_vars
    if not isinstance(store, tirx.BufferStore) or len(store.indices) != len(axes):
        return None
    for index, axis in zip(store.indices, axes, strict=True):
        spatial = axis.iter_type == tirx.IterVar.DataPar
        if not (spatial and index.same_as(axis.var) and isinstance(axis.dom.extent, tirx.IntImm)):
            return None
    tvm_ffi.structural_walk(store.value, [(TensorLoad, loads.append)])
    values = [load for load in loads if not str(load.source.dtype).startswith(("int", "uint"))]
    if len(values) > 1 or any(load.source.same_as(store.buffer) for load in loads):
        return None
    return math.prod(int(axis.dom.extent) for axis in axes)
