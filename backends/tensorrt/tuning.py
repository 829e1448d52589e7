"""TensorRT's engines: remembered, or built by timing its kernels."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.devices import CUDA
from collage.backends.relax.static_shape import leaf_types
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.storage import TuningRecord, TuningStage, TuningStore
from collage.backends.tensorrt import converters  # noqa: F401 - registers them
from collage.backends.tensorrt.library import Package, build_plan, combine_timings
from collage.backends.tensorrt.network.constants import RefusalError
from collage.backends.tensorrt.network.values import content_key
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.problem import NetworkWriter
from collage.backends.toolchain.artifact_cache import replacing
from collage.backends.toolchain.cuda_toolkit import arch_of

SCHEMA = 1
"""Of this backend's records in the tuning store."""

LOGGED_ENGINE_BYTES = 256 << 10
"""How large an engine may be, compressed, that stands in the log itself: larger ones are mostly
weights, and a search builds hundreds of them. One of 270 kB of TensorRT for RTX takes 25."""

_WORTH_COMPRESSING = 16


@dataclass(frozen=True)
class Engine:
    """One partition's engine.

    Attributes
    ----------
    symbol : str
        The partition.
    plan : bytes
        The serialized engine; its tensors are ``input0``, ..., ``output0``, ....
    inputs, outputs : tuple of TensorSpec
        In the order of those numbers.
    """

    symbol: str
    plan: bytes
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def digest(self) -> str:
        """Names the engine by content."""
        return hashlib.sha256(self.plan).hexdigest()[:32]


@dataclass(frozen=True)
class Region:
    """What an engine is built of; its name does not count.

    Attributes
    ----------
    digest : str
        Of its operators and its weights.
    function : relax.Function
        One with this content.
    """

    digest: str
    function: relax.Function = field(compare=False)

    @classmethod
    def of(cls, function: relax.Function) -> Region:
        """The region of a partition function."""
        digest = hashlib.sha256(function.without_attr("global_symbol").script().encode())
        for constant in _constants(function):
            digest.update(content_key(constant).encode())
        return cls(digest.hexdigest(), function)

    @property
    def symbol(self) -> str:
        """The partition's name."""
        return str(self.function.attrs["global_symbol"])


class EngineBuilder(TuningStage[Region, bytes]):
    """Builds engines, or finds those that were built before.

    What was measured is then what is deployed, although TensorRT, timing its kernels anew, might
    choose others. A small engine stands in the log itself; of a large one, which is mostly the
    model's weights, the log has the times that decide it, and a replay builds it again from these.

    Parameters
    ----------
    package : Package
        The installed TensorRT.
    target : BackendTarget
        With this backend's options, for a CUDA device.
    context : BuildContext
        Names the log and the cache folder.

    Attributes
    ----------
    built : int
        Engines that were not found.
    """

    replay_must_know = False  # TensorRT itself refuses to build without times that it would need.

    def __init__(self, package: Package, target: BackendTarget, context: BuildContext) -> None:
        arch = arch_of(target.device)
        here = CUDA.facts(arch, context) if package.needs_gpu else {"arch": arch}
        super().__init__(TuningStore.of("tensorrt", SCHEMA, context), arch, here)
        self.built = 0
        self._package = package
        self._options: TensorrtOptions = target.options
        self._folder = context.cache_dir / "tensorrt"

    @property
    def timing_cache(self) -> Path:
        """The machine's file of TensorRT's timings: as the target says, or in the cache folder."""
        if self._options.timing_cache:
            return Path(self._options.timing_cache)
        package = self._package
        # One for each: TensorRT drops timings of other versions and devices.
        device = package.device_text(self.arch)
        return self._folder / f"{package.name}-{package.version}-{device}.timing"

    def engine(self, function: relax.Function) -> Engine:
        """The engine of one partition function.

        Raises
        ------
        RefusalError
            When TensorRT refuses the region; has TensorRT's logged reason.
        """
        region = Region.of(function)
        return _engine(function, self.answers([region])[region])

    def engines(self, functions: Iterable[relax.Function]) -> tuple[list[Engine], dict[str, str]]:
        """Engines of what TensorRT takes; by symbol the reasons for what it refuses."""
        regions = [Region.of(function) for function in functions]
        plans, failed = self.settle(regions)
        engines = [_engine(r.function, plans[r]) for r in regions if r in plans]
        refused = {r.symbol: _reason(failed[r]) for r in regions if r in failed}
        return engines, refused

    @property
    def can_measure(self) -> bool:
        return True  # Where the GPU is missing, TensorRT says so.

    def key(self, question: Region) -> dict[str, Any]:
        options = {k: v for k, v in asdict(self._options).items() if k != "timing_cache"}
        package = self._package
        return {"region": question.digest, package.name: package.version, "options": options}

    def describe(self, question: Region) -> str:
        return question.symbol

    def read(self, question: Region, record: TuningRecord) -> bytes | None:
        return self.store.blob(record.blob("engine"))

    def measure(
        self, questions: Sequence[Region], failed: dict[Region, CodegenError]
    ) -> dict[Region, bytes]:
        plans = {}
        for region in questions:
            try:
                plans[region] = self._build(region)
            except RefusalError as err:
                failed[region] = err
            except CodegenError as err:
                failed[region] = RefusalError(region.symbol, str(err))
        return plans

    def _build(self, region: Region) -> bytes:
        writers: list[NetworkWriter] = []

        def write(network: Any, logger: Any) -> None:
            writer = NetworkWriter(self._package, network, logger, self._options, region.symbol)
            # Kept until the engine is built: it holds the memory of the weights.
            writers.append(writer)
            writer.write(region.function)

        known, replay = self._timings(region), self.store.replay
        plan, after = build_plan(self._package, self.arch, self._options, write, known, replay)
        self.built += 1
        if not replay:
            if after and after != known:
                self._keep_timings(after)
            is_small = _is_small(plan)
            result = {"engine": self.store.keep(plan, in_log=is_small)}
            if not is_small:
                result["timings"] = self.store.keep(after)
            self.record(region, result)
        return plan

    def _timings(self, region: Region) -> bytes:
        """Those that decided the region's engine when it was built, or all of this machine's."""
        device = self.device
        found = None if device is None else self.store.find(self.key(region), device)
        recorded = None if found is None else self.store.blob(found.blob("timings"))
        if recorded is not None:
            return recorded
        return self.timing_cache.read_bytes() if self.timing_cache.is_file() else b""

    def _keep_timings(self, timings: bytes) -> None:
        """Two processes may build at once; each keeps what the other found."""
        path = self.timing_cache
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{path}.lock"):
            if path.is_file():
                timings = combine_timings(self._package, timings, path.read_bytes())
            with replacing(path) as partial:
                partial.write_bytes(timings)


def _is_small(plan: bytes) -> bool:
    """Whether an engine is for the log; what no compression makes small is not compressed."""
    limit = LOGGED_ENGINE_BYTES
    return len(plan) <= _WORTH_COMPRESSING * limit and len(zlib.compress(plan, 1)) <= limit


def _reason(error: CodegenError) -> str:
    return error.reason if isinstance(error, RefusalError) else str(error)


def _engine(function: relax.Function, plan: bytes) -> Engine:
    return Engine(
        symbol=str(function.attrs["global_symbol"]),
        plan=plan,
        inputs=tuple(TensorSpec.of(parameter.ty) for parameter in function.params),
        outputs=tuple(TensorSpec.of(ty) for ty in leaf_types(function.ret_ty)),
    )


def _constants(function: relax.Function) -> list[np.ndarray]:
    """Every constant of a region, in program order."""
    found: list[np.ndarray] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and hasattr(expr, "value"):
            found.append(expr.value.numpy())

    relax.analysis.post_order_visit(function, visit)
    return found
