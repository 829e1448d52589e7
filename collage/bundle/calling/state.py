"""What a model keeps from one call to the next, in the hands of who calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from collage.backends.contract.errors import InputError
from collage.bundle.calling.tensors import on_host, to_tvm
from collage.state import StateTensor
from collage.tensor_info import TensorInfo


class State(Mapping[str, np.ndarray]):
    """The tensors that a model changes in place, by name; each sequence of calls has its own.

    Parameters
    ----------
    tensors : sequence of StateTensor
        What there is.
    infos : sequence of TensorInfo
        Of the function's inputs.
    device : tvm.runtime.Device
        Where they lie.

    Examples
    --------
    >>> kept, info = StateTensor("calls", 1, 1, fill=0), TensorInfo((), "int64", "calls")
    >>> state = State([kept], [info, info], tvm.cpu())
    >>> int(state["calls"])
    0
    >>> state["calls"] = np.int64(3)
    >>> int(state["calls"])
    3
    >>> state.reset()
    >>> int(state["calls"])
    0
    """

    def __init__(
        self,
        tensors: Sequence[StateTensor],
        infos: Sequence[TensorInfo],
        device: tvm.runtime.Device,
    ) -> None:
        self._known = {one.name: (one, infos[one.input]) for one in tensors}
        self._types = {n: (info.shape, info.dtype) for n, (_, info) in self._known.items()}
        self._device = device
        self._lock = threading.Lock()
        self._held: dict[str, tvm.runtime.Tensor] = {}
        self.reset()

    def reset(self) -> None:
        """Begin anew: what the model held when it was compiled."""
        with self._lock:
            for name, (kept, info) in self._known.items():
                self._held[name] = to_tvm(kept.initial(info), self._device)

    def like(self, other: State) -> State:
        """This one, which is of the same model as another.

        Parameters
        ----------
        other : State
            The model's own.

        Returns
        -------
        State
            Itself.

        Raises
        ------
        InputError
            When it holds something else.
        """
        if self._types != other._types:
            raise InputError(
                f"that is a state of another model, {self}; this one has {other}: see new_state()",
                value=self,
            )
        return self

    def gone_on(
        self, call: Callable[[list[tvm.runtime.Tensor]], list[tvm.runtime.Tensor]]
    ) -> list[tvm.runtime.Tensor]:
        """One call on, whatever other threads are about to do.

        Parameters
        ----------
        call : callable
            Takes what is kept, and gives the results with what is kept then behind them.

        Returns
        -------
        list of tvm.runtime.Tensor
            The results alone.
        """
        with self._lock:
            found = call(list(self._held.values()))
            results, new = found[: -len(self._held)], found[-len(self._held) :]
            self._held = dict(zip(self._held, new, strict=True))
            return results

    def __getitem__(self, name: str) -> np.ndarray:
        """A copy of what is kept."""
        found: np.ndarray = self._held[name].numpy()
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        """Go on from something else.

        Raises
        ------
        InputError
            When there is no such tensor, or it has another shape or type.
        """
        if name not in self._known:
            raise InputError(
                f"the model keeps no '{name}'; it keeps {', '.join(self._known)}", value=name
            )
        info, array = self._known[name][1], np.asarray(on_host(value))
        if (array.shape, array.dtype.name) != (info.shape, info.dtype):
            raise InputError(
                f"'{name}' must be {info.dtype}{list(info.shape)}, not "
                f"{array.dtype.name}{list(array.shape)}",
                value=name,
            )
        with self._lock:
            self._held[name] = to_tvm(array.copy(), self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        shown = (f"{name} {i.dtype}{list(i.shape)}" for name, (_, i) in self._known.items())
        return f"State({', '.join(shown)})"
