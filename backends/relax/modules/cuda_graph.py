"""Makes as much of a module as possible capturable into one CUDA graph.

TVM's ``RewriteCUDAGraph`` captures runs of kernels whose arguments lie where they lay before. What
reads the caller's tensors, or writes the result, stays outside. An input that is read all over the
network would cut the graph into pieces, so such an input is copied first and the copy is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, LimitsCapture, members_of

_COPY = "runtime.TVMTensorCopyFromTo"
"""Copies its first argument into its second."""


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
    >>> str(block.bindings[0].value.args[0].global_symbol)
    'runtime.TVMTensorCopyFromTo'
    """
    updated = mod.clone()
    changed = False
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and _is_called_from_outside(function):
            copying = _copying(function)
            changed |= copying is not function
            updated[gvar] = copying
    return relax.transform.Normalize()(updated) if changed else mod


def _is_called_from_outside(function: relax.Function) -> bool:
    """Whether a function of a partitioned module is no partition."""
    attrs = function.attrs or {}
    return "global_symbol" in attrs and "Codegen" not in attrs


def _copying(function: relax.Function) -> relax.Function:
    readers = dict.fromkeys(function.params, 0)
    for block in function.body.blocks:
        for binding in block.bindings:
            for var in set(relax.analysis.free_vars(binding.value)) & set(readers):
                readers[var] += 1
    shared = [param for param, count in readers.items() if count > 1]
    if not shared:
        return function
    # The parameters' variables become those of the copies, so that nothing else has to change.
    params = [relax.Var(p.name, p.ty) if p in shared else p for p in function.params]
    # By a function of the runtime: a kernel that copies, TVM takes for a reshape, which is a view.
    copies = [
        relax.VarBinding(old, relax.op.call_dps_packed(_COPY, new, old.ty))
        for old, new in zip(function.params, params, strict=True)
        if old in shared
    ]
    blocks = [relax.BindingBlock(copies), *function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)
