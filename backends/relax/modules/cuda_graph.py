"""Makes as much of a module as possible capturable into one CUDA graph.

TVM's ``RewriteCUDAGraph`` captures runs of kernels whose arguments lie where they lay before. What
reads the caller's tensors, or writes the result, stays outside. An input that is read all over the
network would cut the graph into pieces, so such an input is copied first and the copy is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import tvm
from tvm import relax, te, tirx

from collage.backends.contract import BackendTarget, LimitsCapture, members_of
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


def copy_shared_inputs(mod: tvm.IRModule) -> tvm.IRModule:
    """Copy each input of a public function that more than one of its bindings reads.

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
    >>> copied = copy_shared_inputs(relax.transform.ToNonDataflow()(mod))
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
    shared = [p for p, count in readers.items() if count > 1 and tensor_shape(p) is not None]
    if not shared:
        return function
    # The parameters' variables become those of the copies, so that nothing else has to change.
    params = [relax.Var(p.name, p.ty) if p in shared else p for p in function.params]
    copies = []
    for old, new in zip(function.params, params, strict=True):
        if old in shared:
            gvar, kernel = relax.GlobalVar(next(names)), _copy(new)
            relax.expr._update_type(gvar, kernel.ty)
            kernels[gvar] = kernel
            copies.append(relax.VarBinding(old, relax.op.call_tir(gvar, [new], old.ty)))
    blocks = [relax.BindingBlock(copies), *function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)


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
    kernel = te.create_prim_func([given, copied]).without_attr("global_symbol")
    return kernel.with_attr("op_pattern", _OPAQUE)
