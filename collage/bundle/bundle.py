"""A loaded bundle: checked first, then called with arrays.

A bundle needs only TVM's runtime and numpy to run; this module is the comfortable way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from collage.backends.contract.errors import BundleError, InputError
from collage.backends.devices import device_named
from collage.bundle.calling.contexts import Contexts
from collage.bundle.calling.counts import require_calls
from collage.bundle.calling.function import BundleFunction
from collage.bundle.calling.state import State
from collage.bundle.folder import spelled_by_file
from collage.bundle.manifest import read_manifest, read_report
from collage.bundle.profile import Profile, copy_rate, profile_calls
from collage.bundle.requirements import load_requirements
from collage.bundle.session import SessionMethods
from collage.bundle.state_files import with_initial
from collage.report import Report


class Bundle(SessionMethods):
    """A loaded bundle: callable as the model itself is, from any number of threads.

    Parameters
    ----------
    folder : path
        The bundle's.
    verify : bool
        Whether its files are held against the hashes that the manifest has of them.

    Attributes
    ----------
    folder : Path
    manifest : Manifest
    functions : dict of str to BundleFunction
        By name, in the model's order, ``main`` first.
    main : str
        The function that a call of the bundle itself is a call of.
    inputs, outputs : tuple of TensorInfo
        Of that one.

    Examples
    --------
    >>> import collage
    >>> from tvm import relax
    >>> from collage.cost import TableCostModel
    >>> from collage.testing import graph
    >>> mod = graph([(1, 3)], lambda emit, x: relax.op.abs(x))
    >>> costs = TableCostModel({("abs 1x3", "tvm"): 1e-6})
    >>> result = collage.optimize(mod, ["llvm"], cost_model=costs)
    >>> bundle = Bundle(result.export("abs.bundle"))
    >>> bundle(np.array([[-1, 0, 2]], "float32"))
    array([[1., 0., 2.]], dtype=float32)
    >>> bundle.outputs
    (TensorInfo(shape=(1, 3), dtype='float32', name='output_0'),)
    >>> len(bundle.benchmark(repeat=5))
    5
    """

    def __init__(self, folder: str | Path, *, verify: bool = True) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        load_requirements(self.folder, self.manifest, verify=verify)
        library = (self.folder / self.manifest.library).resolve()
        # Not by TVM's own function, which spells paths the shortest way.
        self._module = tvm_ffi.load_module(spelled_by_file(library))
        self._device = device_named(self.manifest.device).runtime_device()
        self._contexts = Contexts(self._module, self._device)
        borrowed = self.manifest.borrowed_outputs
        self.functions = {
            entry.name: BundleFunction(
                *(self._contexts, self._device, with_initial(self.folder, entry)), borrowed
            )
            for entry in self.manifest.all_functions
        }
        self.main = next(iter(self.functions))
        self.inputs = self.functions[self.main].inputs
        self.outputs = self.functions[self.main].outputs

    def __getitem__(self, name: str) -> BundleFunction:
        """A function by its name.

        Raises
        ------
        InputError
            When there is none; names those that there are.
        """
        if name not in self.functions:
            raise InputError(
                f"the bundle has no function '{name}'; its functions: {', '.join(self.functions)}",
                value=name,
            )
        return self.functions[name]

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
        """Run the model's main function.

        Parameters
        ----------
        *args, **named
            As :class:`BundleFunction` takes them.

        Returns
        -------
        Any
            What that gives.

        Raises
        ------
        InputError
            A missing, unknown or ill-shaped input, or one of another structure.
        """
        return self[self.main](*args, **named)

    @property
    def state(self) -> State:
        """What the main function keeps from call to call, see :attr:`BundleFunction.state`."""
        return self[self.main].state

    def new_state(self) -> State:
        """For a sequence of calls of its own, see :meth:`BundleFunction.new_state`."""
        return self[self.main].new_state()

    def compute(self, values: Sequence[Any], *, stream: Any = None) -> list[Any]:
        """Run the model's main function, see :meth:`BundleFunction.compute`.

        Parameters
        ----------
        values, stream
            As :meth:`BundleFunction.compute` takes them.

        Returns
        -------
        list
            One per output, in the order of :attr:`outputs`.
        """
        return self[self.main].compute(values, stream=stream)

    def bind(self, values: Sequence[Any]) -> Callable[[], list[Any]]:
        """A call of the main function whose inputs are looked at now and not again: some networks
        take less time than that.

        What lies in their memory when it is called counts. On a CPU indices of what there is not
        are no error in such a call (kernels take the nearest ones); on a GPU it is an ordinary one.

        Parameters
        ----------
        values : sequence
            As :meth:`compute` takes them; each has to be used where it lies, as those of
            :meth:`empty_inputs` are.

        Returns
        -------
        callable
            Gives what :meth:`compute` does.

        Raises
        ------
        InputError
            When one does not fit, or would be copied or padded.
        """
        return self[self.main].bind(values)

    def empty_inputs(self) -> list[np.ndarray]:
        """Arrays for the main function, see :meth:`BundleFunction.empty_inputs`."""
        return self[self.main].empty_inputs()

    def random_inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Seeded inputs of the main function, see :meth:`BundleFunction.random_inputs`."""
        return self[self.main].random_inputs(seed)

    def benchmark(
        self, repeat: int = 20, warmup: int = 3, inputs: Sequence[np.ndarray] | None = None
    ) -> tuple[float, ...]:
        """Time calls of the main function, see :meth:`BundleFunction.benchmark`.

        Parameters
        ----------
        repeat, warmup, inputs
            As :meth:`BundleFunction.benchmark` takes them.

        Returns
        -------
        tuple of float
            Seconds of each call, in their order.
        """
        return self[self.main].benchmark(repeat, warmup, inputs)

    def profile(
        self, repeat: int = 20, warmup: int = 3, inputs: Sequence[Any] | None = None
    ) -> Profile:
        """Time every kernel inside the running main function.

        Parameters
        ----------
        repeat : int
            How many calls are timed.
        warmup : int
            How many go before them.
        inputs : sequence, optional
            An array or tensor for each input; :meth:`random_inputs` if left out.

        Returns
        -------
        Profile
            With the median of whole calls beside the kernels' times, all in seconds.

        Raises
        ------
        BundleError
            When the bundle is for a GPU, whose kernels run in one captured graph.
        InputError
            When an input does not fit, or ``repeat`` or ``warmup`` is no number of calls.
        """
        require_calls(repeat, warmup)
        if self._device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
            raise BundleError(
                f"kernels are timed inside a model on a CPU only, and this bundle is for "
                f"{self.manifest.device}: use the device's own profiler, for example nsys",
                value=self.manifest.device,
            )
        arrays = self.random_inputs() if inputs is None else list(inputs)
        whole = float(np.median(self.benchmark(repeat, warmup, arrays)))
        call = self[self.main].prepared(arrays)
        backends = sorted({part.backend for part in self.report.partitions})
        kernels = profile_calls(
            *(self._module, self._device, call.variant.entry, call.tensors, backends),
            *(repeat, warmup),
        )
        return Profile(kernels, whole, copy_rate(), repeat)


def load(folder: str | Path, *, verify: bool = True) -> Bundle:
    """Load a bundle.

    Parameters
    ----------
    folder : path
        The bundle's.
    verify : bool
        Whether its files are held against the hashes that the manifest has of them, at about 1 GB
        a second; without it only their sizes are.

    Returns
    -------
    Bundle
        On the device that its manifest names.

    Raises
    ------
    BundleError
        When the folder is no bundle, is not whole, or something it needs is missing here.

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
    return Bundle(folder, verify=verify)
