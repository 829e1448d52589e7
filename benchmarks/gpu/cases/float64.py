"""A module's meaning without rounding: every float widened to float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.cost.reference import evaluate

Array = NDArray[Any]

_FLOATS = "float16|bfloat16|float32"
_DTYPE_IN_JSON = re.compile(rf'("type":"DataType","data":|"dtype":)"(?:{_FLOATS})"')


@dataclass(frozen=True)
class Widened:
    """A module whose floats are all float64; its constants are parameters after the inputs.

    Attributes
    ----------
    module : tvm.IRModule
    constants : tuple of ndarray
        The values of the parameters that were constants.
    """

    module: tvm.IRModule
    constants: tuple[Array, ...]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, computed in float64.

        Parameters
        ----------
        inputs : sequence of ndarray
            Of the original dtypes: what was rounded before it entered stays rounded.
        """
        return evaluate(self.module, [*map(widen, inputs), *self.constants])


def widen(array: Array) -> Array:
    """Floats as float64; everything else as it is."""
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def widened(mod: tvm.IRModule) -> Widened:
    """Widen a module with one function ``main`` that calls no other.

    Every float type in it becomes float64, operators' attributes (``out_dtype``, the target of a
    cast) included: also what the original rounds on purpose is not rounded.
    """
    lifted, constants = _lift(mod["main"])
    # Types hang on every expression and attribute; in the saved text they are one kind of entry.
    typed = relax.transform.Normalize()(tvm.IRModule({relax.GlobalVar("main"): lifted}))
    text = tvm.ir.save_json(typed)
    text = _DTYPE_IN_JSON.sub(r'\1"float64"', text)
    return Widened(tvm.ir.load_json(text), tuple(map(widen, constants)))


def _lift(main: relax.Function) -> tuple[relax.Function, list[Array]]:
    """Constants as parameters."""
    params = list(main.params)
    constants: list[Array] = []

    def lift(expr: relax.Expr) -> relax.Expr:
        match expr:
            case tvm.ir.GenericConst():
                constants.append(expr.value.numpy())
                params.append(relax.Var(f"constant{len(constants)}", expr.ty))
                return params[-1]
            case relax.Call():
                args = [lift(arg) for arg in expr.args]
                return relax.Call(expr.op, args, expr.attrs, expr.ty_args)
            case relax.Tuple():
                return relax.Tuple([lift(field) for field in expr.fields])
            case _:
                return expr

    blocks = []
    for block in main.body.blocks:
        bindings = [relax.VarBinding(b.var, lift(b.value)) for b in block.bindings]
        dataflow = isinstance(block, relax.DataflowBlock)
        blocks.append((relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings))
    body = relax.SeqExpr(blocks, lift(main.body.body))
    return relax.Function(params, body, main.ret_ty, attrs=main.attrs), constants
