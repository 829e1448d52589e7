"""Medians and modes on a GPU: a block sorts a line and looks up what is wanted.

Taken apart, each would be a sort and up to a dozen kernels behind it.
"""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.relax.kept_whole.order_statistics import MEDIAN, MODE, NUMBERS_MEDIAN
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.cuda.functions import Launch, call_kernels
from collage.backends.tvm.cuda.rows.lines import Lines
from collage.backends.tvm.cuda.rows.sorts import BlockSort

_FUNCTIONS = {MEDIAN: "kMedian", NUMBERS_MEDIAN: "kNumbersMedian", MODE: "kMode"}


def looked_up(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr | None:
    """Elements of lines by their order, and their places.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.
    x : relax.Expr
        The operand.

    Returns
    -------
    relax.Expr or None
        None where lines are too long, and where there are none.
    """
    shape = static_shape(call.args[0])
    if not math.prod(shape):
        return None
    lines = Lines.along(shape, int(call.attrs["axis"]))
    one = BlockSort.of(lines.length, str(call.args[0].ty.dtype))
    if one is None:
        return None
    launch = Launch(
        lines.count,
        one.threads,
        f"collage::statistic<{one.items}, collage::{_FUNCTIONS[str(call.attrs['which'])]}>",
        (0, 1, 2),
        (lines.length, lines.step),
        one.shared_bytes,
    )
    results = [(static_shape(each), str(each.dtype)) for each in call.ty.fields]
    return call_kernels(builder, "order_statistic", [x], results, [launch])
