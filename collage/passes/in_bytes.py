"""Products of a partition computed in bytes, where its target is one that does that.

What samples told of a network's values stands in its ``main``, as an attribute. It is acted on
where a candidate becomes a function: there values are rounded to steps before they are convolved or
multiplied, and weights are bytes, in operators that say so. So whoever times the candidate, checks
it or compiles it sees an ordinary quantized partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import Precision
from collage.backends.relax.byte_products import MOST, ByteProduct
from collage.backends.relax.stepped import Steps, stepped_call
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits

CALIBRATION_ATTR = "collage.calibration"
"""Of a network's ``main``: a :class:`Calibration` as JSON."""


@dataclass(frozen=True)
class Calibration:
    """What samples told of a network.

    Attributes
    ----------
    steps : mapping of int to Steps
        By the number of each product in the dataflow graph, what its first operand is rounded to.
    most : int
        Weights are whole numbers up to it.

    Examples
    --------
    >>> from collage.testing import constant, graph
    >>> mod = graph([(4, 8)], lambda _, x: op.matmul(x, constant(8, 3)))
    >>> Calibration.of(Calibration({0: Steps(0.5, 128)}).said_by(mod)["main"])
    Calibration(steps={0: Steps(step=0.5, point=128)}, most=127)
    """

    steps: Mapping[int, Steps]
    most: int = MOST

    @classmethod
    def of(cls, function: relax.Function | None) -> Calibration:
        """That of a network's ``main``; of no steps where it has none."""
        if function is None or function.attrs is None or CALIBRATION_ATTR not in function.attrs:
            return cls({})
        said = json.loads(str(function.attrs[CALIBRATION_ATTR]))
        pairs = {int(index): Steps(float(a), int(b)) for index, (a, b) in said["steps"].items()}
        return cls(pairs, int(said["most"]))

    def said_by(self, mod: tvm.IRModule) -> tvm.IRModule:
        """A module whose ``main`` says so."""
        pairs = {str(index): [one.step, one.point] for index, one in self.steps.items()}
        text = json.dumps({"most": self.most, "steps": pairs})
        made = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
        made["main"] = mod["main"].with_attr(CALIBRATION_ATTR, text)
        return made


class BytesOf:
    """What a candidate computes in bytes.

    Parameters
    ----------
    graph : DataflowGraph
        Its function says which steps values are rounded to.
    candidate : Candidate
        Nothing of it, unless its target's precision is int8.
    """

    def __init__(self, graph: DataflowGraph, candidate: Candidate) -> None:
        self._graph = graph
        self._products: dict[int, tuple[ByteProduct, Steps]] = {}
        self.rounded: dict[relax.Var, Steps] = {}
        """What is rounded for all that reads it in the candidate."""
        target = candidate.target
        if target.implementation.precision(target.options) is not Precision.INT8:
            return
        self.composite = f"{target.backend}.round_to_bytes"
        inner = {
            graph.bindings[index].var
            for composite in candidate.composites
            for index in bits(composite.nodes)
            if graph.succs(index) & composite.nodes
        }
        self._calibration = _calibration(graph)
        for index, steps in self._calibration.steps.items():
            product = ByteProduct.of(graph.bindings[index].value)
            if not candidate.nodes >> index & 1 or product is None or product.operand in inner:
                continue
            self._products[index] = product, steps
            if product.is_convolution:
                self.rounded[product.operand] = steps

    def value(
        self, index: int, value: relax.Call, bind: Callable[[relax.Expr, relax.Type], relax.Var]
    ) -> relax.Expr:
        """What a binding of the candidate computes instead.

        Parameters
        ----------
        index : int
            Its number.
        value : relax.Expr
            What it computes, over the candidate's variables.
        bind : callable
            Binds what that needs, given its type.

        Returns
        -------
        relax.Expr
            The value itself where it is not computed in bytes.
        """
        if index not in self._products:
            return value
        product, steps = self._products[index]
        whole, scales = self._weights(index, product)
        if not product.is_convolution:
            return stepped_call([value.args[0], whole, scales], steps)
        zero = relax.const(np.int8(0))
        meant = op.dequantize(whole, scales, zero, axis=product.axis, out_dtype="float32")
        weights = bind(meant, value.args[1].ty)
        return relax.Call(value.op, [value.args[0], weights], value.attrs, value.ty_args)

    def _weights(
        self, index: int, product: ByteProduct
    ) -> tuple[tvm.ir.GenericConst, tvm.ir.GenericConst]:
        """Constants that all candidates share."""
        key = ("weights in bytes", str(index))
        if key not in self._graph.memo:
            whole, scales = product.whole_weights(self._calibration.most)
            self._graph.memo[key] = relax.const(whole), relax.const(scales)
        made = self._graph.memo[key]
        assert isinstance(made, tuple)
        return made


def _calibration(graph: DataflowGraph) -> Calibration:
    key = ("calibration", "")
    if key not in graph.memo:
        graph.memo[key] = Calibration.of(graph.function)
    known = graph.memo[key]
    assert isinstance(known, Calibration)
    return known


def rounding(
    x: relax.Var, steps: Steps, bind: Callable[[relax.Expr, relax.Type], relax.Var]
) -> relax.Var:
    """A tensor rounded to steps, in the two operators that say so.

    Parameters
    ----------
    x : relax.Var
        Of float32.
    steps : Steps
        From 0 to 255.
    bind : callable
        Binds an expression, given its type.

    Returns
    -------
    relax.Var
        Of the same shape and type.
    """
    step, point = relax.const(np.float32(steps.step)), relax.const(np.uint8(steps.point))
    last = len(x.ty.shape) - 1
    there = op.quantize(x, step, point, axis=last, out_dtype="uint8")
    stored = bind(there, relax.TensorType(x.ty.shape, "uint8"))
    return bind(op.dequantize(stored, step, point, axis=last, out_dtype="float32"), x.ty)
