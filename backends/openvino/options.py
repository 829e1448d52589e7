"""Attributes of the ``openvino`` target."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
"""What float32 tensors are computed in, and ``INFERENCE_PRECISION_HINT``."""

CAPABILITIES = {"bfloat16": "BF16", "float16": "FP16"}
"""Those that a processor may lack, as the CPU plugin names them."""


@dataclass(frozen=True)
class OpenvinoOptions:
    """Attributes of the ``openvino`` target.

    Attributes
    ----------
    precision : str
        What a region computes float32 tensors in: ``float32`` with all of their digits,
        ``bfloat16`` or ``float16`` where the processor has instructions for them. What enters and
        leaves a region keeps its dtype.

    Raises
    ------
    ValueError
        When there is no such precision; lists those there are.
    """

    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise ValueError(f"precision must be one of {known}, not '{self.precision}'")
