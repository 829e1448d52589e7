"""Modules as text, between processes of one version.

TVM's own reader first mends what earlier versions wrote: it takes the text apart and puts it
together again in Python, for a region of a network longer than our whole compiler takes. What one
of our processes wrote for another needs none of that.
"""

from __future__ import annotations

import tvm
from tvm_ffi.serialization import from_json_graph_str


def to_text(mod: tvm.IRModule) -> str:
    """A module as TVM writes it.

    Parameters
    ----------
    mod : IRModule
        Of few and small constants: they are written out.

    Returns
    -------
    str
        JSON, which :func:`from_text` reads, and TVM's own reader as well.
    """
    return str(tvm.ir.save_json(mod))


def from_text(text: str) -> tvm.IRModule:
    """A module that this version of TVM has written.

    Parameters
    ----------
    text : str
        As :func:`to_text` gave it.

    Returns
    -------
    IRModule
        Structurally the same.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> mod = graph([(8,)], lambda emit, x: op.exp(x))
    >>> tvm.ir.assert_structural_equal(from_text(to_text(mod)), mod)
    """
    mod: tvm.IRModule = from_json_graph_str(text)
    return mod
