"""Variants of one model as files, for worker processes: modules, and the weights that they share.

Weights are hundreds of megabytes: they are written once, and the modules, which then are small,
refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax

from collage.backends.relax.constant_data import PLAIN_KINDS, constant_data
from collage.cost.workload.arrays import load_arrays, save_arrays
from collage.cost.workload.canonical import ConstantCollector, Rebuilder
from collage.cost.workload.module_text import from_text, to_text


def module_file(folder: Path, index: int) -> Path:
    """Where :func:`write_modules` writes a module.

    Parameters
    ----------
    folder : Path
        That it was given.
    index : int
        Of the module.

    Returns
    -------
    Path
        It need not be there yet.
    """
    return folder / f"{index}.json"


def weights_folder(folder: Path) -> Path:
    """Where :func:`write_modules` writes the weights, in its folder."""
    return folder / "weights"


def write_modules(modules: Sequence[tvm.IRModule], folder: Path) -> int:
    """The bytes of the weights that these modules share, and all of them written to a folder.

    Parameters
    ----------
    modules : sequence of IRModule
        Each has a file of its own, see :func:`module_file`.
    folder : Path
        An existing one; the weights lie in :func:`weights_folder`.

    Returns
    -------
    int
        Each constant counted once, however many modules hold it.
    """
    collector = ConstantCollector()
    for index, module in enumerate(modules):
        text = to_text(_WithConstants(collector).module(module))
        module_file(folder, index).write_text(text, encoding="utf-8")
    arrays = [constant_data(constant) for constant in collector.constants]
    save_arrays(weights_folder(folder), arrays)
    return sum(array.nbytes for array in arrays)


def read_module(module: Path, weights: Path) -> tvm.IRModule:
    """A module with its weights, as it was.

    Parameters
    ----------
    module : Path
        Its file.
    weights : Path
        The folder of the weights.

    Returns
    -------
    IRModule
        Its constants are as they were written, of the same values; large ones are mapped.
    """
    constants = [_constant(array) for array in load_arrays(weights, mapped=True)]
    mod = from_text(module.read_text(encoding="utf-8"))
    return _WithConstants(lambda constant, _: constant, constants).module(mod)


def _constant(array: NDArray[np.generic]) -> ir.GenericConst:
    """Of an array that is mapped the same memory, not a copy of it."""
    if isinstance(array, np.memmap) and array.dtype.kind in PLAIN_KINDS:
        return relax.const(tvm.runtime.from_dlpack(array))
    return relax.const(array, array.dtype.name)


class _WithConstants(Rebuilder):
    """Exchanges constants and placeholders and leaves everything else, names included."""

    def module(self, mod: tvm.IRModule) -> tvm.IRModule:
        functions: Mapping[ir.GlobalVar, ir.BaseFunc] = {
            var: self.function(func) if isinstance(func, relax.Function) else func
            for var, func in mod.functions.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs)

    def expr(self, expr: relax.Expr) -> relax.Expr:
        return expr if isinstance(expr, ir.GlobalVar) else super().expr(expr)

    def _rename(self, var: relax.Var) -> relax.Var:
        return var
