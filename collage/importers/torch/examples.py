"""What a program was traced with: inputs on which it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from collage.importers.torch.nodes import as_array
from collage.tensor_info import TensorInfo


def examples_of(
    program: torch.export.ExportedProgram, inputs: Sequence[TensorInfo]
) -> tuple[NDArray[Any] | None, ...]:
    """By input, the tensor that a program was traced with.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As PyTorch gave it.
    inputs : sequence of TensorInfo
        Of the model, under the names of the program.

    Returns
    -------
    tuple of (ndarray or None)
        None where the program does not have it, or of another shape or type than it is imported
        for.

    Examples
    --------
    >>> program = torch.export.export(torch.nn.ReLU(), (torch.arange(3.0),))
    >>> examples_of(program, [TensorInfo((3,), "float32", "input")])
    (array([0., 1., 2.], dtype=float32),)
    """
    if program.example_inputs is None:
        return (None,) * len(inputs)
    leaves = pytree.tree_leaves(program.example_inputs)
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    given = {
        spec.arg.name: as_array(leaf)
        for spec, leaf in zip(specs, leaves, strict=False)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    }
    found = [given.get(info.name) for info in inputs]
    return tuple(
        one if one is not None and (one.shape, one.dtype.name) == (info.shape, info.dtype) else None
        for one, info in zip(found, inputs, strict=True)
    )
