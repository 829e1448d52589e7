"""A loaded bundle: checked first, then called with arrays.

A bundle needs only TVM's runtime and numpy to run; this module is the comfortable way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import BundleError, InputError
from collage.backends.devices import device_named
from collage.bundle.manifest import read_manifest, read_report
from collage.bundle.profile import Profile, copy_rate, profile_calls
from collage.bundle.requirements import load_requirements
from collage.report import Report
from collage.tensor_info import TensorInfo

_ALIGNMENT_BYTES = 64
"""TVM's generated code loads vectors with this alignment."""


class Bundle:
    """A loaded bundle: callable with numpy arrays or DLPack tensors.

    Attributes
    ----------
    folder : Path
    manifest : Manifest
    inputs, outputs : tuple of TensorInfo

    Examples
    --------
    >>> import collage
    >>> from collage.cost import TableCostModel
    >>> from collage.testing import graph
    >>> mod = graph([(1, 3)], lambda emit, x: relax.op.abs(x))
    >>> costs = TableCostModel({("abs 1x3", "tvm"): 1e-6})
    >>> result = collage.optimize(mod, ["llvm"], cost_model=costs)
    >>> bundle = Bundle(result.export("abs.bundle"))
    >>> bundle(np.array([[-1, 0, 2]], "float32"))
    array([[1., 0., 2.]], dtype=float32)
    >>> bundle.outputs
    (TensorInfo(name='output_0', shape=(1, 3), dtype='float32'),)
    >>> len(bundle.benchmark(repeat=5))
    5
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        load_requirements(self.folder, self.manifest)
        self.inputs = self.manifest.inputs
        self.outputs = self.manifest.outputs
        library = (self.folder / self.manifest.library).resolve()
        self._module = tvm.runtime.load_module(str(library))
        self._device = device_named(self.manifest.device).runtime_device()
        self._vm = relax.VirtualMachine(self._module, self._device)
        self._entry = self.manifest.entry

    @property
    def report(self) -> Report:
        """The report that was written when the bundle was made.

        Raises
        ------
        BundleError
            When it cannot be read.
        """
        return read_report(self.folder)

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

        Parameters
        ----------
        repeat : int
            How many calls are timed.
        warmup : int
            How many go before them.
        inputs : sequence of numpy.ndarray, optional
            :meth:`random_inputs` if left out.

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

    def profile(self, repeat: int = 20, warmup: int = 3) -> Profile:
        """Time every kernel inside the running model, on :meth:`random_inputs`.

        Parameters
        ----------
        repeat : int
            How many calls are timed.
        warmup : int
            How many go before them.

        Raises
        ------
        BundleError
            When the bundle is for a GPU, whose kernels run in one captured graph.
        """
        if self._device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
            raise BundleError(
                f"kernels are timed inside a model on a CPU only, and this bundle is for "
                f"{self.manifest.device}: use the device's own profiler, for example nsys",
                value=self.manifest.device,
            )
        whole = float(np.median(self.benchmark(repeat, warmup)))
        arrays = self.random_inputs()
        tensors = [self._tensor(v, i) for v, i in zip(arrays, self.inputs, strict=True)]
        backends = sorted({part.backend for part in self.report.partitions})
        kernels = profile_calls(
            self._module, self._device, self._entry, tensors, backends, repeat, warmup
        )
        return Profile(kernels, whole, copy_rate(), repeat)

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
    """Seeded data of a tensor's shape: standard normal floats, 0 or 1 for integers and booleans.

    Parameters
    ----------
    info : TensorInfo
        Its shape and dtype.
    seed : int
        Of numpy's generator.

    Examples
    --------
    >>> random_array(TensorInfo("tokens", (6,), "int64"), seed=0)
    array([1, 1, 1, 0, 0, 0])
    """
    rng = np.random.default_rng(seed)
    if np.issubdtype(np.dtype(info.dtype), np.floating):
        return rng.standard_normal(info.shape).astype(info.dtype)
    return rng.integers(0, 2, info.shape).astype(info.dtype)
