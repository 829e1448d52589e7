"""Compiles the candidates for an operator: each backend wherever it can, TVM for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext, TargetSet
from collage.backends.contract.errors import CollageError
from collage.cost.processes.staging import stage_to_measure
from collage.passes import lower
from collage.pipeline.imported import Imported, import_model
from collage.search.strategies.without_costs import single_backend
from collage.targets import TargetLike, resolve_targets

TARGETS: dict[str, tuple[TargetLike, ...]] = {
    "cpu": ("llvm", "onednn", "openblas"),
    "cuda": ("cuda", "cutlass", "cublas", "cudnn"),
}
"""What takes part, by device."""


def resolved(device: str, options: dict[str, dict[str, Any]]) -> TargetSet:
    """The targets of a device, with attributes by backend."""
    kinds = TARGETS[device]
    return resolve_targets([{"kind": k, **options[str(k)]} if k in options else k for k in kinds])


def export(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """The operator as an importer gets it."""
    with torch.no_grad():
        return torch.export.export(module, inputs)


def compile_candidates(
    program: Any, targets: TargetSet, folder: Path, context: BuildContext
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Libraries by backend, and why a backend has none.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Of one operator.
    targets : TargetSet
        Each gives one candidate, unless it takes nothing.
    folder : Path
        Of the libraries.
    context : BuildContext
        Where to build.

    Returns
    -------
    dict
        By backend: ``library``, its path, and what it ``required`` and its ``runtimes``.
    dict
        Reasons by backend.

    Raises
    ------
    CollageError
        When the operator cannot be imported.
    """
    imported = import_model(program, targets.device)
    libraries: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}
    for target in targets:
        name = target.backend
        try:
            libraries[name] = _compiled(imported, targets, name, folder / name, context)
        except _TookNothing:
            continue
        except CollageError as err:
            reasons[name] = f"{type(err).__name__}: {err}"
    return libraries, reasons


class _TookNothing(Exception):
    """It would be TVM's candidate once more."""


def _compiled(
    imported: Imported, targets: TargetSet, name: str, folder: Path, context: BuildContext
) -> dict[str, Any]:
    target = next(t for t in targets if t.backend == name)
    partitioning = single_backend(imported.graph, target, targets.native)
    if target != targets.native and not _takes(partitioning.candidates, name):
        raise _TookNothing
    mod = lower(imported.mod, imported.graph, partitioning)
    library = compile_module(mod, list(targets), folder / "model.so", context)
    stage_to_measure(library)
    return {
        "library": str(library.path),
        "required": [str(need.path) for need in library.required],
        "runtimes": dict(library.runtimes),
    }


def _takes(candidates: Sequence[Any], name: str) -> bool:
    return any(c.backend == name and not c.inline for c in candidates)
