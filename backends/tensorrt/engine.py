"""Engines: built once per content, kept in the cache folder, with TensorRT's timing cache."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.base import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.relax.static_shape import leaf_types, static_shape
from collage.backends.tensorrt import converters  # noqa: F401 - registers them
from collage.backends.tensorrt.library import Package, build_plan, combine_timings
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.problem import NetworkWriter, RefusalError
from collage.backends.tensorrt.values import content_key
from collage.backends.toolchain import cuda_toolkit
from collage.backends.toolchain.artifact_cache import replacing


@dataclass(frozen=True)
class Tensor:
    """An input or output of an engine: elements, and bits of each."""

    num_elements: int
    bits: int


@dataclass(frozen=True)
class Engine:
    """One partition's engine.

    Attributes
    ----------
    symbol : str
        The partition.
    plan : bytes
        The serialized engine; its tensors are ``input0``, ..., ``output0``, ....
    inputs, outputs : tuple of Tensor
    """

    symbol: str
    plan: bytes
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def digest(self) -> str:
        """Names the engine by content."""
        return hashlib.sha256(self.plan).hexdigest()[:32]


class EngineBuilder:
    """Builds the engines of one IRModule.

    Parameters
    ----------
    package : Package
    target : BackendTarget
        With this backend's options, for a CUDA device.
    context : BuildContext
        Engines are kept under its ``cache_dir``, timings beside its log or there too.

    Attributes
    ----------
    built : int
        Engines that were not found in the cache folder.
    """

    def __init__(self, package: Package, target: BackendTarget, context: BuildContext) -> None:
        self.built = 0
        self._package = package
        self._options: TensorrtOptions = target.options
        self._arch = cuda_toolkit.arch_of(target.device)
        self._device = package.device_text(self._arch)
        self._folder = context.cache_dir / "tensorrt"
        self._log = context.tuning_log
        self._replay = context.replay

    @property
    def timing_cache(self) -> Path:
        """The file of TensorRT's timings: as the target says, beside the log, or in the cache."""
        if self._options.timing_cache:
            return Path(self._options.timing_cache)
        package = self._package
        # One for each: TensorRT drops timings of other versions and devices.
        name = f"{package.name}-{package.version}-{self._device}.timing"
        return self._folder / name if self._log is None else Path(f"{self._log}.{name}")

    def engine(self, function: relax.Function) -> Engine:
        """The engine of a partition function, from the cache folder where it was built before.

        What was measured is then what is deployed, although TensorRT, timing its kernels anew,
        might choose others.

        Raises
        ------
        RefusalError
            When TensorRT refuses the region; has TensorRT's logged reason.
        """
        path = self._folder / f"{self._content_name(function)}.plan"
        if path.is_file():
            plan = path.read_bytes()
        else:
            plan = self._build(function)
            self.built += 1
            with replacing(path) as partial:
                partial.write_bytes(plan)
        return Engine(
            symbol=str(function.attrs["global_symbol"]),
            plan=plan,
            inputs=tuple(_tensor(parameter.ty) for parameter in function.params),
            outputs=tuple(_tensor(ty) for ty in leaf_types(function.ret_ty)),
        )

    def _build(self, function: relax.Function) -> bytes:
        symbol = str(function.attrs["global_symbol"])
        writers: list[NetworkWriter] = []

        def write(network: Any, logger: Any) -> None:
            writer = NetworkWriter(self._package, network, logger, self._options, symbol)
            # Kept until the engine is built: it holds the memory of the weights.
            writers.append(writer)
            writer.write(function)

        timings = self.timing_cache
        known = timings.read_bytes() if timings.is_file() else b""
        try:
            plan, after = build_plan(
                self._package, self._arch, self._options, write, known, self._replay
            )
        except RefusalError:
            raise
        except CodegenError as err:
            raise RefusalError(symbol, str(err)) from err
        if after and after != known and not self._replay:
            self._keep_timings(after)
        return plan

    def _keep_timings(self, timings: bytes) -> None:
        """Two processes may build at once; each keeps what the other found."""
        path = self.timing_cache
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{path}.lock"):
            if path.is_file():
                timings = combine_timings(self._package, timings, path.read_bytes())
            with replacing(path) as partial:
                partial.write_bytes(timings)

    def _content_name(self, function: relax.Function) -> str:
        """Names a region by all that its engine is made of, its own name left out."""
        digest = hashlib.sha256(function.without_attr("global_symbol").script().encode())
        for constant in _constants(function):
            digest.update(content_key(constant).encode())
        options = {k: v for k, v in asdict(self._options).items() if k != "timing_cache"}
        what = [self._package.name, self._package.version, self._device, options]
        digest.update(json.dumps(what, sort_keys=True).encode())
        return digest.hexdigest()[:32]


def _constants(function: relax.Function) -> list[np.ndarray]:
    """Every constant of a region, in program order."""
    found: list[np.ndarray] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and hasattr(expr, "value"):
            found.append(expr.value.numpy())

    relax.analysis.post_order_visit(function, visit)
    return found


def _tensor(ty: relax.TensorType) -> Tensor:
    bits = 8 if str(ty.dtype) == "bool" else int(tvm.DataType(str(ty.dtype)).bits)
    return Tensor(math.prod(static_shape(ty)), bits)
