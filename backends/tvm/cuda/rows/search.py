"""Places in sorted rows on a GPU: a thread for each value."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cuda.functions import Launch, call_kernels

_THREADS = 128


def legalize_search(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """How many of a sorted row come before each value.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.

    Returns
    -------
    relax.Expr
        A call of the program, or all compared with all where types differ or there is nothing.
    """
    sequence, values = call.args
    rows, asked = static_shape(sequence), static_shape(values)
    same = str(sequence.ty.dtype) == str(values.ty.dtype)
    if not same or not math.prod((*rows, *asked)):
        return default_legalization(builder, call)
    count, extent = math.prod(asked), rows[-1]
    # Values that share a row.
    width = count if math.prod(rows) == extent else asked[-1]
    launch = Launch(
        math.ceil(count / _THREADS),
        _THREADS,
        f"collage::search<{str(bool(call.attrs['right'])).lower()}>",
        (0, 1, 2),
        (count, extent, width),
    )
    results = [(asked, str(call.ty.dtype))]
    return call_kernels(builder, "searchsorted", [sequence, values], results, [launch])
