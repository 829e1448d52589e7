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


def all_capturable(targets: Sequence[BackendTarget]) -> bool:
    """Whether every one of these targets' partitions may be captured."""
    return all(
        backend.cuda_graph_safe(target) for backend, target in members_of(LimitsCapture, targets)
    )


def copy_shared_inputs(mod: tvm.IRModule) -> tvm.IRModule:
    """Copy each input of ``main`` that more than one binding reads.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned; ``main`` is a sequence of blocks of bindings.
    """
    main = mod["main"]
    readers = dict.fromkeys(main.params, 0)
    for block in main.body.blocks:
        for binding in block.bindings:
            for var in set(relax.analysis.free_vars(binding.value)) & set(readers):
                readers[var] += 1
    shared = [param for param, count in readers.items() if count > 1]
    if not shared:
        return mod
    # The parameters' variables become those of the copies, so that nothing else has to change.
    params = [relax.Var(p.name, p.ty) if p in shared else p for p in main.params]
    # A cast to its own type is what Relax makes a plain copy of.
    copies = [
        relax.VarBinding(old, relax.op.astype(new, str(old.ty.dtype)))
        for old, new in zip(main.params, params, strict=True)
        if old in shared
    ]
    body = relax.SeqExpr([relax.BindingBlock(copies), *main.body.blocks], main.body.body)
    updated = mod.clone()
    updated["main"] = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
    return relax.transform.Normalize()(updated)
