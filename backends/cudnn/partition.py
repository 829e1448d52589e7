"""Reading a partition function: which graph, and which argument is which of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import CodegenError, UnsupportedProblemError
from collage.backends.cudnn.attention import (
    attention_graph,
    attention_of_chain,
    attention_of_operator,
)
from collage.backends.cudnn.contraction import conv2d_graph, matmul_graph
from collage.backends.cudnn.epilogue import Epilogue, activation_of
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.patterns import check_softmax, scale_of
from collage.backends.cudnn.problem import Graph
from collage.backends.cudnn.single import norm_graph, pool_graph, softmax_graph
from collage.backends.relax.composites import Composite, CompositeCall
from collage.backends.relax.patterns import permutation
from collage.backends.relax.static_shape import static_shape


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

    Raises
    ------
    CodegenError
        When the function is not what this backend's patterns match, or its constants are inline.
    """
    call = CompositeCall.of(function, "cudnn")
    reader = _Reader(call.composite)
    try:
        graph, operands = reader.derive(options, compute_capability)
    except UnsupportedProblemError as err:
        raise CodegenError(
            f"cudnn cannot compile '{call.symbol}': {err}", value=call.symbol
        ) from err
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
        if self.name.startswith(("conv2d", "matmul")):
            return self._contraction(options)
        if self.name.startswith("attention_chain"):
            return self._attention_chain(compute_capability)
        if self.name.startswith("attention"):
            return self._attention_operator(compute_capability)
        if self.name in ("max_pool2d", "avg_pool2d"):
            return pool_graph(root), [root.args[0]]
        if self.name == "softmax":
            return softmax_graph(root), [root.args[0]]
        if self.name in ("layer_norm", "rms_norm"):
            return norm_graph(root), list(root.args)
        raise CodegenError(f"'{self.name}' is no pattern of cudnn", value=self.name)

    def _contraction(self, options: CudnnOptions) -> tuple[Graph, list[relax.Expr]]:
        parts = self.name.split("_")
        at, activation = self.root, None
        if str(at.op.name) != "relax.add":
            activation = activation_of(at)
        if activation is not None:
            at = self.call(self._activated(at))
        addends: dict[str, relax.Expr] = {}
        for name, part in (("residual", "add"), ("bias", "bias")):
            if part not in parts:
                continue
            inner, addends[name] = self.composite.computed_and_other(at)
            at = self.call(inner)
        epilogue = Epilogue(
            static_shape(addends["bias"], "the bias") if "bias" in addends else None,
            static_shape(addends["residual"], "the residual") if "residual" in addends else None,
            activation,
        )
        derive = conv2d_graph if parts[0] == "conv2d" else matmul_graph
        operands = [*at.args, *(addends[n] for n in ("bias", "residual") if n in addends)]
        return derive(at, epilogue, options), operands

    def _activated(self, root: relax.Call) -> relax.Expr:
        """What an activation is applied to; for ``x * sigmoid(x)`` the ``x``."""
        if str(root.op.name) != "relax.multiply":
            return root.args[0]
        for operand in root.args:
            value = self.composite.resolve(operand)
            if isinstance(value, relax.Call) and str(value.op.name) == "relax.sigmoid":
                return value.args[0]
        raise CodegenError(f"'{self.name}': no sigmoid in {root}", value=self.name)

    def _unpermuted(self, expr: relax.Expr) -> relax.Expr:
        """An operand as the pattern has it, and the argument behind it."""
        value = self.composite.resolve(expr)
        return value.args[0] if permutation(value) is not None else value

    def _attention_operator(self, compute_capability: int) -> tuple[Graph, list[relax.Expr]]:
        root = self.root
        call = self.call(root.args[0]) if permutation(root) is not None else root
        query, key, value = (self.composite.resolve(arg) for arg in call.args[:3])
        attention = attention_of_operator(call, (query, key, value), root)
        operands = [*map(self._unpermuted, call.args[:3]), *call.args[3:]]
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
        operands = [*map(self._unpermuted, given), *([] if bias is None else [bias])]
        return attention_graph(attention, compute_capability), operands
