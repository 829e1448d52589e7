"""One adapter over the Python packages ``tensorrt`` and ``tensorrt_rtx``.

Both have the same classes. They differ in where an engine is made: TensorRT times its kernels on
the GPU of this machine and the engine is for that GPU; TensorRT for RTX needs no GPU, writes an
engine for one compute capability and compiles its kernels when the engine is loaded.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from collage.backends.contract.errors import BackendUnavailableError, CodegenError
from collage.backends.contract.requirements import install_extra
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.toolchain.cuda_runtime import find_gpu
from collage.backends.toolchain.cuda_toolkit import compute_capability

PACKAGES = ("tensorrt", "tensorrt_rtx")
"""By preference: TensorRT's engines are tuned for the GPU they are built on."""

REMEDY = install_extra("tensorrt")

MINIMUM_VERSION = {"tensorrt": (10, 3), "tensorrt_rtx": (1, 0)}
"""Strongly typed networks with int64 and bfloat16 tensors, GELU as an activation."""


@dataclass(frozen=True)
class Package:
    """An installed TensorRT.

    Attributes
    ----------
    name : str
        ``tensorrt`` or ``tensorrt_rtx``.
    version : str
    module : module
    """

    name: str
    version: str
    module: ModuleType

    @property
    def needs_gpu(self) -> bool:
        """Whether engines are built on, and for, a GPU of this machine."""
        return self.name == "tensorrt"

    def capabilities(self) -> tuple[int, ...]:
        """Compute capabilities that engines can be built for without a GPU, as 89 for 8.9."""
        if self.needs_gpu:
            return ()
        names = self.module.ComputeCapability.__members__
        return tuple(sorted(int(n[2:]) for n in names if n.startswith("SM")))

    def refusal(self, arch: str) -> str:
        """Why no engine can be built for an architecture such as ``sm_90a``; empty if one can."""
        wanted = compute_capability(arch)
        if self.needs_gpu:
            gpu = find_gpu()
            if gpu is None:
                return f"TensorRT {self.version} builds engines on a GPU, and there is none here"
            if gpu.compute_capability != wanted:
                return (
                    f"TensorRT builds engines for the GPU at hand, of compute capability "
                    f"{_dotted(gpu.compute_capability)}; the target's is {_dotted(wanted)}"
                )
            return ""
        if wanted not in self.capabilities():
            valid = ", ".join(map(_dotted, self.capabilities()))
            return (
                f"TensorRT for RTX {self.version} builds no engine for compute capability "
                f"{_dotted(wanted)}; it builds for {valid}"
            )
        return ""

    def device_text(self, arch: str) -> str:
        """What an engine is bound to, as a piece of a file name."""
        gpu = find_gpu() if self.needs_gpu else None
        return arch if gpu is None else "".join(c if c.isalnum() else "_" for c in gpu.name)


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def find_package(names: Sequence[str] = PACKAGES) -> tuple[Package | None, str]:
    """The first of these packages that is installed, or None and the reason.

    Importing them needs no GPU.
    """
    reasons = []
    for name in names:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as err:
            if err.name != name:
                reasons.append(f"{name} is installed but cannot be imported: {err}")
        except (ImportError, OSError, RuntimeError) as err:
            reasons.append(f"{name} is installed but cannot be imported: {err}")
        else:
            package = Package(name, str(module.__version__), module)
            numbers = tuple(int(p) for p in package.version.split(".")[:2] if p.isdigit())
            least = MINIMUM_VERSION[name]
            if numbers >= least:
                return package, ""
            wanted = ".".join(map(str, least))
            reasons.append(f"{name} {package.version} is older than {wanted}")
    return None, "; ".join(reasons) or f"{' and '.join(names)} not installed"


def require_package(options: TensorrtOptions) -> Package:
    """The installed TensorRT.

    Raises
    ------
    BackendUnavailableError
        When there is none, or not the version that the options ask for.
    """
    package, reason = find_package()
    if package is None:
        raise BackendUnavailableError(
            f"backend 'tensorrt' cannot be used: {reason}", remedy=REMEDY, value="tensorrt"
        )
    if not options.fits_version(package.version):
        raise BackendUnavailableError(
            f"target 'tensorrt' wants version {options.tensorrt_version}, "
            f"but {package.name} {package.version} is installed",
            value=package.version,
        )
    return package


def make_logger(package: Package) -> Any:
    """A logger that keeps what TensorRT says: ``messages`` is a list of (severity, text).

    Only warnings and errors are kept. It must outlive everything that was made with it.
    """
    trt = package.module

    class Logger(trt.ILogger):  # type: ignore[name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: list[tuple[str, str]] = []

        def log(self, severity: Any, message: str) -> None:
            if severity.value <= trt.ILogger.Severity.WARNING.value:
                self.messages.append((severity.name, message))

    return Logger()


def logged_reason(logger: Any) -> str:
    """TensorRT's own words for a failure: its errors, in one line."""
    errors = [text for severity, text in logger.messages if severity != "WARNING"]
    texts = dict.fromkeys(" ".join(text.split()) for text in errors)
    return "; ".join(texts) or "TensorRT gave no reason"


def build_plan(
    package: Package,
    arch: str,
    options: TensorrtOptions,
    write: Callable[[Any, Any], None],
    timing_cache: bytes = b"",
    time_nothing: bool = False,
) -> tuple[bytes, bytes]:
    """Build one engine.

    Parameters
    ----------
    package : Package
        The TensorRT that builds it.
    arch : str
        For example ``sm_89``.
    options : TensorrtOptions
        Of the target: TF32 and the size of the workspace count here, precisions are the network's.
    write : callable
        Fills the network: given it and the logger. What it binds must stay alive until this
        function returns.
    timing_cache : bytes
        As an earlier build gave it; ignored by TensorRT where it does not fit.
    time_nothing : bool
        Take every time from there: what it lacks is an error.

    Returns
    -------
    (bytes, bytes)
        The serialized engine, and the timing cache after it.

    Raises
    ------
    CodegenError
        When TensorRT refuses; has TensorRT's logged reason.
    """
    reason = package.refusal(arch)
    if reason:
        raise CodegenError(reason, value=arch)
    trt = package.module
    logger = make_logger(package)
    try:
        builder = trt.Builder(logger)
    except (RuntimeError, TypeError) as err:
        raise CodegenError(f"{err}; {logged_reason(logger)}", value=str(err)) from err
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    write(network, logger)
    config = builder.create_builder_config()
    if not options.use_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if options.max_workspace_size:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.max_workspace_size)
    if time_nothing:
        config.set_flag(trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    if not package.needs_gpu:
        config.num_compute_capabilities = 1
        capability = getattr(trt.ComputeCapability, f"SM{compute_capability(arch)}")
        if not config.set_compute_capability(capability, 0):
            raise CodegenError(logged_reason(logger), value=arch)
    with warnings.catch_warnings():
        # TensorRT for RTX times nothing and calls its timing cache deprecated; it has one still.
        warnings.simplefilter("ignore", DeprecationWarning)
        cache = config.create_timing_cache(timing_cache) or config.create_timing_cache(b"")
        if cache is not None:
            config.set_timing_cache(cache, False)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            reason = logged_reason(logger)
            raise CodegenError(reason, value=reason)
        return bytes(plan), b"" if cache is None else bytes(config.get_timing_cache().serialize())


def combine_timings(package: Package, first: bytes, second: bytes) -> bytes:
    """A timing cache with the entries of both; the first one alone where they do not fit.

    Parameters
    ----------
    package : Package
        Which TensorRT made them.
    first, second : bytes
        Timing caches; where both have an entry, the first one's stays.

    Returns
    -------
    bytes
        Serialized, as :func:`build_plan` takes it.
    """
    trt = package.module
    logger = make_logger(package)
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        caches = [config.create_timing_cache(content) for content in (first, second)]
        if None in caches or not caches[0].combine(caches[1], False):
            return first
        return bytes(caches[0].serialize())
