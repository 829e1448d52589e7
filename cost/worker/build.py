"""A builder worker's work: compile a workload and compute what it must give; tune many at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from collage.backends.compile import compile_module, external_functions
from collage.backends.contract.abilities import Tunable
from collage.backends.contract.base import BackendTarget, BuildContext, ExternalBackend
from collage.backends.contract.registry import get_backend
from collage.cost.base import CostStatus
from collage.cost.reference import evaluate
from collage.cost.reference.store import References
from collage.cost.worker.requirements import stage_to_measure
from collage.cost.workload.content import content_key
from collage.cost.workload.workload import Workload

Arrays = list[NDArray[np.generic]]


def target_to_json(target: BackendTarget) -> dict[str, Any]:
    """A target as plain values, for another process."""
    device = json.loads(str(target.device))
    return {"backend": target.backend, "options": target.option_dict(), "device": device}


def target_from_json(value: dict[str, Any]) -> BackendTarget:
    """The inverse of :func:`target_to_json`."""
    options = get_backend(value["backend"]).options_type(**value["options"])
    return BackendTarget(value["backend"], tvm.target.Target(value["device"]), options)


def context_to_json(context: BuildContext) -> dict[str, Any]:
    """A build context as plain values, for another process."""
    values = dataclasses.asdict(context)
    return {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}


def context_from_json(value: dict[str, Any]) -> BuildContext:
    """The inverse of :func:`context_to_json`."""
    paths = {
        name: None if value[name] is None else Path(value[name])
        for name in ("cache_dir", "work_dir", "tuning_log")
    }
    return BuildContext(**{**value, **paths})


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a workload into ``folder/model.so``, with test data beside it.

    The reference is evaluated here, not where the candidate runs: the builders are idle anyway
    while nothing is timed, no candidate can disturb it, and a runner may then be another machine.

    Parameters
    ----------
    request : dict
        ``workload`` (JSON text), ``target``, ``folder``, ``references`` (a folder), ``context``,
        ``seed``.

    Returns
    -------
    dict
        ``status``, ``library``, ``build_sec``.
    """
    folder = Path(request["folder"])
    workload = Workload.from_json(request["workload"])
    target = target_from_json(request["target"])
    begin = time.perf_counter()
    context = context_from_json(request["context"])
    context.work_dir.mkdir(parents=True, exist_ok=True)
    mod = workload.materialize(request["seed"])
    library = compile_module(mod, [target], folder / "model.so", context)
    stage_to_measure(library)
    write_test_data(workload, mod, request["seed"], folder, References(Path(request["references"])))
    return {
        "status": CostStatus.VALID.value,
        "library": str(library.path),
        "build_sec": time.perf_counter() - begin,
    }


def tune(request: dict[str, Any]) -> dict[str, Any]:
    """Have a backend choose what runs many workloads, before they are built one by one.

    Parameters
    ----------
    request : dict
        ``workloads`` (JSON texts), ``target`` (of a :class:`Tunable`), ``context``,
        ``seed``.
    """
    target = target_from_json(request["target"])
    backend = get_backend(target.backend)
    assert isinstance(backend, ExternalBackend) and isinstance(backend, Tunable)
    functions = [
        function
        for text in request["workloads"]
        for function in external_functions(
            Workload.from_json(text).materialize(request["seed"]), backend
        )
    ]
    backend.tune(functions, target, context_from_json(request["context"]))
    return {"status": CostStatus.VALID.value}


def write_test_data(
    workload: Workload, mod: tvm.IRModule, seed: int, folder: Path, references: References
) -> None:
    """Inputs and expected outputs as files; computed once for all backends of a workload."""

    def compute(place: Path) -> None:
        inputs, expected = test_data(workload, mod, seed)
        save_arrays(place / "inputs", inputs)
        save_arrays(place / "expected", expected)

    key = hashlib.sha256(f"{content_key(mod)} {workload.bounds} {seed}".encode()).hexdigest()
    references.link(key, folder, compute)


def test_data(workload: Workload, mod: tvm.IRModule, seed: int) -> tuple[Arrays, Arrays]:
    """Inputs and the reference's outputs; inputs are positive where others give no number."""
    inputs = workload.make_inputs(seed)
    expected = evaluate(mod, inputs)
    if not all(_is_finite(array) for array in expected):
        positive = workload.make_inputs(seed, positive=True)
        outputs = evaluate(mod, positive)
        if all(_is_finite(array) for array in outputs):
            return positive, outputs
    return inputs, expected


def _is_finite(array: NDArray[np.generic]) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.float32)).all())


def save_arrays(folder: Path, arrays: Arrays) -> None:
    """Write arrays as ``0.npy``, ``1.npy`` …; bfloat16, which the format lacks, as its bits."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, array in enumerate(arrays):
        name = f"{index}.{array.dtype.name}.npy"
        stored = array if array.dtype.kind != "V" else array.view(np.uint16)
        np.save(folder / name, stored, allow_pickle=False)


def load_arrays(folder: Path) -> Arrays:
    """The inverse of :func:`save_arrays`."""
    arrays = []
    for path in sorted(folder.glob("*.npy"), key=lambda path: int(path.name.split(".")[0])):
        array = np.load(path, allow_pickle=False)
        arrays.append(array.view(np.dtype(path.name.split(".")[1])))
    return arrays
