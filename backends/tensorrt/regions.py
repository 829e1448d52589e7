"""What a region must be, beyond what its operators are."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from collage.backends.contract import Verdict
from collage.backends.relax.patterns.operators import operator_names
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.patterns import MULTIPLY_ACCUMULATE, QUANTIZING


def accepts(operators: Sequence[relax.Expr], options: TensorrtOptions) -> Verdict:
    """Whether a region may become an engine.

    Parameters
    ----------
    operators : sequence of relax.Expr
        The values of the region's bindings.
    options : TensorrtOptions
        Of the target; they may refuse regions without multiply-accumulate work or, for int8,
        without quantization.

    Returns
    -------
    Verdict
        Yes, or no with the reason.
    """
    names = set(operator_names(operators))
    if options.remove_no_mac_subgraphs and not names & MULTIPLY_ACCUMULATE:
        return Verdict.no("no multiply-accumulate work, and remove_no_mac_subgraphs is set")
    if options.use_int8 and not names & QUANTIZING:
        return Verdict.no(
            "use_int8 is set, but the region has no quantize or dequantize operators: "
            "quantize the model first, or unset use_int8"
        )
    return Verdict.yes()
