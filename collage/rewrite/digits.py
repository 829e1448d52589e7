"""Constants that were computed, in more digits than their element type keeps."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from collage.rewrite.expressions import constant, make_constant

_WIDE = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}


class Digits:
    """What constants of a function under reconstruction stand for before they were rounded.

    A batch norm's scale is computed, folded into weights, and these are scaled once more. Rounded
    each time, every element that a channel has is off by the same, which no sum averages out: in
    half precision such networks came out several times as inexact as layer by layer. Rules take
    operands from here and leave results here, so that a constant is rounded once, from the
    numbers of the model.

    Examples
    --------
    >>> digits = Digits()
    >>> third = digits.constant(np.float64(1) / 3, "float16")
    >>> abs(float(constant(third)) - 1 / 3) > 5e-5, abs(float(digits.value(third)) - 1 / 3) < 1e-7
    (True, True)
    """

    def __init__(self) -> None:
        self._known: dict[relax.Expr, np.ndarray] = {}

    def value(self, expr: relax.Expr) -> np.ndarray | None:
        """The value of an inline constant, or None; not to be written to.

        Half precision comes in float32; float32 in float64 where it was computed.
        """
        known = self._known.get(expr) if isinstance(expr, tvm.ir.GenericConst) else None
        if known is not None:
            return known
        value = constant(expr)
        is_half = value is not None and str(value.dtype) in ("float16", "bfloat16")
        return value.astype(np.float32) if value is not None and is_half else value

    def constant(self, value: np.ndarray | float, dtype: str) -> relax.Expr:
        """An inline constant of this dtype, whose value is remembered.

        Parameters
        ----------
        value : numpy.ndarray or float
            Of any dtype.
        dtype : str
            As numpy names it.

        Returns
        -------
        relax.Expr
            Its elements are the value's, rounded once.
        """
        wide, array = _WIDE.get(dtype), np.asarray(value)
        made = make_constant(array, dtype)
        if wide is not None and array.dtype.kind == "f" and str(array.dtype) != dtype:
            self._known[made] = array.astype(wide, copy=False)
        return made

    def keep(self, function: relax.Function) -> None:
        """Forget all constants but those of a function: a network's weights take room."""
        alive: dict[relax.Expr, np.ndarray] = {}

        def visit(expr: relax.Expr) -> None:
            if isinstance(expr, tvm.ir.GenericConst) and expr in self._known:
                alive[expr] = self._known[expr]

        if self._known:
            relax.analysis.post_order_visit(function, visit)
        self._known = alive
