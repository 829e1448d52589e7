"""A function of a loaded bundle: takes arrays, finds the variant for their shapes, calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm

from collage.backends.contract.errors import InputError
from collage.bundle.calling.contexts import Contexts
from collage.bundle.calling.counts import require_calls
from collage.bundle.calling.dispatch import choose, chosen_rows, pad, without_padding
from collage.bundle.calling.input_look import InputLook, require_in_place
from collage.bundle.calling.places import require_fixed, require_places
from collage.bundle.calling.random_inputs import random_array
from collage.bundle.calling.state import State
from collage.bundle.calling.streams import in_order, is_in_order, stream_handle
from collage.bundle.calling.tensors import (
    as_given,
    empty_array,
    of_the_caller,
    on_host,
)
from collage.bundle.calling.written import require_writable, write
from collage.bundle.signature import FunctionEntry, Variant


class PreparedCall(NamedTuple):
    """A call that is ready to be made; its extent, where inputs were padded."""

    variant: Variant
    tensors: list[tvm.runtime.Tensor]
    extent: int | None


class BundleFunction:
    """A function of a loaded bundle: callable with numpy arrays or DLPack tensors, as the model is.

    Parameters
    ----------
    contexts : Contexts
        Where it runs: calls from several threads have one each.
    device : tvm.runtime.Device
        Where its arrays lie.
    entry : FunctionEntry
        What the manifest says of it.
    borrowed : mapping of str to tuple of int, optional
        By variant's entry, which outputs the model keeps, see
        :func:`collage.bundle.borrowed_outputs`; without it all are copied.

    Attributes
    ----------
    entry : FunctionEntry
        What the manifest says of it.
    inputs, outputs : tuple of TensorInfo
        Where shapes vary, the largest.
    state : State
        What calls go on from that are given no state; empty of a model that keeps nothing.

    Examples
    --------
    >>> import collage
    >>> from tvm import relax
    >>> from collage.cost import TableCostModel
    >>> from collage.testing import graph
    >>> mod = graph([(1, 3)], lambda emit, x: relax.op.abs(x))
    >>> mod["twice"] = graph([(2,)], lambda emit, x: relax.op.add(x, x))["main"]
    >>> costs = TableCostModel({("abs 1x3", "tvm"): 1e-6, ("add 2", "tvm"): 1e-6})
    >>> result = collage.optimize(mod, ["llvm"], cost_model=costs)
    >>> bundle = collage.load(result.export("two.bundle"))
    >>> bundle["twice"](np.array([1, 2], "float32"))
    array([2., 4.], dtype=float32)
    """

    def __init__(
        self,
        contexts: Contexts,
        device: tvm.runtime.Device,
        entry: FunctionEntry,
        borrowed: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.entry = entry
        self.inputs = entry.inputs
        self.outputs = entry.outputs
        self._device = device
        self._contexts = contexts
        self._borrowed = borrowed
        self._fixed = entry.signature.fixed if entry.signature is not None else ()
        self._look = InputLook(entry, device)
        self._sizes = {
            variant.entry: ([i.bytes for i in variant.inputs], [o.bytes for o in variant.outputs])
            for variant in entry.variants
        }
        self.state = self.new_state()

    def new_state(self) -> State:
        """What the model keeps before its first call, for a sequence of calls of its own."""
        kept = self.entry.signature.state if self.entry.signature is not None else ()
        return State(kept, self.inputs, self._device)

    def __call__(
        self, *args: Any, stream: Any = None, state: State | None = None, **named: Any
    ) -> Any:
        """Run it.

        Parameters
        ----------
        *args, **named
            As the model is called, where it is one with a structure: dicts, tuples, None and
            values that were compiled in among its inputs. Else one numpy array or DLPack tensor
            per input, by position or by input name. Each is of the declared shape and dtype.
        stream : int or torch.cuda.Stream, optional
            On a GPU the call comes after what this CUDA stream holds and before what it gets next,
            see :meth:`compute`. Of a model with an input of that name it is the input.
        state : State, optional
            Of a model that changes tensors in place: what it goes on from, and changes. By default
            :attr:`state`. Anything else is an input of that name.

        Returns
        -------
        Any
            What the model gives, with its dicts, tuples and None; else one array, or a list of
            them where there are several outputs. Arrays are numpy's where all inputs are,
            PyTorch's where one is, over the memory that was written, else TVM's (DLPack).

        Raises
        ------
        InputError
            A missing, unknown or ill-shaped input, one of another structure, or a state of another
            model.
        """
        signature = self.entry.signature
        names = signature.names if signature is not None else [info.name for info in self.inputs]
        if stream is not None and "stream" in names:
            named, stream = {**named, "stream": stream}, None
        if state is not None and not isinstance(state, State):
            named, state = {**named, "state": state}, None
        going = self.state if state is None else state.like(self.state)
        if signature is not None:
            values = signature.arguments(args, named)
            for one in signature.written:
                require_writable(self.inputs[one.input].name, values[one.input])
            if going:
                found = going.gone_on(lambda kept: self.results([*values, *kept], stream=stream))
            else:
                found = self.results(values, stream=stream)
            for one in signature.written:
                write(values[one.input], found[one.output])
            return signature.returned(as_given(found, values))
        flat = self.compute(self.in_order(args, named), stream=stream)
        return flat[0] if len(flat) == 1 else flat

    def compute(self, values: Sequence[Any], *, stream: Any = None) -> list[Any]:
        """Run it on its inputs side by side, whatever structure it has.

        Parameters
        ----------
        values : sequence
            One array or tensor per input, in the order of :attr:`inputs`.
        stream : int or torch.cuda.Stream, optional
            A CUDA stream, or a ``cudaStream_t`` as a number: the call comes after what the stream
            holds and before what it gets next, and returns at once where inputs and results stay
            on the GPU. PyTorch's current stream where an input is a tensor of PyTorch's there.

        Returns
        -------
        list
            One per output, in the order of :attr:`outputs`.

        Raises
        ------
        InputError
            When one is of another shape or dtype, or the stream is none of the device's.
        """
        return as_given(self.results(values, stream=stream), values)

    def results(self, values: Sequence[Any], *, stream: Any = None) -> list[tvm.runtime.Tensor]:
        """As :meth:`compute`, whatever the inputs are of: tensors of TVM's, on the device.

        Parameters
        ----------
        values, stream
            As :meth:`compute` takes them.

        Returns
        -------
        list of tvm.runtime.Tensor
            One per output; nobody else looks at them.

        Raises
        ------
        InputError
            When one is of another shape or dtype, or the stream is none of the device's.
        """
        handle = stream_handle(stream, values, self._device)
        if handle is None or is_in_order(self._device, handle, values):
            return self._results(self.prepared(values))
        with in_order(self._device, handle, values) as in_place:
            call = self.prepared(values)
            in_place()
            return self._results(call)

    def _results(self, call: PreparedCall) -> list[tvm.runtime.Tensor]:
        functions = self._contexts.take()
        try:
            result = functions[call.variant.entry](*call.tensors)
        finally:
            self._contexts.give(functions)
        flat = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        entry = call.variant.entry
        borrowed = self._borrowed.get(entry) if self._borrowed else None
        given = of_the_caller(flat, call.tensors, borrowed, self._sizes[entry])
        if call.extent is not None:
            given = without_padding(self.entry, given, call.extent, self._device)
        return chosen_rows(self.entry, given, self._device) if self.entry.rows else given

    def bind(self, values: Sequence[Any]) -> Callable[[], list[Any]]:
        """A call with inputs in place, see :meth:`collage.bundle.Bundle.bind`."""
        call, given = self.prepared(values), list(values)
        if self._device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
            # Each call has to come after what its inputs' stream holds by then.
            return lambda: self.compute(given)
        require_in_place(self.inputs, given, call.tensors, padded=call.extent is not None)
        return lambda: as_given(self._results(call), given)

    def empty_inputs(self) -> list[np.ndarray]:
        """Arrays of the declared shapes, to be filled, that calls on a CPU take without a copy."""
        return [empty_array(info.shape, info.dtype) for info in self.inputs]

    def random_inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Seeded inputs: normal floats, integers 0 or 1; of what is kept, what it begins with."""
        arrays = [random_array(info, seed + i) for i, info in enumerate(self.inputs)]
        if self.state:
            arrays[-len(self.state) :] = self.new_state().values()
        for fixed in self._fixed:
            arrays[fixed.input].flat[:] = fixed.values
        for places in self.entry.places:
            np.clip(arrays[places.input], places.low, places.high, out=arrays[places.input])
        return arrays

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

        Raises
        ------
        InputError
            When an input does not fit, or ``repeat`` or ``warmup`` is no number of calls.
        """
        require_calls(repeat, warmup)
        arrays = list(inputs) if inputs is not None else self.random_inputs()
        call = self.prepared(arrays)
        samples = []
        with self._contexts.borrow() as functions:
            tensors, function = call.tensors, functions[call.variant.entry]
            for _ in range(warmup):
                function(*tensors)
            for _ in range(repeat):
                # A GPU works on after the call returns.
                self._device.sync()
                start = time.perf_counter()
                function(*tensors)
                self._device.sync()
                samples.append(time.perf_counter() - start)
        return tuple(samples)

    def in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Inputs by position and by the names of :attr:`inputs`, in their order.

        Parameters
        ----------
        args, named
            One for each input, whatever structure the model has.

        Returns
        -------
        list of object
            One for each input.

        Raises
        ------
        InputError
            One is missing, unknown or given twice.
        """
        names = [info.name for info in self.inputs]
        unknown = [name for name in named if name not in names]
        if unknown or len(args) > len(names):
            what = f"unknown input '{unknown[0]}'" if unknown else f"{len(args)} inputs given"
            raise InputError(f"{what}; {self._taken()}", value=unknown or len(args))
        given = dict(zip(names, args, strict=False))
        twice = [name for name in named if name in given]
        if twice:
            raise InputError(f"input '{twice[0]}' is given twice", value=twice[0])
        given.update(named)
        missing = [name for name in names if name not in given]
        if missing:
            raise InputError(f"input '{missing[0]}' is missing; {self._taken()}", value=missing[0])
        return [given[name] for name in names]

    def _taken(self) -> str:
        shown = [f"{info.name} {self.entry.show(i)}" for i, info in enumerate(self.inputs)]
        return f"the model takes {', '.join(shown)}"

    def prepared(self, values: Sequence[Any]) -> PreparedCall:
        """Everything that a call needs, inputs in place.

        Raises
        ------
        InputError
            When one does not fit.
        """
        if len(values) != len(self.inputs):
            raise InputError(f"{len(values)} inputs given; {self._taken()}", value=len(values))
        arrays, shapes = self._look.at(values)
        for places in self.entry.places:
            number = places.input
            array = arrays[number]
            given = values[number] if array is None else array
            require_places(places, self.inputs[number].name, given)
        for fixed in self._fixed:
            require_fixed(fixed, self.inputs[fixed.input].name, values[fixed.input])
        variant, extent = choose(self.entry, shapes)
        padding = self.entry.padding
        if extent is not None and padding is not None:
            values = list(values)
            for index, axis in padding.inputs:
                whole = variant.inputs[index].shape[axis]
                values[index] = pad(on_host(values[index]), axis, whole)
                arrays[index] = None
        return PreparedCall(variant, self._look.tensors(values, arrays), extent)
