"""Makes the keys of records: everything that a measurement here and now depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import tvm
import tvm_ffi
from tvm import ir

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.digest.source_facts import facts_kept_in
from collage.backends.devices import device_named
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.toolchain.compiling import compiler_version
from collage.cost.config import MeasureConfig
from collage.cost.database.record import PARTITION, RecordKey, canonical_json
from collage.cost.device import Device, policy_of
from collage.cost.workload.canonical import ConstantCollector, Rebuilder
from collage.cost.workload.workload import Workload


class KeyMaker:
    """Makes record keys for one device, compiler and configuration.

    Parameters
    ----------
    context : BuildContext
        Its compiler, number of threads and treatment of denormals count.
    config : MeasureConfig
        All of it counts.
    device : Device
        What is measured on.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tvm import relax
    >>> from tvm.target import Target
    >>> from collage.testing import graph
    >>> keys = KeyMaker(
    ...     BuildContext(Path("cache"), Path("work"), num_threads=4),
    ...     MeasureConfig(),
    ...     Device("cpu", "Some CPU", cores=4, features="0123"),
    ... )
    >>> workload = Workload.from_module(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> key = keys.partition(workload, BackendTarget.of("tvm", Target("llvm")))
    >>> key.tensors, key.device, key.num_threads
    ('8x8:float32 -> 8x8:float32', 'Some CPU, 4 cores, isa 0123', 4)
    """

    def __init__(self, context: BuildContext, config: MeasureConfig, device: Device) -> None:
        self._compiler = compiler_version(context.cxx)
        self._policy = policy_of(device_named(device.kind))
        self._num_threads = self._policy.num_threads(context, device)
        self._denormals = self._policy.kind.denormals(context)
        self._config = canonical_json(self._policy.config_key(config))
        self._device = device
        self._cache_dir = context.cache_dir
        self._versions: dict[str, dict[str, str]] = {}

    def partition(
        self, workload: Workload, target: BackendTarget, kind: str = PARTITION, contest: str = ""
    ) -> RecordKey:
        """The key of a workload's cost on a target.

        Parameters
        ----------
        workload : Workload
            What is measured.
        target : BackendTarget
            What it is compiled for.
        kind : str
            ``PARTITION``, ``TRANSITION`` or ``TOGETHER``.
        contest : str
            For the last one, whom it was timed with.

        Returns
        -------
        RecordKey
            The same for equal workloads, whatever they are called.
        """
        tensors = _tensors_text(workload)
        if contest:
            tensors += f"; contest {contest}"
        return self.make(kind, workload.key, tensors, [target])

    def make(
        self, kind: str, workload: str, tensors: str, targets: Sequence[BackendTarget]
    ) -> RecordKey:
        """A key of any kind.

        Parameters
        ----------
        kind : str
            One of the kinds of records.
        workload : str
            The key of what is measured.
        tensors : str
            Shapes and dtypes, to be read by people.
        targets : sequence of BackendTarget
            One, or for a whole model all.

        Returns
        -------
        RecordKey
            With the versions of all backends named, of the compilers and of TVM; targets are
            sorted.
        """
        keys = sorted({target.key() for target in targets})
        versions: dict[str, str] = {}
        for target in targets:
            versions.update(self._backend_versions(target))
        versions.update(self._policy.compiler_versions())
        text = keys[0] if len(keys) == 1 else f"[{', '.join(keys)}]"
        return RecordKey(
            kind=kind,
            workload=workload,
            tensors=tensors,
            target=text,
            versions=tuple(sorted(versions.items())),
            compiler=self._compiler,
            tvm=f"{tvm.__version__}, ffi {tvm_ffi.__version__}",
            device=self._policy.device_key(self._device),
            driver=self._device.driver,
            num_threads=self._num_threads,
            config=self._config,
            denormals=self._denormals,
        )

    def _backend_versions(self, target: BackendTarget) -> dict[str, str]:
        name = target.backend
        if name not in self._versions:
            backend = target.implementation
            versions = {str(k): str(v) for k, v in backend.probe().versions.items()}
            with facts_kept_in(self._cache_dir):
                versions[f"{name} codegen"] = backend.source_digest()
            self._versions[name] = versions
        return self._versions[name]


def _tensors_text(workload: Workload) -> str:
    """Shapes and dtypes, for example ``1x8x6x6:float32 -> 1x4x6x6:float32``."""

    def text(specs: Sequence[TensorSpec]) -> str:
        return ", ".join(TensorSpec(spec.shape, spec.dtype).__str__() for spec in specs)

    return f"{text([*workload.inputs, *workload.constants])} -> {text(workload.outputs)}"


class ModuleKeys:
    """Keys of whole partitioned modules, their weights included.

    The variants of one model share their constants, so each constant is digested once.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> relu, tanh = (graph([(8, 8)], lambda _, x: f(x)) for f in (op.nn.relu, op.tanh))
    >>> keys = ModuleKeys()
    >>> len(keys.key(relu)), keys.key(relu) == keys.key(tanh)
    (64, False)
    """

    def __init__(self) -> None:
        self._digests: dict[ir.GenericConst, str] = {}

    def key(self, mod: tvm.IRModule) -> str:
        """SHA-256 of the canonical text and of every weight."""
        collector = ConstantCollector()
        canonical = Rebuilder(collector).module(mod)
        digest = hashlib.sha256(canonical.script(show_meta=False).encode())
        for constant in collector.constants:
            digest.update(self._digest(constant).encode())
        digest.update("".join(collector.inline_digests).encode())
        return digest.hexdigest()

    def _digest(self, constant: ir.GenericConst) -> str:
        if constant not in self._digests:
            data = np.ascontiguousarray(constant_data(constant)).view(np.uint8).data
            self._digests[constant] = hashlib.sha256(data).hexdigest()
        return self._digests[constant]
