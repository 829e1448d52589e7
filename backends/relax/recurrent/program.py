"""The recurrent operator as one tensor program, for any processor."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te

from collage.backends.relax.recurrent.blocking import Blocking, pack_weights
from collage.backends.relax.recurrent.operator import Recurrence
from collage.backends.relax.recurrent.writer import Writer


def legalize(builder: relax.BlockBuilder, call: relax.Call, blocking: Blocking) -> relax.Expr:
    """A call of the operator as one tensor program.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.
    blocking : Blocking
        How it is cut; packed weights have to be constants.

    Returns
    -------
    relax.Expr
        A call of the program, whose weights are packed where the blocking says so.
    """
    recurrence = Recurrence.of(call)
    args = list(call.args)
    if blocking.packed:
        args[1] = relax.const(pack_weights(args[1].value.numpy(), recurrence, blocking.columns))
    outputs = [[int(n) for n in field.shape] for field in call.ty.fields]

    def program(*tensors: te.Tensor) -> Sequence[te.Tensor]:
        dtype = recurrence.dtype
        made: Sequence[te.Tensor] = te.extern(
            outputs,
            list(tensors),
            lambda ins, outs: Writer(recurrence, blocking, ins, outs).written(),
            name=recurrence.cell,
            dtype=[dtype] * len(outputs),
        )
        return made

    return builder.call_te(program, *args, primfunc_name_hint=recurrence.cell)


def legalize_plainly(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """As :func:`legalize`, cut so that it runs on any machine.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.

    Returns
    -------
    relax.Expr
        A call of the program.
    """
    return legalize(builder, call, Blocking(min(16, Recurrence.of(call).hidden), 1))
