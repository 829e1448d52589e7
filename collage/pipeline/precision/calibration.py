"""Steps for the operands of a network's products, from samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import PrecisionError
from collage.backends.relax.byte_products import MOST, ByteProduct
from collage.backends.relax.stepped import Steps
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.reference.observed import observe
from collage.cost.reference.sensitivity import Walk, in_bytes
from collage.passes.in_bytes import Calibration
from collage.pipeline.precision.ranges import METHODS, Seen, steps_over
from collage.search.dataflow import DataflowGraph

AUTO = "auto"
"""Whichever of the methods makes the least error, of all products together."""


def check_method(method: str) -> str:
    """The name of a way to find ranges, checked.

    Raises
    ------
    PrecisionError
        When there is none of that name; lists those there are.

    Examples
    --------
    >>> check_method("entropy")
    'entropy'
    """
    known = (AUTO, *METHODS)
    if method not in known:
        raise PrecisionError(
            f"unknown calibration '{method}'; known ones: {', '.join(known)}", value=method
        )
    return method


def calibrate(
    mod: tvm.IRModule,
    graph: DataflowGraph,
    samples: Sequence[Sequence[NDArray[Any]]],
    method: str = AUTO,
    most: int = MOST,
    progress: ProgressCallback = ignore,
) -> Calibration:
    """What the operands of a network's products are rounded to, where they are bytes.

    Parameters
    ----------
    mod, graph : tvm.IRModule, DataflowGraph
        The normalized module, and its ``main``.
    samples : sequence of sequence of ndarray
        Inputs in the order of the parameters.
    method : str
        A key of :data:`~collage.pipeline.precision.ranges.METHODS`, or ``auto``: the one with the
        least error of an output on the first sample, all products rounded.
    most : int
        Weights are whole numbers up to it.
    progress : callable, optional
        Told of every sample.

    Returns
    -------
    Calibration
        Of all products that can be computed in bytes; of none where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from collage.testing import constant, graph as module
    >>> mod = module([(4, 8)], lambda _, x: relax.op.matmul(x, constant(8, 3)))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> sample = [np.linspace(0, 5.1, 32, dtype=np.float32).reshape(4, 8)]
    >>> calibrate(mod, dataflow, [sample], "minmax").steps
    {0: Steps(step=0.02, point=0)}
    """
    products = {
        index: product
        for index, binding in enumerate(graph.bindings)
        if (product := ByteProduct.of(binding.value)) is not None
    }
    seen = {product.operand: Seen(len(samples)) for product in products.values()}
    if not seen:
        return Calibration({}, most)
    for number, sample in enumerate(samples):
        progress(ProgressEvent("precision", number, len(samples), "looking at values' ranges"))
        observe(mod, sample, seen, lambda var, values: seen[var].look(values))
    names = list(METHODS) if method == AUTO else [method]
    found = {name: _steps(products, seen, name) for name in names}
    if len(found) == 1:
        return Calibration(found[names[0]], most)
    walk = Walk(mod, samples[0])
    errors = {}
    for name, steps in found.items():
        by_var = {graph.bindings[index].var: one for index, one in steps.items()}
        errors[name] = walk.together(in_bytes(by_var, most))
        text = f"steps by {name}: off by {errors[name]:.2g} with all products in bytes"
        progress(ProgressEvent("precision", len(samples), len(samples), text))
    return Calibration(found[min(errors, key=lambda name: errors[name])], most)


def _steps(
    products: Mapping[int, ByteProduct], seen: Mapping[relax.Var, Seen], method: str
) -> dict[int, Steps]:
    return {
        index: steps_over(METHODS[method](seen[product.operand]))
        for index, product in products.items()
    }
