"""How operators of this project's own become known to TVM."""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, relax

Infer = Callable[[relax.Call, relax.BlockBuilder], relax.Type]
Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def make_known(name: str, meaning: str, infer: Infer, legalize: Legalize) -> None:
    """Register a pure operator of Relax, once in a process.

    Modules that have the operator can be read only where this was done before.

    Parameters
    ----------
    name : str
        Of the operator, ``collage.`` in front.
    meaning : str
        What it computes.
    infer : callable
        The type of a call.
    legalize : callable
        What computes it where no backend has it: calls of other operators, or of tensor programs.
    """
    if name in ir.Op.list_op_names():
        return
    ir.op._ffi_api.RegisterOp(name, meaning)
    ir.register_op_attr(name, "FInferType", infer)
    ir.register_op_attr(name, "FPurity", True)
    # The printer warns of operators without.
    ir.register_op_attr(name, "TScriptPrinterName", name)
    ir.register_op_attr(name, "FLegalize", legalize)
