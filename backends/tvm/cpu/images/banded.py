"""Products with constant matrices of few neighbours each: images resized with a filter, bands of a
spectrum. Most of the matrix is zeros, which are not multiplied."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.bands import band_of
from collage.backends.tvm.cpu.extents import all_float32
from collage.backends.tvm.cpu.images.resize import LONGEST_ROW, Kernel, call_kernel
from collage.backends.tvm.cpu.images.taps import Taps
from collage.backends.tvm.cpu.schedules import Machine


def legalize_banded(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr | None:
    """A product with such a matrix, on either side.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a ``relax.matmul``.
    machine : Machine
        Vector lanes and threads.

    Returns
    -------
    relax.Expr or None
        A call of the tensor program; none of other matrices.
    """
    left, right = call.args
    shapes = [tensor_shape(each) for each in (left, right, call)]
    if any(shape is None or len(shape) < 2 or 0 in shape for shape in shapes):
        return None
    if not all_float32(call):
        return None
    one, two, wanted = (shape for shape in shapes if shape is not None)
    lanes = machine.lanes("float32")
    if isinstance(right, GenericConst) and len(two) == 2:
        columns = band(right.value.numpy().T)
        if columns is None:
            return None
        alone = Taps(1, np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))
        kernel = Kernel(math.prod(one[:-1]), alone, columns, "float32", lanes, True)
        return call_kernel(builder, left, wanted, kernel, machine.num_threads)
    if isinstance(left, GenericConst) and len(one) == 2 and two[-1] <= LONGEST_ROW:
        rows = band(left.value.numpy())
        if rows is None:
            return None
        own = np.arange(two[-1], dtype=np.int32)[None]
        alone = Taps(two[-1], own, np.ones(own.shape, np.float32))
        kernel = Kernel(math.prod(two[:-2]), rows, alone, "float32", lanes, True)
        return call_kernel(builder, right, wanted, kernel, machine.num_threads)
    return None


def band(matrix: NDArray[np.float32]) -> Taps | None:
    """The neighbours of which each row is made; None where they are too many.

    Parameters
    ----------
    matrix : ndarray
        (results, elements).

    Returns
    -------
    Taps or None
        Those without weight may be any.

    Examples
    --------
    >>> few = np.eye(24, dtype=np.float32)[::2]
    >>> found = band(few + np.eye(24, k=1, dtype=np.float32)[::2])
    >>> found.places[:, :3].tolist(), found.taps
    ([[0, 2, 4], [1, 3, 5]], 2)
    """
    found = band_of(matrix)
    if found is None:
        return None
    places = found.firsts + np.arange(found.taps)[:, None]
    return Taps(matrix.shape[1], places.astype(np.int32), found.weights)
