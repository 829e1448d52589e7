"""A recurrent layer's call becomes a tensor program for a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te, tirx

from collage.backends.relax.recurrent import Recurrence
from collage.backends.tvm.cuda.recurrent.cell import wide_dtype
from collage.backends.tvm.cuda.recurrent.cut import cut_of
from collage.backends.tvm.cuda.recurrent.kernels import Kernels
from collage.backends.tvm.cuda.recurrent.states import States


def legalize_recurrent(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A call of the recurrent operator as one tensor program with threads of its own.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator; its states are not rounded to 256 steps.

    Returns
    -------
    relax.Expr
        A tuple of the call's results, in its order.

    Examples
    --------
    >>> from collage.backends.relax.recurrent import recurrent
    >>> from collage.testing import constant
    >>> weights = constant(1, 8, 24)
    >>> states = [relax.Var("taken", relax.TensorType((5, 2, 24), "float32")), weights]
    >>> states.append(relax.Var("h0", relax.TensorType((1, 2, 8), "float32")))
    >>> builder = relax.BlockBuilder()
    >>> call = builder.normalize(recurrent("gru", "forward", states))
    >>> with builder.function("main", [states[0], states[2]]):
    ...     _ = builder.emit_func_output(legalize_recurrent(builder, call))
    >>> [gvar.name_hint for gvar in builder.get().get_global_vars()]
    ['gru', 'main']
    """
    one = Recurrence.of(call)
    outputs = [[int(n) for n in field.shape] for field in call.ty.fields]
    cut = cut_of(one)
    types = [one.dtype] * len(outputs)
    shapes = list(outputs)
    if not cut.whole:
        shapes.append([States.count(one), *outputs[1]])
        types.append(wide_dtype(one))

    def program(*tensors: te.Tensor) -> Sequence[te.Tensor]:
        made: Sequence[te.Tensor] = te.extern(
            shapes,
            list(tensors),
            lambda ins, outs: Kernels(one, cut, ins, outs).written(),
            name=one.cell,
            dtype=types,
            # TVM's own begin somewhere, which kernels would add to each index.
            in_buffers=[tirx.decl_buffer(t.shape, t.dtype, name=t.op.name) for t in tensors],
            out_buffers=[
                tirx.decl_buffer(shape, dtype, name=f"made{index}")
                for index, (shape, dtype) in enumerate(zip(shapes, types, strict=True))
            ],
        )
        return made

    made = builder.emit(builder.call_te(program, *call.args, primfunc_name_hint=one.cell))
    # The states that steps hand on are nobody else's business.
    return relax.Tuple([relax.TupleGetItem(made, index) for index in range(len(outputs))])
