"""Makes as much of a module as possible capturable into one CUDA graph.

TVM's ``RewriteCUDAGraph`` captures runs of kernels whose arguments lie where they lay before. What
reads the caller's tensors, or writes the result, stays outside. An input that is read all over the
network would cut the graph into pieces, and so would several inputs that are read one after the
other: such inputs are copied first, small ones by one kernel together, and the copies are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.contract import BackendTarget, LimitsCapture, members_of
from collage.backends.relax.launch import kernel
from collage.backends.relax.static_shape import static_shape, tensor_dtype, tensor_shape

_OPAQUE = 8
"""``kOpaque`` of ``relax::OpPatternKind``: nothing fuses such a kernel with its readers."""


def all_capturable(targets: Sequence[BackendTarget]) -> bool:
    """Whether every one of these targets' partitions may be captured.

    Examples
    --------
    >>> from tvm.target import Target
    >>> gpu = Target({"kind": "cuda", "arch": "sm_90"})
    >>> all_capturable([BackendTarget.of("tvm", gpu), BackendTarget.of("cublas", gpu)])
    True
    """
    return all(
        backend.cuda_graph_safe(target) for backend, target in members_of(LimitsCapture, targets)
    )


_SMALL_BYTES = 4 << 20
_TINY_BYTES = 64 << 10
"""Copies that take less than a launch from the host, all together and one by one."""

_MOST_TENSORS = 64
"""In one kernel, whose arguments may take 4 KiB."""

_FEW_BINDINGS = 3
"""What has no more of them has nothing to be cut, and may be a candidate that is measured alone."""

_THREADS = 256


def copy_inputs(mod: tvm.IRModule) -> tvm.IRModule:
    """Copy each input of a public function that more than one of its bindings reads, and where it
    has several small inputs, all of these.

    By a kernel, which is ordered among the others whatever stream they run on: the runtime's own
    copies take CUDA's default stream, which a stream of the caller's does not wait for.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned; public functions are sequences of blocks of bindings.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.add(emit(relax.op.exp(x)), x))
    >>> copied = copy_inputs(relax.transform.ToNonDataflow()(mod))
    >>> (block,) = copied["main"].body.blocks
    >>> str(block.bindings[0].value.args[0].name_hint)
    'copy_input'
    """
    updated = mod.clone()
    kernels: dict[relax.GlobalVar, tirx.PrimFunc] = {}
    free = _free_names({str(gvar.name_hint) for gvar in mod.get_global_vars()})
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and _is_called_from_outside(function):
            updated[gvar] = _copying(function, kernels, free)
    updated.update(kernels)
    return relax.transform.Normalize()(updated) if kernels else mod


def _is_called_from_outside(function: relax.Function) -> bool:
    """Whether a function of a partitioned module is no partition."""
    attrs = function.attrs or {}
    return "global_symbol" in attrs and "Codegen" not in attrs


def _copying(
    function: relax.Function,
    kernels: dict[relax.GlobalVar, tirx.PrimFunc],
    names: Iterator[str],
) -> relax.Function:
    readers = dict.fromkeys(function.params, 0)
    for block in function.body.blocks:
        for binding in block.bindings:
            for var in set(relax.analysis.free_vars(binding.value)) & set(readers):
                readers[var] += 1
    read = [p for p, count in readers.items() if count and tensor_shape(p) is not None]
    bindings = sum(len(block.bindings) for block in function.body.blocks)
    together = _small(read) if bindings > _FEW_BINDINGS else []
    alone = [p for p in read if readers[p] > 1 and p not in together]
    starts = range(0, len(together), _MOST_TENSORS)
    groups = [*(together[i : i + _MOST_TENSORS] for i in starts), *([p] for p in alone)]
    if not groups:
        return function
    # The parameters' variables become those of the copies, so that nothing else has to change.
    own = {p: relax.Var(p.name, p.ty) for p in (*together, *alone)}
    copies: list[relax.VarBinding] = []
    for group in groups:
        taken = [own[p] for p in group]
        gvar = relax.GlobalVar(next(names))
        kernels[gvar] = made = _copy(taken[0]) if len(group) == 1 else _copies(taken)
        relax.expr._update_type(gvar, made.ty)
        types = [p.ty for p in group]
        call = relax.op.call_tir(gvar, taken, types if len(group) > 1 else types[0])
        if len(group) == 1:
            copies.append(relax.VarBinding(group[0], call))
            continue
        pair = relax.Var("copied", relax.TupleType(types))
        copies.append(relax.VarBinding(pair, call))
        copies += [
            relax.VarBinding(p, relax.TupleGetItem(pair, place)) for place, p in enumerate(group)
        ]
    blocks = [relax.BindingBlock(copies), *function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    params = [own.get(p, p) for p in function.params]
    return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)


def _small(tensors: Sequence[relax.Var]) -> list[relax.Var]:
    """Those that are worth a common copy; none of one alone, and of a large sum the tiny ones."""
    sized = {p: _bytes_of(p) for p in tensors if static_shape(p)}
    most = _SMALL_BYTES if sum(sized.values()) <= _SMALL_BYTES else _TINY_BYTES
    small = [p for p, size in sized.items() if 0 < size <= most]
    return small if len(small) > 1 else []


def _bytes_of(tensor: relax.Var) -> int:
    return math.prod(static_shape(tensor)) * int(tvm.DataType(tensor_dtype(tensor.ty)).itemsize)


def _free_names(taken: set[str]) -> Iterator[str]:
    names = (f"copy_input{n or ''}" for n in count())
    return (name for name in names if name not in taken)


def _copy(tensor: relax.Var) -> tirx.PrimFunc:
    """A kernel that copies; of one that is nothing but a load TVM makes a view, as of a reshape."""
    shape, dtype = static_shape(tensor), tensor_dtype(tensor.ty)
    given = te.placeholder(shape, dtype, name="given")

    def element(*index: Any) -> Any:
        within = [i < extent for i, extent in zip(index, shape, strict=True)]
        return tirx.if_then_else(tirx.all(*within), given(*index), tirx.const(0, dtype))

    copied = te.compute(shape, element if shape else lambda: given(), name="copied")
    made = te.create_prim_func([given, copied]).without_attr("global_symbol")
    return made.with_attr("op_pattern", _OPAQUE)


def _copies(tensors: Sequence[relax.Var]) -> tirx.PrimFunc:
    """One kernel that copies several, each by blocks of its own."""
    given = [
        te.placeholder(static_shape(tensor), tensor_dtype(tensor.ty), name=f"given_{place}")
        for place, tensor in enumerate(tensors)
    ]
    sizes = [math.prod(static_shape(tensor)) for tensor in tensors]
    blocks = [-(-size // _THREADS) for size in sizes]

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        with IRBuilder() as ib:
            with kernel(sum(blocks), _THREADS) as (block, own):
                for place, size in enumerate(sizes):
                    first = sum(blocks[:place])
                    element = (block - first) * _THREADS + own
                    mine = tirx.all(block >= first, element < size)
                    with T.If(mine), T.Then():
                        T.buffer_proxy(outs[place])[element] = T.buffer_proxy(ins[place])[element]
            return ib.get()

    copied = te.extern(
        [each.shape for each in given],
        given,
        program,
        dtype=[str(each.dtype) for each in given],
        in_buffers=[tirx.decl_buffer(each.shape, each.dtype, each.op.name) for each in given],
        out_buffers=[
            tirx.decl_buffer(each.shape, each.dtype, f"copied_{place}")
            for place, each in enumerate(given)
        ],
        name="copied",
    )
    made = te.create_prim_func([*given, *copied]).without_attr("global_symbol")
    return made.with_attr("op_pattern", _OPAQUE)
