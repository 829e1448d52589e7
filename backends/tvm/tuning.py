"""MetaSchedule on request: each distinct kernel is tuned once on this machine's device.

A kernel's fastest trial is remembered, so a kernel that occurs again, in another partition, model
or process, costs nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import meta_schedule as ms

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError, TargetError
from collage.backends.contract.requirements import install_extra
from collage.backends.devices import CPU, CUDA, device_of
from collage.backends.storage import TuningRecord, TuningStage, TuningStore
from collage.backends.toolchain import cuda_runtime
from collage.backends.toolchain.cuda_toolkit import arch_of
from collage.backends.toolchain.kernels.compile import compile_kernels
from collage.backends.tvm.cpu.schedules import Machine
from collage.backends.tvm.options import TVMOptions

SCHEMA = 1
"""Of this backend's records in the tuning store."""

TRIALS_PER_ROUND = 32
SEED = 1
_FAILED_SEC = 1e9

_BUILD_TIMEOUT_SEC = 240.0
"""MetaSchedule's own 30 s are gone on a slow or busy machine before a worker's first build begins:
it imports TVM's tensor intrinsics, which are parsed one by one. All trials would fail."""


@dataclass(frozen=True)
class Kernel:
    """A kernel to be scheduled; equal ones share a finding.

    Attributes
    ----------
    digest : str
        Of its structure.
    arguments : tuple of str
        Their shapes and dtypes.
    func : tirx.PrimFunc
        One with this structure.
    """

    digest: str
    arguments: tuple[str, ...]
    func: tirx.PrimFunc = field(compare=False)

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Kernel:
        """The kernel that a function is; its name does not count."""
        texts = (f"{'x'.join(str(int(n)) for n in p.shape)}:{p.dtype}" for p in func.params)
        digest = tvm_ffi.structural_hash(_normalized(func)) & (2**64 - 1)
        return cls(f"{digest:016x}", tuple(texts), func)


@dataclass(frozen=True)
class Best:
    """The fastest trial, as MetaSchedule writes it in JSON; None where none ran."""

    trial: Any


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
    context : BuildContext
        Where to build and what to remember trials in.

    Returns
    -------
    list of tirx.PrimFunc or None
        None where no trial ran successfully.

    Raises
    ------
    TargetError
        When a kernel is not known, and this machine has no device of the target's kind.
    ReplayMissError
        In a replay, when a kernel was not tuned before.
    """
    tuner = Tuner(TuningStore.of("tvm", SCHEMA, context), target, context)
    kernels = [Kernel.of(func) for func in funcs]
    best = tuner.answers(kernels)
    return [tuner.scheduled(kernel.func, best[kernel]) for kernel in kernels]


class Tuner(TuningStage[Kernel, Best]):
    """Tries schedules for kernels, one kernel after the other.

    Parameters
    ----------
    store : TuningStore
        What was found before, and where findings go.
    target : BackendTarget
        With this backend's options.
    context : BuildContext
        Where to build.
    """

    def __init__(self, store: TuningStore, target: BackendTarget, context: BuildContext) -> None:
        kind = device_of(target.device)
        self._setup = _SETUPS[kind](target.device, context)
        self._target = self._setup.target
        arch = kind.architecture(self._target)
        super().__init__(store, arch, kind.facts(arch, context))
        self._options: TVMOptions = target.options
        self._context = context

    @property
    def can_measure(self) -> bool:
        return True  # Where the device is missing, measuring says what is to be done.

    def key(self, question: Kernel) -> dict[str, Any]:
        return {
            "kernel": question.digest,
            "arguments": question.arguments,
            "target": {str(k): str(v) for k, v in self._target.export().items()},
            "tvm": str(tvm.__version__),
        }

    def describe(self, question: Kernel) -> str:
        return f"a kernel of {', '.join(question.arguments)}"

    def read(self, question: Kernel, record: TuningRecord) -> Best:
        return Best(record.result["trial"])

    def measure(
        self, questions: Sequence[Kernel], failed: dict[Kernel, CodegenError]
    ) -> dict[Kernel, Best]:
        _require_tuner(self._target, self._context)
        # One pool of processes for all: each takes seconds to start.
        builder = ms.builder.LocalBuilder(
            initializer=self._setup.initializer, timeout_sec=_BUILD_TIMEOUT_SEC
        )
        runner = ms.runner.LocalRunner()
        best = {}
        self._context.work_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._context.work_dir) as folder:
            for kernel in questions:
                best[kernel] = Best(self._try_schedules(kernel, builder, runner, folder))
                self.record(kernel, {"trial": best[kernel].trial})
        return best

    def _try_schedules(
        self, kernel: Kernel, builder: ms.Builder, runner: ms.Runner, folder: str
    ) -> Any:
        trials = self._options.tuning_trials
        learned = importlib.util.find_spec("xgboost") is not None
        database = ms.database.MemoryDatabase()
        ms.tir_integration.tune_tir(
            kernel.func,
            self._target,
            work_dir=folder,
            max_trials_global=trials,
            max_trials_per_task=trials,
            num_trials_per_iter=min(trials, TRIALS_PER_ROUND),
            builder=builder,
            runner=runner,
            database=database,
            # Evolution pays with a learned cost model alone, which needs xgboost.
            cost_model="xgb" if learned else "random",
            strategy="evolutionary" if learned else "replay-trace",
            seed=SEED,
        )
        workload = database.commit_workload(_normalized(kernel.func))
        found = [record.as_json() for record in database.get_top_k(workload, 1)]
        # A trace, then seconds; MetaSchedule's 1e10 s stand for a failure.
        return next((trial for trial in found if max(trial[1]) < _FAILED_SEC), None)

    def scheduled(self, func: tirx.PrimFunc, best: Best) -> tirx.PrimFunc | None:
        """A kernel with its best schedule; None where no trial ran.

        Parameters
        ----------
        func : tirx.PrimFunc
            The kernel.
        best : Best
            What was found for it.

        Returns
        -------
        tirx.PrimFunc or None
            Under the name that the kernel has; None too where its trace cannot be replayed on it.
        """
        if best.trial is None:
            return None
        database = ms.database.MemoryDatabase()
        workload = database.commit_workload(_normalized(func))
        database.commit_tuning_record(ms.database.TuningRecord.from_json(best.trial, workload))
        found = ms.tir_integration.compile_tir(database, func, self._target)
        if found is None:
            return None
        tuned = found.mod["main"]
        # MetaSchedule names what has no name "main", and the model's own function is called so.
        named = func.attrs and "global_symbol" in func.attrs
        return tuned if named else tuned.without_attr("global_symbol")


def _require_tuner(device: tvm.target.Target, context: BuildContext) -> None:
    """Refuse to tune where there is no device of the target's kind, or no worker processes."""
    kind = device_of(device)
    if kind.facts(kind.architecture(device), context) is None:
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


@dataclass(frozen=True)
class _Setup:
    """How MetaSchedule is run: the target as it wants it, and what its builders begin with."""

    target: tvm.target.Target
    initializer: Callable[[], None] | None


def _cpu_setup(device: tvm.target.Target, context: BuildContext) -> _Setup:
    threads = Machine.of_target(device, context.num_threads).num_threads
    return _Setup(tvm.target.Target({**dict(device.export()), "num-cores": threads}), None)


def _cuda_setup(device: tvm.target.Target, context: BuildContext) -> _Setup:
    return _Setup(device, functools.partial(_compile_with_nvcc, context, arch_of(device)))


_SETUPS = {CPU: _cpu_setup, CUDA: _cuda_setup}


def _compile_with_nvcc(context: BuildContext, arch: str) -> None:
    """Let a building worker compile CUDA as this project does: our nvcc, no fast math."""
    cuda_runtime.load_runtime_or_stub(context)
    compile_code: Callable[[str], bytes] = functools.partial(
        compile_kernels, context=context, arch=arch
    )
    tvm_ffi.register_global_func(
        "tvm_callback_cuda_compile", lambda code, *_: compile_code(code), override=True
    )


def _normalized(func: tirx.PrimFunc) -> tvm.IRModule:
    return ms.tune_context._normalize_mod(func)
