"""The deployable folder: write it, check it, load it.

``model.so`` holds every kernel and constant, ``lib/`` the shared libraries it was linked with,
``manifest.json`` says what it needs. A bundle needs only TVM's runtime and numpy to run; this
module is the comfortable way.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from collage.backends.compile import CompiledLibrary, stage_libraries
from collage.backends.contract.errors import BundleError, InputError, OutputError
from collage.backends.devices import CPU, device_named, device_of
from collage.bundle.cpu_flags import cpu_flags
from collage.bundle.requirements import check_needs
from collage.report.data import Report
from collage.tensor_info import TensorInfo

MANIFEST = "manifest.json"
REPORT = "report.json"
SCHEMA_VERSION = 1

_ALIGNMENT_BYTES = 64
"""TVM's generated code loads vectors with this alignment."""


def prepare_folder(folder: Path) -> None:
    """Make a bundle's folder, before any work is spent on its content.

    Raises
    ------
    OutputError
        When it cannot be made or written, or holds something that is no bundle.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".write-probe"
        probe.touch()
        probe.unlink()
    except OSError as err:
        raise OutputError(
            f"cannot write to '{folder}': {err.strerror}; choose another folder", value=str(folder)
        ) from err
    if any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise OutputError(
            f"'{folder}' holds files but is no bundle; choose an empty or new folder",
            value=str(folder),
        )


def write_bundle(
    folder: Path,
    library: CompiledLibrary,
    *,
    model: str,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    num_threads: int,
    versions: Mapping[str, str],
    device: tvm.target.Target,
    report: Report,
) -> Path:
    """Complete a bundle around a library that was linked to ``folder / 'model.so'``.

    Raises
    ------
    OutputError
        When something cannot be written.
    """
    try:
        shutil.rmtree(folder / "lib", ignore_errors=True)
        staged = stage_libraries(library, copy=True)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "model": model,
            "library": library.path.name,
            "entry": "main",
            "inputs": [asdict(info) for info in inputs],
            "outputs": [asdict(info) for info in outputs],
            "num_threads": num_threads,
            "architecture": platform.machine(),
            "system": platform.system(),
            "cpu_flags": cpu_flags(),
            **device_of(device).manifest_fields(device),
            "tvm_version": tvm.__version__,
            "tvm_ffi_version": tvm_ffi.__version__,
            "backend_versions": dict(versions),
            "shared_libraries": [
                {"file": f"lib/{path.name}", "sha256": _sha256(path)} for path in staged
            ],
            "required_libraries": [
                {"soname": need.soname, "version": need.version, "package": need.package}
                for need in library.required
            ],
            "runtimes": dict(library.runtimes),
        }
        (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
        text = json.dumps(manifest, indent=2) + "\n"
        (folder / MANIFEST).write_text(text, encoding="utf-8")
    except OSError as err:
        raise OutputError(
            f"cannot write bundle '{folder}': {err.strerror}", value=str(folder)
        ) from err
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle.

    Raises
    ------
    BundleError
        When the folder is no bundle, or of a version that this one cannot read.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise BundleError(f"'{folder}' is no bundle: it has no {MANIFEST}", value=folder) from err
    except (OSError, ValueError) as err:
        raise BundleError(f"'{path}' cannot be read: {err}", value=folder) from err
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        found = manifest.get("schema_version") if isinstance(manifest, dict) else None
        raise BundleError(
            f"'{path}' has schema version {found}; this version reads {SCHEMA_VERSION}",
            value=found,
        )
    return manifest


class Bundle:
    """A loaded bundle: callable with numpy arrays or DLPack tensors.

    Attributes
    ----------
    folder : Path
    manifest : dict
    inputs, outputs : tuple of TensorInfo
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        check_needs(self.folder, self.manifest)
        self.inputs = _tensor_infos(self.manifest["inputs"])
        self.outputs = _tensor_infos(self.manifest["outputs"])
        module = tvm.runtime.load_module(str((self.folder / self.manifest["library"]).resolve()))
        self._device = device_named(self.manifest.get("device", CPU.name)).runtime_device()
        self._vm = relax.VirtualMachine(module, self._device)
        self._entry = self.manifest["entry"]

    @property
    def report(self) -> Report:
        """The report that was written when the bundle was made."""
        try:
            text = (self.folder / REPORT).read_text(encoding="utf-8")
        except OSError as err:
            raise BundleError(
                f"bundle '{self.folder}' has no readable {REPORT}: {err.strerror}",
                value=self.folder,
            ) from err
        return Report.from_json(text)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model.

        Parameters
        ----------
        *args, **named
            One numpy array or DLPack tensor per input, by position or by input name, of the
            declared shape and dtype.

        Returns
        -------
        array or list of arrays
            One per output; numpy arrays, or TVM tensors (DLPack) when any input was no numpy array.

        Raises
        ------
        InputError
            A missing, unknown or ill-shaped input.
        """
        values = self._match_arguments(args, named)
        tensors = [self._tensor(v, i) for v, i in zip(values, self.inputs, strict=True)]
        result = self._vm[self._entry](*tensors)
        flat = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        if all(isinstance(value, np.ndarray) for value in values):
            flat = [tensor.numpy() for tensor in flat]
        return flat[0] if len(flat) == 1 else flat

    def random_inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Seeded inputs of the declared shapes: normal floats, integers 0 or 1."""
        return [random_array(info, seed + i) for i, info in enumerate(self.inputs)]

    def benchmark(
        self, repeat: int = 20, warmup: int = 3, inputs: Sequence[np.ndarray] | None = None
    ) -> tuple[float, ...]:
        """Time calls of the compiled function, inputs already in place.

        Returns
        -------
        tuple of float
            Seconds of each of ``repeat`` calls.
        """
        arrays = list(inputs) if inputs is not None else self.random_inputs()
        tensors = [self._tensor(v, i) for v, i in zip(arrays, self.inputs, strict=True)]
        function = self._vm[self._entry]
        for _ in range(warmup):
            function(*tensors)
        samples = []
        for _ in range(repeat):
            # A GPU works on after the call returns.
            self._device.sync()
            start = time.perf_counter()
            function(*tensors)
            self._device.sync()
            samples.append(time.perf_counter() - start)
        return tuple(samples)

    def _match_arguments(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = [info.name for info in self.inputs]
        expected = ", ".join(f"{i.name} {i.dtype}{list(i.shape)}" for i in self.inputs)
        unknown = [name for name in named if name not in names]
        if unknown or len(args) > len(names):
            what = f"unknown input '{unknown[0]}'" if unknown else f"{len(args)} inputs given"
            raise InputError(f"{what}; the model takes {expected}", value=unknown or len(args))
        given = dict(zip(names, args, strict=False))
        twice = [name for name in named if name in given]
        if twice:
            raise InputError(f"input '{twice[0]}' is given twice", value=twice[0])
        given.update(named)
        missing = [name for name in names if name not in given]
        if missing:
            raise InputError(
                f"input '{missing[0]}' is missing; the model takes {expected}", value=missing[0]
            )
        return [given[name] for name in names]

    def _tensor(self, value: Any, info: TensorInfo) -> tvm.runtime.Tensor:
        """A TVM tensor over the value's memory where it can be used as it lies, else a copy."""
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            raise InputError(
                f"input '{info.name}' must be an array, {info.dtype}{list(info.shape)}, "
                f"not a {type(value).__name__}",
                value=type(value).__name__,
            )
        shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
        if shape != info.shape or dtype != info.dtype:
            raise InputError(
                f"input '{info.name}' must be {info.dtype}{list(info.shape)}, "
                f"not {dtype}{list(shape)}",
                value=shape,
            )
        if isinstance(value, np.ndarray):
            return tvm.runtime.tensor(np.ascontiguousarray(value), self._device)
        tensor = tvm.runtime.from_dlpack(value)
        if tensor.device != self._device or not tensor.is_contiguous():
            return tvm.runtime.tensor(tensor.numpy(), self._device)
        if self._device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
            return tensor
        aligned = np.from_dlpack(value).ctypes.data % _ALIGNMENT_BYTES == 0
        return tensor if aligned else tvm.runtime.tensor(tensor.numpy())


def load(folder: str | Path) -> Bundle:
    """Load a bundle.

    Raises
    ------
    BundleError
        When the folder is no bundle or something it needs is missing here.

    Examples
    --------
    >>> import collage
    >>> import onnx.parser
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }'''
    ... )
    >>> result = collage.optimize(net, ["llvm"])
    >>> bundle = collage.load(result.export("net.bundle"))
    >>> bundle(np.array([[-2, -1, 0, 1, 2, 3, 4, 5]], "float32"))
    array([[0., 0., 0., 1., 2., 3., 4., 5.]], dtype=float32)
    """
    return Bundle(folder)


def random_array(info: TensorInfo, seed: int) -> np.ndarray:
    """Seeded data of a tensor's shape: standard normal floats, 0 or 1 for integers and booleans."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(np.dtype(info.dtype), np.floating):
        return rng.standard_normal(info.shape).astype(info.dtype)
    return rng.integers(0, 2, info.shape).astype(info.dtype)


def _tensor_infos(entries: Sequence[Mapping[str, Any]]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(e["name"], tuple(e["shape"]), e["dtype"]) for e in entries)
