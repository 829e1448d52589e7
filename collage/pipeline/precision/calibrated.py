"""A model that says what its products' operands may be rounded to."""

from __future__ import annotations

from dataclasses import replace

from collage.backends.devices.cpu_flags import sums_bytes_in_32_bits
from collage.backends.relax.byte_products import MOST, MOST_IN_PAIRS
from collage.cost.progress import ProgressCallback, ignore
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.samples import Inputs, given_arrays
from collage.pipeline.precision.calibration import AUTO, calibrate
from collage.search.dataflow import DataflowGraph

_DRAWN = 4
"""Samples where the user gives none."""


def calibrated(
    imported: Imported,
    inputs: Inputs | None = None,
    method: str = AUTO,
    seed: int = 0,
    progress: ProgressCallback = ignore,
) -> Imported:
    """A model with steps for all products that can be computed in bytes.

    Parameters
    ----------
    imported : Imported
        The model, as it is searched over.
    inputs : mapping or sequence of mapping, optional
        The user's samples; without, some are drawn.
    method : str
        As :func:`~collage.pipeline.precision.calibration.calibrate` takes it.
    seed : int
        Of what is drawn.
    progress : callable, optional
        Told of every sample.

    Returns
    -------
    Imported
        Of the same bindings; the same one where nothing can be computed in bytes.

    Raises
    ------
    InputError
        When the user's inputs do not fit.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.backends.devices import CPU
    >>> from collage.passes.in_bytes import Calibration
    >>> from collage.pipeline import import_model
    >>> from collage.testing import constant, graph
    >>> imported = import_model(graph([(4, 8)], lambda _, x: op.matmul(x, constant(8, 3))), CPU)
    >>> list(Calibration.of(calibrated(imported).graph.function).steps)
    [0]
    """
    samples = (
        [imported.random_inputs(seed + number) for number in range(_DRAWN)]
        if inputs is None
        else given_arrays(imported.inputs, inputs, imported.ranges)
    )
    # Two products that are added up in 16 bits have to fit into them.
    most = MOST if sums_bytes_in_32_bits() else MOST_IN_PAIRS
    found = calibrate(imported.mod, imported.graph, samples, method, most, progress)
    if not found.steps:
        return imported
    mod = found.said_by(imported.mod)
    return replace(imported, mod=mod, graph=DataflowGraph.from_function(mod["main"], mod))
