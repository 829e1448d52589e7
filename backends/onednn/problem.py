"""From a partition function to the words of its plan, as ``templates/plan.h`` reads them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from tvm import relax

from collage.backends.onednn import operators  # noqa: F401 - registers them
from collage.backends.onednn.fuse import optimize
from collage.backends.onednn.graph import Graph, Node, Tensor
from collage.backends.onednn.in_bytes import use_bytes
from collage.backends.onednn.options import LAYOUTS, PRECISIONS, OnednnOptions
from collage.backends.onednn.partition import import_function
from collage.backends.onednn.subpixel import interleave_phases
from collage.backends.toolchain import native

_PLAN_VERSION = 3


@dataclass(frozen=True)
class Plan:
    """One region as data.

    Attributes
    ----------
    symbol : str
        The partition's global symbol.
    words : list of int
        The plan; 64-bit integers, floats as their bits.
    constants : dict of str to ndarray
        What the plan's constants refer to by position, by symbol.
    """

    symbol: str
    words: list[int]
    constants: dict[str, np.ndarray]


def plan_function(function: relax.Function, options: OnednnOptions) -> Plan:
    """Import, fuse and encode a partition function.

    Parameters
    ----------
    function : relax.Function
        With a ``global_symbol``; its body calls composites.
    options : OnednnOptions
        Of the target.

    Returns
    -------
    Plan
        Its words and constants, by the partition's symbol.

    Raises
    ------
    CodegenError
        When it holds something that this backend does not run.
    """
    graph = import_function(function)
    optimize(graph)
    use_bytes(graph)
    interleave_phases(graph)
    words, constants = encode(graph, options)
    return Plan(str(function.attrs["global_symbol"]), words, constants)


def encode(graph: Graph, options: OnednnOptions) -> tuple[list[int], dict[str, np.ndarray]]:
    """The words of a graph, and its constants by symbol.

    Parameters
    ----------
    graph : Graph
        Imported and fused.
    options : OnednnOptions
        Its layout and precision are among the words.

    Returns
    -------
    tuple[list[int], dict[str, np.ndarray]]
        The words are what the runtime reads, in its order.
    """
    tensors = _tensors(graph)
    number = {tensor: index for index, tensor in enumerate(tensors)}
    constants: dict[str, np.ndarray] = {}
    positions: dict[str, int] = {}
    # Where bytes are multiplied, operators say.
    in_bytes = options.precision == "int8"
    precision = 0 if in_bytes else PRECISIONS.index(options.precision)
    words = [_PLAN_VERSION, LAYOUTS.index(options.layout), precision, int(options.winograd)]
    words.append(len(tensors))
    for tensor in tensors:
        index = tensor.index
        if tensor.array is not None:
            symbol = native.constant_symbol(tensor.array)
            constants.setdefault(symbol, tensor.array)
            index = positions.setdefault(symbol, len(positions))
        words += [tensor.source, index, tensor.dtype, len(tensor.shape), *tensor.shape]
    words.append(len(graph.inputs))
    words += [len(graph.outputs), *(number[tensor] for tensor in graph.outputs)]
    words.append(len(graph.nodes))
    for node in graph.nodes:
        words += _node_words(node, number)
    return words, constants


def _tensors(graph: Graph) -> list[Tensor]:
    """Every tensor once, inputs first."""
    found: dict[Tensor, None] = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        found.update(dict.fromkeys([*node.reads(), *node.writes()]))
    found.update(dict.fromkeys(graph.outputs))
    return list(found)


def _node_words(node: Node, number: dict[Tensor, int]) -> list[int]:
    words: list[int] = [node.kind]
    for tensors in (node.inputs, node.writes()):
        words += [len(tensors), *(number[t] for t in tensors)]
    words += [len(node.ints), *(int(v) for v in node.ints)]
    words += [len(node.floats), *(_bits(v) for v in node.floats), len(node.post_ops)]
    for p in node.post_ops:
        other = -1 if p.tensor is None else number[p.tensor]
        words += [int(p.tensor is not None), p.algorithm, _bits(p.alpha), _bits(p.beta), other]
    return words


def _bits(value: float) -> int:
    """A float32's bits as an integer; a value too large becomes infinite."""
    rounded = np.float32(value)
    return int(struct.unpack("<I", struct.pack("<f", rounded))[0])
