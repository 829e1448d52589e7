"""What backends do to a module before the search: their own passes, each checked by running it."""

from __future__ import annotations

from dataclasses import replace

import tvm
import tvm_ffi
from tvm import relax

from collage.backends.contract import (
    BackendTarget,
    PreparesModules,
    TargetSet,
    backend_names,
    members_of,
)
from collage.backends.contract.errors import CollageError, last_line
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.reference import Sample, distance, sample_of
from collage.pipeline.computable import require_computable
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.drawing import working_sample
from collage.search.dataflow import DataflowGraph


def prepare_module(
    imported: Imported, targets: TargetSet, seed: int = 0, progress: ProgressCallback = ignore
) -> Imported:
    """Run the passes that backends bring, in the order in which the backends were registered.

    Parameters
    ----------
    imported : Imported
        The model, normalized.
    targets : TargetSet
        Whose backends are asked.
    seed : int
        Of the random inputs that the module is run on before and after each pass.
    progress : callable
        Told what was left out.

    Returns
    -------
    Imported
        After the passes that keep what the module computes. Its remarks name the others: those that
        fail, change parameters or results, or compute something else.

    Examples
    --------
    The backends that come along have no such passes:

    >>> from tvm.relax import op
    >>> from collage.pipeline import import_model
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> imported = import_model(graph([(2,)], lambda emit, x: op.exp(x)), targets.device)
    >>> prepare_module(imported, targets) is imported
    True
    """
    order = backend_names()
    members = sorted(members_of(PreparesModules, targets), key=lambda m: order.index(m[1].backend))
    before: Sample | None = None
    mod, remarks = imported.mod, []
    for backend, target in members:
        with target.scope:
            passes = list(backend.module_passes(target))
        for index, single in enumerate(passes):
            if before is None:
                before = working_sample(mod, imported.inputs, seed, ranges=imported.ranges)
            after, wrong = _checked(single, mod, target, before)
            if not wrong:
                mod = after
                continue
            name = single.info.name or f"number {index}"
            remarks.append(f"the pass {name} of {target.name} was left out: {wrong}")
            progress(ProgressEvent("prepare", 0, 0, remarks[-1]))
    if mod is imported.mod:
        return replace(imported, remarks=(*imported.remarks, *remarks)) if remarks else imported
    graph = DataflowGraph.from_function(mod["main"], mod)
    require_computable(graph, imported.name)
    return replace(imported, mod=mod, graph=graph, remarks=(*imported.remarks, *remarks))


def _checked(
    single: tvm.transform.Pass,
    mod: tvm.IRModule,
    target: BackendTarget,
    before: Sample,
) -> tuple[tvm.IRModule, str]:
    """The module after a pass, and what is wrong with that; empty where nothing is."""
    try:
        with target.scope:
            after = relax.transform.Normalize()(single(mod))
        if tvm_ffi.structural_equal(after, mod):
            return mod, ""
        if not _same_interface(mod["main"], after["main"]):
            return mod, "it changes the parameters or results of main"
        # The graph is of one dataflow block: a pass may leave others empty.
        DataflowGraph.from_function(after["main"], after)
        outputs = sample_of(after, before.inputs).expected
    except (CollageError, RuntimeError, ValueError, TypeError, KeyError) as err:
        return mod, f"it fails: {last_line(err)}"
    for got, wanted, noise in zip(outputs, before.expected, before.noise, strict=True):
        apart = distance(got, wanted)
        if not apart.fits(noise.bound()):
            return mod, f"results are off by {apart.largest:.2g} of their largest value"
    return after, ""


def _same_interface(before: relax.Function, after: relax.Function) -> bool:
    types = [relax.FuncType([p.ty for p in f.params], f.ret_ty) for f in (before, after)]
    return bool(tvm_ffi.structural_equal(*types))
