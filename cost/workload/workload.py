"""A workload: what a candidate computes, without its names and weights."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax

from collage.backends.contract import PARTITION_ATTR
from collage.backends.contract.errors import MeasurementError
from collage.backends.relax.static_shape import leaf_types
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.workload.canonical import ConstantCollector, Rebuilder
from collage.cost.workload.data import DataSpec, data_spec, input_spec
from collage.cost.workload.describe import count_flops, describe
from collage.cost.workload.index_bounds import index_bounds


@dataclass(frozen=True, eq=False)
class Workload:
    """A canonical module with one partition; equal keys are equal workloads.

    Make one with :meth:`from_module`.

    Attributes
    ----------
    module : tvm.IRModule
        ``main`` calls ``partition``; weights are placeholders.
    constants : tuple of DataSpec
        What the placeholders stand for.
    inputs : tuple of TensorSpec
        Parameters of ``main``.
    bounds : tuple of (int or None)
        For inputs that hold indices, the size of the axis they select from.
    outputs : tuple of TensorSpec
        Results of ``main``, tuples flattened.
    key : str
        SHA-256 of the canonical text, the same in every process.

    Examples
    --------
    >>> import tvm
    >>> from tvm import relax
    >>> builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((8, 8), "float32"))
    >>> with builder.function("relu", [x], attrs={"collage.backend": "tvm"}, private=True):
    ...     out = builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    >>> relu, x = builder.get().get_global_var("relu"), relax.Var("x", x.ty)
    >>> with builder.function("main", [x]):
    ...     out = builder.emit_func_output(builder.emit(relax.Call(relu, [x])))
    >>> workload = Workload.from_module(builder.get())
    >>> workload.describe(), workload.backend, workload.bytes
    ('relu 8x8', 'tvm', 512)
    """

    module: tvm.IRModule
    constants: tuple[DataSpec, ...]
    inputs: tuple[TensorSpec, ...]
    bounds: tuple[int | None, ...]
    outputs: tuple[TensorSpec, ...]
    key: str

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    @classmethod
    def from_module(
        cls, mod: tvm.IRModule, known: dict[ir.GenericConst, DataSpec] | None = None
    ) -> Workload:
        """Make a partitioned module canonical.

        Parameters
        ----------
        mod : tvm.IRModule
            Its ``main`` calls one partition function: an external one (``Codegen``) or a native
            one (``collage.backend``). Whole models, with several, are taken too.
        known : dict, optional
            Descriptions of constants from earlier calls; gets those of new ones. The candidates of
            a model share its weights, and each is gone through only once.

        Returns
        -------
        Workload
            Equal modules have equal keys, whatever their variables are called.

        Raises
        ------
        MeasurementError
            When ``main`` has a parameter that is no tensor of static shape, or control flow.
        """
        collector = ConstantCollector()
        canonical = Rebuilder(collector).module(mod)
        known = {} if known is None else known
        constants = tuple(data_spec(constant, known) for constant in collector.constants)
        main = canonical["main"]
        try:
            inputs = tuple(TensorSpec.of(param.ty) for param in main.params)
            outputs = tuple(TensorSpec.of(leaf) for leaf in leaf_types(main.ret_ty))
        except (TypeError, AttributeError) as err:
            raise MeasurementError(
                f"a workload needs tensors of static shape: {err}", value=str(main.ty)
            ) from err
        text = "\n".join(
            [
                canonical.script(show_meta=False),
                *(spec.range_key for spec in constants),
                *collector.inline_digests,
            ]
        )
        key = hashlib.sha256(text.encode()).hexdigest()
        bounds = index_bounds(canonical)
        return cls(canonical, constants, inputs, bounds, outputs, key)

    @functools.cached_property
    def backend(self) -> str:
        """The backend of the partition; several, of a whole model, are joined by commas."""
        names: dict[str, None] = {}
        for func in self.module.functions.values():
            for attr in ("Codegen", PARTITION_ATTR):
                if func.attrs and attr in func.attrs:
                    names[str(func.attrs[attr])] = None
        return ",".join(names)

    def describe(self) -> str:
        """One short line, for example ``conv2d 1x64x56x56 * 64x64x3x3 + bias + relu``."""
        return describe(self.module)

    @functools.cached_property
    def flops(self) -> int:
        """Floating-point operations of one call, a multiply-add as two."""
        return count_flops(self.module)

    @functools.cached_property
    def bytes(self) -> int:
        """Bytes that a call must read and write at the least: inputs, weights, outputs."""
        return sum(spec.bytes for spec in (*self.inputs, *self.constants, *self.outputs))

    def materialize(self, seed: int = 0) -> tvm.IRModule:
        """The module with regenerated weights inline, ready to compile."""
        weights = [
            relax.const(spec.generate(seed + index), spec.dtype)
            for index, spec in enumerate(self.constants)
        ]
        return Rebuilder(lambda constant, _: constant, weights).module(self.module)

    def make_inputs(self, seed: int = 0, *, positive: bool = False) -> list[NDArray[np.generic]]:
        """Seeded inputs.

        Parameters
        ----------
        seed : int
            Of all of them.
        positive : bool
            For functions that are undefined below zero.

        Returns
        -------
        list of ndarray
            One for each parameter, in their order; the same seed gives the same ones.
        """
        return [
            input_spec(spec, bound, positive=positive).generate(1_000_003 * (seed + 1) + index)
            for index, (spec, bound) in enumerate(zip(self.inputs, self.bounds, strict=True))
        ]
