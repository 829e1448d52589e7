"""Variants of one model as files, for worker processes: modules, and the weights that they share.

Weights are hundreds of megabytes: they are written once, and the modules, which then are small,
refer to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax

from collage.backends.relax.constant_data import PLAIN_KINDS, constant_data
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.workload.arrays import LEAST_MAPPED, load_arrays, save_arrays
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


class MappedWeights:
    """The weights of a model that is searched, in files of which this process maps what it reads.

    A search needs its model's weights now and then: to run the reference, to name what it compiles,
    to write it down for compilers. Between, others need the memory (``forget_pages``).

    Parameters
    ----------
    folder : Path
        An existing one, for files; they may be deleted while the weights are in use.
    least_bytes : int
        Of a module whose weights are worth the files.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from tvm_ffi import structural_equal
    >>> from collage.testing import constant, graph
    >>> weights = MappedWeights(Path.cwd(), least_bytes=1)
    >>> mod = graph([(2, 256)], lambda emit, x: op.matmul(x, constant(256, 256)))
    >>> mapped = weights.of(mod)
    >>> mapped is mod, structural_equal(mapped, mod), weights.of(mapped) is mapped
    (False, True, True)
    """

    def __init__(self, folder: Path, least_bytes: int = 32 << 20) -> None:
        self._folder, self._least_bytes = folder, least_bytes
        self._mapped: set[ir.GenericConst] = set()
        self._folders = 0

    def of(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The same module over weights in files; what is there already stays.

        Parameters
        ----------
        mod : tvm.IRModule
            Nobody else should hold it any longer than need be: its weights are freed with it.

        Returns
        -------
        tvm.IRModule
            The given one where its weights are few, or there is no room for files.
        """
        found = [one for one in dict.fromkeys(_constants(mod)) if self._is_worth_it(one)]
        if sum(_num_bytes(one) for one in found) < self._least_bytes:
            return mod
        self._folders += 1
        folder = self._folder / f"mapped-{self._folders}"
        try:
            save_arrays(folder, [constant_data(one) for one in found])
        except OSError:
            return mod
        arrays = load_arrays(folder, mapped=True)
        new = dict(zip(found, map(_constant, arrays), strict=True))
        self._mapped.update(new.values())
        return _WithConstants(lambda constant, _: new.get(constant, constant)).module(mod)

    def _is_worth_it(self, constant: ir.GenericConst) -> bool:
        # Of others what is made is a copy, which is in memory again.
        plain = False
        with suppress(TypeError):
            plain = np.dtype(str(constant.ty.dtype)).kind in PLAIN_KINDS
        return plain and constant not in self._mapped and _num_bytes(constant) >= LEAST_MAPPED


def _constants(mod: tvm.IRModule) -> Iterator[ir.GenericConst]:
    """Of all functions, in order."""
    found: list[ir.GenericConst] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return iter(found)


def _num_bytes(constant: ir.GenericConst) -> int:
    return TensorSpec.of(constant.ty).bytes


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
