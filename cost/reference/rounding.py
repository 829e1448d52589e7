"""The number formats that values are stored in, and rounding to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import BackendTarget
from collage.backends.relax.static_shape import leaf_types, tensor_dtype
from collage.backends.relax.stepped import NAME as STEPPED
from collage.cost.reference.values import Array

EPSILON: Mapping[str, float] = MappingProxyType(
    {
        "float64": 2.0**-52,
        "float32": 2.0**-23,
        "tf32": 2.0**-10,
        "float16": 2.0**-10,
        "bfloat16": 2.0**-7,
    }
)
"""By format, the distance from 1 to the next larger number."""

HALF = frozenset({"float16", "bfloat16"})
"""The element types that are computed with in a wider one."""


def rounded(array: Array, form: str) -> Array:
    """The values of an array, rounded to a format; of the array's own dtype.

    Parameters
    ----------
    array : ndarray
        Of a float dtype.
    form : str
        A key of :data:`EPSILON`. Wider ones than the array's dtype change nothing.

    Returns
    -------
    ndarray
        The array itself where the format has no fewer digits.

    Examples
    --------
    >>> rounded(np.array([1.0001, 70000.0], np.float32), "float16")
    array([ 1., inf], dtype=float32)
    >>> rounded(np.array([1.0 + 2**-10 + 2**-13], np.float32), "tf32") == 1.0 + 2**-10
    array([ True])
    """
    if form == "tf32":
        bits = array.astype(np.float32, copy=False).view(np.uint32)
        # To nearest, ties to even: ten of 23 bits of fraction stay.
        bits = (bits + (0xFFF + ((bits >> 13) & 1))) & np.uint32(0xFFFFE000)
        finite: Array = np.where(np.isfinite(array), bits.view(np.float32), array)
        return finite.astype(array.dtype, copy=False)
    dtype = np.dtype(form)
    if dtype.itemsize >= array.dtype.itemsize:
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype).astype(array.dtype)


def coarsest(forms: set[str] | frozenset[str]) -> str:
    """The format with the fewest digits.

    Parameters
    ----------
    forms : set of str
        Keys of :data:`EPSILON`, at least one.

    Examples
    --------
    >>> coarsest({"float32", "float16"})
    'float16'
    """
    return max(sorted(forms), key=lambda form: EPSILON[form])


def fewest_digits(targets: Iterable[BackendTarget]) -> str:
    """The format with the fewest digits that any of some targets may round float32 values to;
    bytes are no format: operators round to them."""
    return coarsest({target.implementation.stored_as(target.options).form for target in targets})


def formats(mod: tvm.IRModule) -> frozenset[str]:
    """The float types of every value that a module's functions take, compute and hold.

    Parameters
    ----------
    mod : tvm.IRModule
        Its Relax functions are looked at, inner ones included.
    """
    found: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var | tvm.ir.GenericConst):
            found.update(EPSILON.keys() & map(tensor_dtype, leaf_types(expr.ty)))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return frozenset(found)


STEPS = frozenset({"relax.round", "relax.quantize", STEPPED})
"""Operators that round their first operand to whole steps."""

_SUMMED = 32
"""Units in the last place of its largest value by which a tensor may be off that was summed up in
another order: about what a thousand products are off by, added up one after the other."""


def off_by_sums(array: Array, form: str, random: np.random.Generator) -> Array:
    """A tensor as another order of the sums that it comes from may have left it.

    Parameters
    ----------
    array : ndarray
        Of a float dtype.
    form : str
        What it is kept in, a key of :data:`EPSILON`.
    random : Generator
        Says by how much each value is off.

    Returns
    -------
    ndarray
        Of the same shape and dtype.

    Examples
    --------
    >>> near = off_by_sums(np.ones(3, np.float32), "float32", np.random.default_rng(0))
    >>> bool(np.abs(near - 1).max() <= 2.0**-18), bool((near != 1).any())
    (True, True)
    """
    largest = np.abs(array, where=np.isfinite(array), out=np.zeros_like(array)).max(initial=0)
    most = _SUMMED * EPSILON[form] * largest
    off: Array = array + ((2 * random.random(array.shape, np.float32) - 1) * most).astype(
        array.dtype
    )
    return off


def rounds_to_steps(mod: tvm.IRModule) -> bool:
    """Whether values between a module's operators are rounded to whole steps.

    Parameters
    ----------
    mod : tvm.IRModule
        Its Relax functions are looked at, inner ones included.
    """
    found = False

    def visit(expr: relax.Expr) -> None:
        nonlocal found
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            found = found or str(expr.op.name) in STEPS

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found
