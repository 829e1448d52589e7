"""The processes of an operator's comparison: who compiles, who runs ours, who runs PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.operators.timing import Run, Timer, timer_of
from benchmarks.timing.child import serve
from benchmarks.timing.cuda_graphs import recorded
from collage.backends.toolchain.children.child_boot import Line
from collage.cost.processes.staging import load_requirements
from collage.cost.workload.arrays import load_arrays, save_arrays

Array = NDArray[Any]
Answer = dict[str, Any]

COMPILER, OURS, TORCH = "compiler", "ours", "torch"
_INPUTS, _EXPECTED = "inputs", "expected"


def main(line: Line, role: str, device: str, threads: str) -> None:
    """Answer requests until there are no more."""
    workers: dict[str, Callable[[str, int], Any]] = {
        COMPILER: Compiler,
        OURS: Ours,
        TORCH: Torch,
    }
    worker = workers[role](device, int(threads))
    serve(line, lambda request: getattr(worker, "do_" + request["do"])(request))


class Compiler:
    """Builds a case's candidates and writes its inputs."""

    def __init__(self, device: str, threads: int) -> None:
        self._device, self._threads = device, threads

    def do_compile(self, request: Answer) -> Answer:
        """``case``, ``network``, ``dtype``, ``seed``, ``folder``, ``cache``, ``options``."""
        import torch

        from benchmarks.operators.compile import compile_candidates, export, resolved
        from benchmarks.operators.network import find_case
        from collage.backends.contract import BuildContext

        torch.set_num_threads(self._threads)
        folder = Path(request["folder"])
        case = find_case(request["case"], request["network"])
        module, inputs = case.build(request["seed"], getattr(torch, request["dtype"]))
        save_arrays(folder / _INPUTS, [to_numpy(x) for x in inputs])
        context = BuildContext(Path(request["cache"]), folder / "work", self._threads)
        targets = resolved(self._device, request["options"])
        libraries, reasons = compile_candidates(export(module, inputs), targets, folder, context)
        return {"libraries": libraries, "reasons": reasons}


class _Side:
    """Who is timed: named callables and what they put out."""

    def __init__(self, device: str, threads: int) -> None:
        self._device, self._threads = device, threads
        self._timer: Timer | None = None
        self._runs: dict[str, Run] = {}

    def do_time(self, request: Answer) -> Answer:
        """``turn_sec``: seconds per call of each that is loaded."""
        if self._timer is None:
            self._timer = timer_of(self._device, self._threads)
        turn_sec = float(request["turn_sec"])
        return {name: self._timer.turn(run, turn_sec) for name, run in self._runs.items()}

    def do_drop(self, request: Answer) -> Answer:
        """Let go what is loaded."""
        self._runs = {}
        return {}

    def do_keep(self, request: Answer) -> Answer:
        """``names``: let go of the others."""
        self._runs = {name: self._runs[name] for name in request["names"]}
        return {}


class Torch(_Side):
    """PyTorch's own kernels, in a CUDA graph on a GPU."""

    def do_load(self, request: Answer) -> Answer:
        """``case``, ``network``, ``dtype``, ``seed``, ``folder``; writes what must come out."""
        import torch

        from benchmarks.operators.network import find_case

        self._runs = {}
        torch.set_num_threads(self._threads)
        # PyTorch rounds convolutions of float32 to TF32 unless it is told not to; ours never are.
        torch.backends.cudnn.allow_tf32 = False
        case = find_case(request["case"], request["network"])
        dtype = getattr(torch, request["dtype"])
        module, inputs = case.build(request["seed"], dtype)
        with torch.inference_mode():
            exact, wide = case.build(request["seed"], dtype)
            exact = exact.double()
            wide = tuple(x.double() if x.is_floating_point() else x for x in wide)
            expected = leaves(exact(*wide))
            save_arrays(Path(request["folder"]) / _EXPECTED, [to_numpy(x) for x in expected])
        module = module.to(self._device)
        inputs = tuple(x.to(self._device) for x in inputs)

        def call() -> Any:
            with torch.inference_mode():
                return module(*inputs)

        result = leaves(call())
        given, axis = to_numpy(inputs[0].cpu()), case.places_along
        got, wanted = (
            with_elements([to_numpy(x.cpu()) for x in each], given, axis)
            for each in (result, expected)
        )
        error = largest_error(got, wanted)
        self._runs = {TORCH: _captured(call) if self._device == "cuda" else call}
        moved = sum(x.numel() * x.element_size() for x in (*inputs, *result, *module.parameters()))
        moved += sum(x.numel() * x.element_size() for x in module.buffers())
        return {"largest_error": error, "bytes": int(moved), "flops": case.flops}


class Ours(_Side):
    """This project's candidates."""

    def do_load(self, request: Answer) -> Answer:
        """``libraries`` by name, ``folder``, ``places_along``: errors, or reasons, by name."""
        import tvm
        from tvm import relax

        self._runs = {}
        device = tvm.device(self._device, 0)
        folder = Path(request["folder"])
        arrays, axis = load_arrays(folder / _INPUTS), request["places_along"]
        inputs = [tvm.runtime.tensor(a, device) for a in arrays]
        expected = load_arrays(folder / _EXPECTED)
        expected = with_elements(expected, arrays[0], axis)
        errors: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for name, made in request["libraries"].items():
            load_requirements(Path(made["library"]))
            machine = relax.VirtualMachine(tvm.runtime.load_module(made["library"]), device)
            machine.set_input("main", *inputs)
            try:
                for _ in range(2):
                    machine.invoke_stateful("main")
                device.sync()
            except Exception as err:  # noqa: BLE001 - a fact about this candidate
                reasons[name] = f"{type(err).__name__}: {err}"[:300]
                continue
            result = [x.numpy() for x in leaves(machine.get_outputs("main"))]
            errors[name] = largest_error(with_elements(result, arrays[0], axis), expected)
            self._runs[name] = _invoked(machine)
        return {"errors": errors, "reasons": reasons}


def _invoked(machine: Any) -> Run:
    return lambda: machine.invoke_stateful("main")


def _captured(call: Run) -> Run:
    """A call as a CUDA graph that is replayed; as it is where it cannot be captured."""
    import torch

    try:
        return recorded(call)
    except RuntimeError:
        torch.cuda.synchronize()
        return call


def leaves(value: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if hasattr(value, "shape"):
        return [value]
    return [leaf for item in value for leaf in leaves(item)]


def to_numpy(tensor: Any) -> Array:
    """An array of the same type; bfloat16 as ``ml_dtypes`` has it."""
    import ml_dtypes
    import torch

    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = tensor.contiguous().numpy()
    return array


def with_elements(outputs: list[Array], x: Array, axis: int | None) -> list[Array]:
    """Values, and what lies at the places beside them: of equal elements any place is right.

    None of them stands twice; where one does, what lies there is no number.
    """
    if axis is None:
        return outputs
    values, places = outputs
    at = places if places.ndim == x.ndim else np.expand_dims(places, axis)
    found = np.take_along_axis(x, at, axis).astype(np.float64)
    if (np.diff(np.sort(at, axis), axis=axis) == 0).any():
        found[...] = np.nan
    return [values, found]


def largest_error(outputs: list[Array], expected: list[Array]) -> float:
    """The largest difference, relative to the largest value of its output; never NaN."""
    if [o.shape for o in outputs] != [e.shape for e in expected]:
        return float("inf")
    worst = 0.0
    for got, wanted in zip(outputs, expected, strict=True):
        difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
        scale = max(float(np.abs(wanted.astype(np.float64)).max(initial=0.0)), 1e-30)
        error = float(difference) / scale
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
