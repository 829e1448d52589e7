"""Converters of ONNX operators that TVM's importer lacks or gets wrong, a family a file.

A converter gives the expression, or None where TVM's own converter does it right; what cannot be
converted is refused with a reason (:class:`~collage.importers.onnx.operators.node.Refused`).
"""

from __future__ import annotations

from collections.abc import Mapping

from collage.importers.onnx.operators import (
    choosing,
    elementwise,
    indexing,
    movement,
    norms,
    quantized,
    recurrent,
    reductions,
    spectral,
)
from collage.importers.onnx.operators.microsoft import (
    attention,
    decoding,
    eight_bits,
    experts,
    few_bits,
    gates,
    images,
    inverse,
    joined_norms,
    optimized,
    positions,
    rotary,
)
from collage.importers.onnx.operators.ml import supports, tables, trees
from collage.importers.onnx.operators.node import Converter
from collage.importers.onnx.operators.windows import convolution, pooling, regions, resize

__all__ = ["BEYOND", "CONVERTERS", "converter_of"]

CONVERTERS: Mapping[str, Converter] = {
    **choosing.CONVERTERS,
    **convolution.CONVERTERS,
    **elementwise.CONVERTERS,
    **indexing.CONVERTERS,
    **joined_norms.CONVERTERS,
    **movement.CONVERTERS,
    **norms.CONVERTERS,
    **pooling.CONVERTERS,
    **quantized.CONVERTERS,
    **recurrent.CONVERTERS,
    **reductions.CONVERTERS,
    **regions.CONVERTERS,
    **resize.CONVERTERS,
    **spectral.CONVERTERS,
}
"""By operator of the standard."""

BEYOND: Mapping[str, Mapping[str, Converter]] = {
    "ai.onnx.ml": {**supports.SUPPORTS, **tables.TABLES, **trees.TREES},
    "com.microsoft": {
        **attention.MICROSOFT,
        **decoding.MICROSOFT,
        **joined_norms.MICROSOFT,
        **optimized.MICROSOFT,
        **eight_bits.MICROSOFT,
        **experts.MICROSOFT,
        **few_bits.MICROSOFT,
        **gates.MICROSOFT,
        **images.MICROSOFT,
        **inverse.MICROSOFT,
        **positions.MICROSOFT,
        **recurrent.MICROSOFT,
        **rotary.MICROSOFT,
    },
}
"""By domain, then by operator. TVM's importer tells no domains: where the standard has an operator
of the same name, it is written out before (attention, rotary embeddings) or the same without
channels last (``QLinearConv``)."""

_EVERY = {**CONVERTERS, **{name: c for domain in BEYOND.values() for name, c in domain.items()}}


def converter_of(operator: str) -> Converter | None:
    """The converter of an operator, of whichever domain; None where TVM's own is right.

    Examples
    --------
    >>> converter_of("LSTM") is None, converter_of("Relu") is None
    (False, True)
    """
    return _EVERY.get(operator)
