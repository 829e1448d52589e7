"""A bundle as programs for onnxruntime expect a session to be: ``run``, ``get_inputs``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collage.backends.contract.errors import InputError
from collage.tensor_info import TensorInfo

_ONNX_NAMES = {"float32": "float", "float64": "double"}
"""Element types whose names differ in ONNX."""


@dataclass(frozen=True)
class NodeArg:
    """One input or output, as onnxruntime describes it.

    Attributes
    ----------
    name : str
    shape : list of int
        Without dynamic axes: where shapes vary, the largest.
    type : str
        For example ``tensor(float)``.

    Examples
    --------
    >>> NodeArg.of(TensorInfo((1, 3), "float32", "x"))
    NodeArg(name='x', shape=[1, 3], type='tensor(float)')
    """

    name: str
    shape: list[int]
    type: str

    @classmethod
    def of(cls, info: TensorInfo) -> NodeArg:
        """The same in onnxruntime's words."""
        element = _ONNX_NAMES.get(info.dtype, info.dtype)
        return cls(info.name, list(info.shape), f"tensor({element})")


class SessionMethods(ABC):
    """The methods of ``onnxruntime.InferenceSession`` that programs run models with."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    @abstractmethod
    def compute(self, values: Sequence[Any]) -> list[Any]:
        """All outputs for all inputs, each in its order."""

    def get_inputs(self) -> list[NodeArg]:
        """Name, shape and type of each input."""
        return [NodeArg.of(info) for info in self.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Name, shape and type of each output."""
        return [NodeArg.of(info) for info in self.outputs]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: None = None,
    ) -> list[Any]:
        """Run the model.

        Parameters
        ----------
        output_names : sequence of str or None
            What is wanted, in this order; all of it where there are none.
        input_feed : mapping
            An array for every input, by name; what a model keeps from call to call, its buffers, is
            among them, and what it holds then among the outputs.
        run_options : None
            For the sake of calls that give none.

        Returns
        -------
        list of object
            In the order of the wanted outputs.

        Raises
        ------
        InputError
            A missing, unknown or ill-shaped input, or an unknown output.
        """
        if run_options is not None:
            raise InputError("a bundle's run takes no run_options", value=run_options)
        names = [info.name for info in self.inputs]
        if not isinstance(input_feed, Mapping):
            raise InputError(
                f"inputs are given by name, for example {{'{names[0] if names else 'x'}': array}}; "
                f"not as a {type(input_feed).__name__}",
                value=type(input_feed).__name__,
            )
        if unknown := [name for name in input_feed if name not in names]:
            raise InputError(
                f"unknown input '{unknown[0]}'; the model takes {', '.join(names)}", value=unknown
            )
        if missing := [name for name in names if name not in input_feed]:
            raise InputError(
                f"input '{missing[0]}' is missing; the model takes {', '.join(names)}",
                value=missing,
            )
        places = {info.name: index for index, info in enumerate(self.outputs)}
        wanted = [output_names] if isinstance(output_names, str) else list(output_names or places)
        if strange := [name for name in wanted if name not in places]:
            raise InputError(
                f"unknown output '{strange[0]}'; the model gives {', '.join(places)}",
                value=strange,
            )
        found = self.compute([input_feed[name] for name in names])
        return [found[places[name]] for name in wanted]
