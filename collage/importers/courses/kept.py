"""The parts of a model, by the names that they are called by."""

from __future__ import annotations

from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import ModelError
from collage.backends.relax.constant_data import constant_data
from collage.importers._base import ImportedModel
from collage.importers.functions import MAIN

_MOST_PARTS = 128
"""Each is searched like a model of its own."""


class KeptParts:
    """The parts that were imported so far.

    Attributes
    ----------
    imported : dict of str to ImportedModel
        By the names that they are called by.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.importers import load_model
    >>> from collage.testing import graph
    >>> parts = KeptParts()
    >>> parts.keep(load_model(graph([(2,)], lambda emit, x: op.exp(x))), "body")
    'body_1'
    """

    def __init__(self) -> None:
        self.imported: dict[str, ImportedModel] = {}

    def __len__(self) -> int:
        return len(self.imported)

    def keep(self, found: ImportedModel, role: str) -> str:
        """A name for a part, under which it is called from now on.

        Parameters
        ----------
        found : ImportedModel
            The part.
        role : str
            What it is called, with a number.

        Returns
        -------
        str
            The name.

        Raises
        ------
        ModelError
            When there are too many.
        """
        if len(self.imported) >= _MOST_PARTS:
            raise ModelError(
                f"the control flow of the model cuts it into more than {_MOST_PARTS} parts",
                value=_MOST_PARTS,
            )
        name = f"{role}_{len(self.imported) + 1}"
        self.imported[name] = ImportedModel(
            *(found.name, found.mod, found.inputs, found.outputs, found.source_format),
            function=name,
        )
        return name

    def forget(self, count: int) -> None:
        """Keep the first parts alone; the others were imported to find out what they give."""
        for name in list(self.imported)[count:]:
            del self.imported[name]


def known_results(mod: tvm.IRModule) -> list[NDArray[Any] | None]:
    """The results of a module's ``main`` that are constants; None for every other one.

    Examples
    --------
    >>> from collage.testing import graph
    >>> known_results(graph([(2,)], lambda emit, x: relax.Tuple([x, relax.const(1.0)])))
    [None, array(1., dtype=float32)]
    """
    main = mod[MAIN]
    bound = {b.var: b.value for block in main.body.blocks for b in block.bindings}

    def resolved(expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var) and expr in bound:
            expr = bound[expr]
        return expr

    whole = resolved(main.body.body)
    fields = list(whole.fields) if isinstance(whole, relax.Tuple) else [whole]
    found = map(resolved, fields)
    return [constant_data(x) if isinstance(x, tvm.ir.GenericConst) else None for x in found]
