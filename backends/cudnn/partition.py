"""Reading a partition function: which graph, and which argument is which of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.cudnn.graphs import (
    CONVOLUTIONS,
    Epilogue,
    activation_of,
    attention_graph,
    attention_of_chain,
    attention_of_operator,
    convolution_graph,
    matmul_graph,
    norm_graph,
    pool_graph,
    softmax_graph,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.patterns import check_softmax, scale_of
from collage.backends.cudnn.problem import Graph
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.partitions.composites import Composite, CompositeCall, compiling
from collage.backends.relax.static_shape import static_shape

_CONTRACTIONS = {
    **{name: (f"relax.nn.{name}", convolution_graph) for name in CONVOLUTIONS},
    "matmul": ("relax.matmul", matmul_graph),
}
"""Operators that an epilogue may follow, by how the names of their patterns begin."""


@dataclass(frozen=True)
class Partition:
    """A partition function.

    Attributes
    ----------
    symbol : str
    graph : Graph
    arguments : tuple of int
        Which of the entry's arguments each slot of the graph is; the output is the last one.
    num_arguments : int
        Parameters and the output.
    """

    symbol: str
    graph: Graph
    arguments: tuple[int, ...]
    num_arguments: int


def read_partition(
    function: relax.Function, options: CudnnOptions, compute_capability: int
) -> Partition:
    """Read a ``Codegen`` function that holds one composite.

    Parameters
    ----------
    function : relax.Function
        Its constants have become parameters, but for scalars.
    options : CudnnOptions
        Of the target.
    compute_capability : int
        Of the GPU to run on: attention asks for one.

    Returns
    -------
    Partition
        Its graph, and for each slot the position of the entry's argument.

    Raises
    ------
    CodegenError
        When the function is not what this backend's patterns match, or its constants are inline.
    """
    call = CompositeCall.of(function, "cudnn")
    reader = _Reader(call.composite)
    with compiling("cudnn", call.symbol):
        graph, operands = reader.derive(options, compute_capability)
    arguments = [call.position(operand) for operand in operands]
    output = len(function.params)
    return Partition(call.symbol, graph, (*arguments, output), output + 1)


class _Reader:
    """Reads a composite into a graph."""

    def __init__(self, composite: Composite) -> None:
        self.name = composite.name.removeprefix("cudnn.")
        self.composite = composite
        self.root = self.call(composite.root)

    def call(self, expr: relax.Expr) -> relax.Call:
        """The call that an expression stands for."""
        value = self.composite.resolve(expr)
        if not isinstance(value, relax.Call):
            raise CodegenError(f"'{self.name}': no call where expected: {value}", value=self.name)
        return value

    def derive(
        self, options: CudnnOptions, compute_capability: int
    ) -> tuple[Graph, list[relax.Expr]]:
        """The graph, and its operands in the order of their slots."""
        root = self.root
        core = next((name for name in _CONTRACTIONS if f"{self.name}_".startswith(f"{name}_")), "")
        if core:
            return self._contraction(core, options)
        if self.name.startswith("attention_chain"):
            return self._attention_chain(compute_capability)
        if self.name.startswith("attention"):
            return self._attention_operator(compute_capability)
        if self.name.startswith(("max_pool", "avg_pool")):
            return pool_graph(root), [root.args[0]]
        if self.name == "softmax":
            return softmax_graph(root), [root.args[0]]
        if self.name in ("layer_norm", "rms_norm"):
            return norm_graph(root), list(root.args)
        raise CodegenError(f"'{self.name}' is no pattern of cudnn", value=self.name)

    def _contraction(self, name: str, options: CudnnOptions) -> tuple[Graph, list[relax.Expr]]:
        parts = self.name.removeprefix(name).split("_")
        core, derive = _CONTRACTIONS[name]
        activation = activation_of(self.root)
        stages = {"activation": activation, "residual": "add" in parts, "bias": "bias" in parts}
        call, joined = self.composite.take_apart(core, [s for s, on in stages.items() if on])
        shapes = {name: static_shape(expr, f"the {name}") for name, expr in joined.items()}
        epilogue = Epilogue(**shapes, activation=activation)
        operands = [*call.args, *(joined[name] for name in ("bias", "residual") if name in joined)]
        return derive(call, epilogue, options), operands

    def _attention_operator(self, compute_capability: int) -> tuple[Graph, list[relax.Expr]]:
        root = self.root
        call = self.call(root.args[0]) if permutation(root) is not None else root
        query, key, value = (self.composite.resolve(arg) for arg in call.args[:3])
        attention = attention_of_operator(call, (query, key, value), root)
        operands = [*map(self.composite.unpermuted, call.args[:3]), *call.args[3:]]
        return attention_graph(attention, compute_capability), operands

    def _attention_chain(self, compute_capability: int) -> tuple[Graph, list[relax.Expr]]:
        root = self.root
        product = self.call(root.args[0]) if permutation(root) is not None else root
        softmax = self.call(product.args[0])
        check_softmax(softmax)
        at, bias, scale = self.call(softmax.args[0]), None, 1.0
        if "masked" in self.name.split("_"):
            inner, bias = self.composite.computed_and_other(at)
            at = self.call(inner)
        if "scaled" in self.name.split("_"):
            inner, constant = self.composite.computed_and_other(at)
            scale = scale_of(at, constant)
            at = self.call(inner)
        given = (at.args[0], at.args[1], product.args[1])
        query, key, value = (self.composite.resolve(arg) for arg in given)
        attention = attention_of_chain((query, key, value), scale, bias, root)
        operands = [*map(self.composite.unpermuted, given), *([] if bias is None else [bias])]
        return attention_graph(attention, compute_capability), operands
