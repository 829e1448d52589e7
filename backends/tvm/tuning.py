"""MetaSchedule on request: each distinct kernel is tuned once on this machine's device.

Records are kept per target in the build cache (MetaSchedule's own JSON database), so a kernel that
occurs again, in another partition, model or process, costs nothing.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import meta_schedule as ms

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import ReplayMissError, TargetError
from collage.backends.contract.requirements import install_extra
from collage.backends.toolchain import cuda_runtime
from collage.backends.tvm.cpu.schedules import Machine
from collage.backends.tvm.options import TVMOptions

TRIALS_PER_ROUND = 32
SEED = 1

_BUILD_TIMEOUT_SEC = 240.0
"""MetaSchedule's own 30 s are gone on a slow or busy machine before a worker's first build begins:
it imports TVM's tensor intrinsics, which are parsed one by one. All trials would fail."""


def tune_kernels(
    funcs: Sequence[tirx.PrimFunc], target: BackendTarget, context: BuildContext
) -> list[tirx.PrimFunc | None]:
    """The best schedule that is known, or found now, for each kernel.

    Parameters
    ----------
    funcs : sequence of tirx.PrimFunc
        Fused and unscheduled.
    target : BackendTarget
        Its option ``tuning_trials`` bounds the measurements per distinct kernel.

    Returns
    -------
    list of tirx.PrimFunc or None
        None where no trial ran successfully.

    Raises
    ------
    TargetError
        When this machine has no device of the target's kind to measure on.
    ReplayMissError
        In a replay, when a kernel was not tuned before.
    """
    if not context.replay:
        require_tuner(target.device)
    device = tuning_target(target.device, context)
    options: TVMOptions = target.options
    folder = records_folder(target, context)
    folder.mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(folder))
    unknown = [func for func in funcs if not _is_known(func, database)]
    if unknown and context.replay:
        raise ReplayMissError(
            f"MetaSchedule's records hold no trials of {len(unknown)} kernels; without a replay "
            "they are made",
            value=len(unknown),
        )
    if unknown:
        # One task per distinct kernel: equal ones share a record.
        distinct: dict[int, tirx.PrimFunc] = {}
        for func in unknown:
            distinct.setdefault(tvm_ffi.structural_hash(func), func)
        _tune(list(distinct.values()), device, database, folder, options, context)
    return [_best(func, database, device) for func in funcs]


def require_tuner(device: tvm.target.Target) -> None:
    """Refuse to tune where it cannot be done: no device of the target's kind, no worker processes.

    Raises
    ------
    TargetError
    """
    if device.kind.name == "cuda" and not cuda_runtime.has_device():
        raise TargetError(
            "schedule 'metaschedule' measures on a GPU, and this machine has none that TVM can "
            "use; leave 'schedule' at 'default', or compile where there is one",
            value="metaschedule",
        )
    if importlib.util.find_spec("cloudpickle") is None:
        raise TargetError(
            "schedule 'metaschedule' needs the package that TVM starts its workers with; mend it "
            f"with: {install_extra('tune')}",
            value="metaschedule",
        )


def tuning_target(device: tvm.target.Target, context: BuildContext) -> tvm.target.Target:
    """The target with what MetaSchedule asks for besides: the number of cores, on a CPU."""
    if device.kind.name == "cuda":
        return device
    threads = Machine.of_target(device, context.num_threads).num_threads
    return tvm.target.Target({**dict(device.export()), "num-cores": threads})


def records_folder(target: BackendTarget, context: BuildContext) -> Path:
    """Where the records of a device target are kept."""
    key = {str(k): str(v) for k, v in target.device.export().items()}
    digest = hashlib.sha256(repr(sorted(key.items())).encode()).hexdigest()[:16]
    return context.cache_dir / "metaschedule" / f"{target.device.kind.name}-{digest}"


def _tune(
    funcs: Sequence[tirx.PrimFunc],
    device: tvm.target.Target,
    database: ms.database.JSONDatabase,
    folder: Path,
    options: TVMOptions,
    context: BuildContext,
) -> None:
    module = tvm.IRModule({f"kernel_{i}": func for i, func in enumerate(funcs)})
    gpu = device.kind.name == "cuda"
    compile_here = functools.partial(compile_with_nvcc, context, str(device.attrs.get("arch", "")))
    trials = options.tuning_trials
    learned = importlib.util.find_spec("xgboost") is not None
    ms.tir_integration.tune_tir(
        module,
        device,
        work_dir=str(folder),
        max_trials_global=trials * len(funcs),
        max_trials_per_task=trials,
        num_trials_per_iter=min(trials, TRIALS_PER_ROUND),
        builder=ms.builder.LocalBuilder(
            initializer=compile_here if gpu else None, timeout_sec=_BUILD_TIMEOUT_SEC
        ),
        runner=ms.runner.LocalRunner(),
        database=database,
        # Evolution pays with a learned cost model alone, which needs xgboost.
        cost_model="xgb" if learned else "random",
        strategy="evolutionary" if learned else "replay-trace",
        seed=SEED,
    )


def compile_with_nvcc(context: BuildContext, arch: str) -> None:
    """Let a building worker compile CUDA as this project does: our nvcc, no fast math."""
    cuda_runtime.load_runtime_or_stub(context)
    compile_code: Callable[[str], bytes] = functools.partial(
        cuda_runtime.compile_kernels, context=context, arch=arch
    )
    tvm_ffi.register_global_func(
        "tvm_callback_cuda_compile", lambda code, *_: compile_code(code), override=True
    )


def _is_known(func: tirx.PrimFunc, database: ms.database.JSONDatabase) -> bool:
    return bool(database.has_workload(_normalized(func)))


def _normalized(func: tirx.PrimFunc) -> tvm.IRModule:
    return ms.tune_context._normalize_mod(func)


def _best(
    func: tirx.PrimFunc, database: ms.database.JSONDatabase, device: tvm.target.Target
) -> tirx.PrimFunc | None:
    found = ms.tir_integration.compile_tir(database, func, device)
    if found is None:
        return None
    tuned = found.mod["main"]
    # MetaSchedule names what has no name "main", and the model's own function is called so.
    named = func.attrs and "global_symbol" in func.attrs
    return tuned if named else tuned.without_attr("global_symbol")
