"""Layer norm and root-mean-square norm over the last axes, alone or of a sum: own kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import (
    DTYPE_BITS,
    MULTIPROCESSORS,
    Configuration,
    KernelSource,
    KernelSpec,
    OperatorFamily,
    Reading,
    alignment,
)
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.partitions.composites import Composite, compiling
from collage.backends.relax.patterns import derives, either_order
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape
from collage.backends.relax.tensor_spec import TensorSpec
from collage.backends.toolchain.source_templates import source_templates

ELEMENTS = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float"}

_OPERANDS = {"layer_norm": 3, "rms_norm": 2}
"""The operators, and how many operands each takes: the data, a scale, and perhaps a shift."""

MAX_CHUNKS = 8
_MAX_THREADS = 1024
_BUSY_ROWS = 16 * MULTIPROCESSORS
"""From so many rows on, one warp per row keeps an H100 or H200 busy."""


@dataclass(frozen=True)
class NormConfiguration(Configuration):
    """How a row is spread over threads.

    Attributes
    ----------
    threads : int
        Per row; 32 times a power of two.
    rows : int
        Per thread block; 1 where a row has more than one warp.
    vector : int
        Elements per memory access.
    chunks : int
        Accesses per thread and row.
    """

    threads: int
    rows: int
    vector: int
    chunks: int


class NormFamily(OperatorFamily):
    """``relax.nn.layer_norm`` and ``relax.nn.rms_norm``.

    Examples
    --------
    >>> [triple.name for triple in NormFamily().patterns(CutlassOptions(), "sm_90a")][:2]
    ['cutlass.layer_norm', 'cutlass.rms_norm']
    """

    name: ClassVar[str] = "norm"
    prefixes: ClassVar[tuple[str, ...]] = (
        "layer_norm",
        "rms_norm",
        "add_layer_norm",
        "add_rms_norm",
    )

    def __init__(self) -> None:
        self._templates = source_templates(
            TEMPLATES, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )

    def patterns(self, options: CutlassOptions, arch: str) -> Sequence[PatternTriple]:
        return [
            _triple(name, residual)
            for residual, name in itertools.product((False, True), _OPERANDS)
        ]

    def read(self, composite: Composite, options: CutlassOptions, arch: str) -> Reading:
        name = composite.name
        call = composite.root
        operator_name = name.removeprefix("cutlass.").removeprefix("add_")
        with compiling("cutlass", name):
            rows, columns = _read_extents(call)
        data, *parameters = call.args
        data = composite.resolve(data)
        residual = isinstance(data, relax.Call)
        arguments = [*(data.args if residual else [data]), *parameters]
        spec = KernelSpec(
            operator=operator_name,
            sizes=(rows, columns),
            dtype=tensor_dtype(call),
            math="simt",
            layout="row",
            epilogue="add" if residual else "none",
            inputs=tuple(TensorSpec.of(arg) for arg in arguments),
            output=TensorSpec.of(call),
            scalars=(float(call.attrs.epsilon),),
        )
        return Reading.of(composite, spec, arguments)

    def configurations(
        self, spec: KernelSpec, options: CutlassOptions, arch: str
    ) -> Sequence[Configuration]:
        rows, columns = spec.sizes
        return row_configurations(rows, columns, DTYPE_BITS[spec.dtype])

    def render(self, spec: KernelSpec, configuration: Configuration) -> KernelSource:
        assert isinstance(configuration, NormConfiguration)
        text = self._templates.get_template("norm.cu.jinja").render(
            conf=configuration,
            element=ELEMENTS[spec.dtype],
            centered=spec.operator == "layer_norm",
            residual=spec.epilogue == "add",
        )
        return KernelSource(f"{spec.operator}_{spec.dtype}_{configuration.threads}", text)


def row_configurations(rows: int, columns: int, bits: int) -> list[NormConfiguration]:
    """Ways to spread a row over threads, the best guess first.

    Parameters
    ----------
    rows : int
        Number of rows.
    columns : int
        Elements of a row.
    bits : int
        Of one element.

    Returns
    -------
    list[NormConfiguration]
        At most four, with the widest accesses that rows divide by.

    Raises
    ------
    UnsupportedProblemError
        When a row is too long for one thread block's registers.
    """
    vector = alignment(columns, bits)
    accesses = columns // vector
    found = []
    for threads in (32, 64, 128, 256, 512, _MAX_THREADS):
        chunks = math.ceil(accesses / threads)
        # Threads that would have nothing to do are not worth starting.
        if chunks > MAX_CHUNKS or (threads > 32 and threads // 2 >= accesses):
            continue
        block_rows = 4 if threads == 32 else 1
        found.append(NormConfiguration("simt", threads, block_rows, vector, chunks))
    if not found:
        raise UnsupportedProblemError(f"rows of {columns} elements do not fit a block's registers")
    # Many rows: few threads each, that need no barrier. Few rows: one access per thread.
    wanted = 4 if rows >= _BUSY_ROWS else 1
    found.sort(key=lambda c: abs(math.log2(c.chunks / wanted)))
    return found[:4]


def _read_extents(call: relax.Call) -> tuple[int, int]:
    """Rows and columns of a normalization over the last axes.

    Raises
    ------
    UnsupportedProblemError
        When the kernels cannot run it.
    """
    data, *parameters = call.args
    shape = tensor_shape(data)
    if shape is None:
        raise UnsupportedProblemError(f"the data have no static shape: {data.ty}")
    if not shape or 0 in shape:
        raise UnsupportedProblemError(f"the data are empty or a single number: shape {shape}")
    dtype = tensor_dtype(call)
    if dtype not in DTYPE_BITS:
        raise UnsupportedProblemError(f"dtype {dtype}; only {', '.join(DTYPE_BITS)} are supported")
    axes = [int(axis) % len(shape) for axis in call.attrs.axes]
    if not axes or axes != list(range(len(shape) - len(axes), len(shape))):
        raise UnsupportedProblemError(
            f"normalized axes {axes} of {len(shape)} are not the last ones in their order"
        )
    columns = math.prod(shape[axes[0] :])
    if columns == 1:
        raise UnsupportedProblemError("rows of one element")
    for parameter in parameters:
        given = tensor_shape(parameter)
        if given is None or math.prod(given) != columns or tensor_dtype(parameter) != dtype:
            raise UnsupportedProblemError(
                f"a scale or shift of shape {given} and dtype {tensor_dtype(parameter)} "
                f"does not fit rows of {columns} elements of {dtype}"
            )
    for flag in ("center", "scale"):
        if not getattr(call.attrs, flag, True):
            raise UnsupportedProblemError(f"layer norm with {flag}=False")
    rows = math.prod(shape) // columns
    if rows >= 2**31:
        raise UnsupportedProblemError(f"{rows} rows")
    row_configurations(rows, columns, DTYPE_BITS[dtype])
    return rows, columns


def _triple(name: str, residual: bool) -> PatternTriple:
    data = left = right = wildcard()
    if residual:
        left, right = wildcard(), wildcard()
        data = either_order("relax.add", left, right)
    parameters = [wildcard() for _ in range(_OPERANDS[name] - 1)]
    root = is_op(f"relax.nn.{name}")(data, *parameters)
    named = {"root": root, "left": left, "right": right}
    return PatternTriple(
        f"cutlass.{'add_' if residual else ''}{name}",
        root,
        _same_shape if residual else _fits,
        named,
    )


_fits = derives(lambda match: _read_extents(match.annotated["root"]))


def _same_shape(match: Match) -> Verdict:
    result = (tensor_shape(match.root), tensor_dtype(match.root))
    for name in ("left", "right"):
        operand = match.annotated[name]
        given = (tensor_shape(operand), tensor_dtype(operand))
        if given != result:
            return Verdict.no(f"a summand of shape and dtype {given} is broadcast to {result}")
    return _fits(match)


def family() -> NormFamily:
    """The family of normalizations."""
    return NormFamily()
