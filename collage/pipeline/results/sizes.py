"""How large a library is that holds several functions, and what they share."""

from __future__ import annotations

import hashlib

import tvm
from tvm import ir, relax

from collage.backends.link import CompiledLibrary
from collage.backends.relax.constant_data import constant_data
from collage.report import size_text


def sizes_remark(mod: tvm.IRModule, library: CompiledLibrary, functions: int) -> str:
    """What the report says of a library's size.

    Parameters
    ----------
    mod : tvm.IRModule
        All functions, partitioned.
    library : CompiledLibrary
        What was compiled of them.
    functions : int
        How many there are.

    Returns
    -------
    str
        One line, sizes in binary units.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.testing import constant, graph
    >>> mod = graph([(8,)], lambda emit, x: relax.op.add(x, constant(8)))
    >>> Path("model.so").write_bytes(b"0" * 2048)
    2048
    >>> sizes_remark(mod, CompiledLibrary(Path("model.so"), ()), 2)
    '2 functions in one library of 2.0 KiB: weights of 32 B, each once; 32 B if none were shared'
    """
    uses: list[tuple[str, int]] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            array = constant_data(expr)
            head = f"{array.dtype} {array.shape}".encode()
            uses.append((hashlib.sha256(head + array.tobytes()).hexdigest(), array.nbytes))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    distinct, whole = sum(dict(uses).values()), sum(size for _, size in uses)
    size = sum(path.stat().st_size for path in (library.path, *library.weights))
    return (
        f"{functions} functions in one library of {size_text(size)}: weights of "
        f"{size_text(distinct)}, each once; {size_text(whole)} if none were shared"
    )
