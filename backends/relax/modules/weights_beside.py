"""Has TVM's virtual machine take large constants from files beside the library.

TVM writes the constants of a function into the library and reads them out of it, which makes copies
in every process, and no linker takes more than 2 GB of them. Instead a function begins with calls
that give it what ``toolchain/templates/weights.cc`` has mapped, as tensors; on a GPU it was
uploaded once. That is done when all else is: until then TVM computes what depends on constants
alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import ir, relax

from collage.backends.contract import BuildContext
from collage.backends.contract.context import AUTO, BESIDE
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.modules.exchanged_constants import (
    Exchange,
    Exchanged,
    bytes_of,
    with_bindings,
)
from collage.backends.relax.static_shape import static_shape, tensor_dtype
from collage.backends.toolchain import native
from collage.backends.toolchain.weight_files import is_beside

_MOST_INSIDE = 1 << 30
"""Bytes. The linker's limit is 2 GB for all that a library holds."""

_MOST_INSIDE_WHERE_MAPPED = 1 << 27
"""Bytes, where kernels read what is mapped. Inside, the compiler, the linker and every process that
runs it hold copies, as many of each as there are variants that a search compares."""

_EXTERNAL_MODS = "external_mods"
_READY, _WEIGHT = "collage_weights_ready", "collage_weight"


def _constant_bytes(mod: tvm.IRModule) -> int:
    """What all constants of a module's functions take, each counted once."""
    found: dict[ir.GenericConst, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            found[expr] = bytes_of(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return sum(found.values())


def has_weights_beside(mod: tvm.IRModule, context: BuildContext, *, reads_mapped: bool) -> bool:
    """Whether a module's library has its weights in files.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned.
    context : BuildContext
        Has what the user wants.
    reads_mapped : bool
        Whether kernels read weights where they are mapped, as the device's kind has it.

    Returns
    -------
    bool
        False where they are inside of it.
    """
    if context.weights == AUTO:
        most = _MOST_INSIDE_WHERE_MAPPED if reads_mapped else _MOST_INSIDE
        return _constant_bytes(mod) > most
    return context.weights == BESIDE


def take_weights_from_files(
    entries: Collection[str], device_type: int, context: BuildContext
) -> tvm.transform.Pass:
    """The pass that replaces constants, the last before code is generated for functions.

    Parameters
    ----------
    entries : collection of str
        Functions that are called from outside.
    device_type : int
        DLPack's number of the kind of device that weights are to lie on.
    context : BuildContext
        Names the folder for the files.

    Returns
    -------
    tvm.transform.Pass
        It writes the files, and adds to the module what maps them.
    """

    def replaced(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        weights = _Weights(context)
        updated = mod.clone()
        for var, function in mod.functions_items():
            if not isinstance(function, relax.Function):
                continue
            exchange = Exchange(weights.taken)
            body = exchange.sequence(function.body)
            first = list(exchange.bindings)
            if var.name_hint in entries:
                device = relax.prim_value(device_type)
                tensors = [p for p in function.params if isinstance(p.ty, relax.TensorType)]
                ready = _call(_READY, [device, *tensors], relax.AnyType())
                first.insert(0, relax.VarBinding(relax.Var("ready", relax.AnyType()), ready))
            updated[var] = with_bindings(function, first, body)
        attrs = mod.attrs or {}
        others = list(attrs[_EXTERNAL_MODS]) if _EXTERNAL_MODS in attrs else []
        return updated.with_attr(_EXTERNAL_MODS, [*others, weights.library()])

    return tvm.transform.module_pass(replaced, opt_level=0, name="TakeWeightsFromFiles")


@dataclass
class _Weights:
    """Those that were met so far, by symbol, in the order of the list in the library."""

    context: BuildContext
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    known: dict[ir.GenericConst, int] = field(default_factory=dict)

    def taken(self, constant: ir.GenericConst) -> Exchanged | None:
        """The call that gives a constant, where it lies beside the library."""
        if not is_beside(bytes_of(constant), self.context):
            return None
        index = self.index(constant)
        return index, _call(_WEIGHT, [relax.prim_value(index)], constant.ty)

    def index(self, constant: ir.GenericConst) -> int:
        """A constant's place in the list."""
        if constant not in self.known:
            array = constant_data(constant)
            symbol = native.constant_symbol(array)
            self.arrays.setdefault(symbol, array)
            self.shapes.setdefault(symbol, (tensor_dtype(constant.ty), static_shape(constant.ty)))
            self.known[constant] = list(self.arrays).index(symbol)
        return self.known[constant]

    def library(self) -> tvm.runtime.Module:
        """What maps them all, and those of the other backends."""
        lines = ['#include "weights.h"', "#include <stddef.h>"]
        rows = []
        for number, (symbol, (name, shape)) in enumerate(self.shapes.items()):
            dtype = tvm.DataType(name)
            extents = ", ".join(map(str, shape)) or "0"
            lines += [
                f'extern const char {symbol}[] __attribute__((visibility("hidden")));',
                f"static const int64_t shape_{number}[] = {{ {extents} }};",
            ]
            code = f"{{ {int(dtype.type_code)}, {int(dtype.bits)}, {int(dtype.lanes)} }}"
            rows.append(f"  {{ {symbol}, {code}, {len(shape)}, shape_{number} }},")
        rows.append("  { NULL, { 0, 0, 0 }, 0, NULL },")
        lines += ["const collage_weight_tensor collage_weights[] = {", *rows, "};"]
        lines.append(f"const int32_t collage_num_weights = {len(self.shapes)};")
        return native.static_library(
            "\n".join(lines) + "\n",
            [_READY, _WEIGHT],
            self.context,
            suffix=".c",
            constants=self.arrays,
            objects=[native.weights_object(self.context)],
        )


def _call(function: str, args: list[relax.Expr], ty: relax.Type) -> relax.Expr:
    return ir.Call(relax.ExternFunc(function), args, ty_args=[ty])
