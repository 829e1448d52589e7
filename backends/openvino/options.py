"""Attributes of the ``openvino`` target."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
"""What float32 tensors are computed in, and ``INFERENCE_PRECISION_HINT``."""

CAPABILITIES = {"bfloat16": "BF16", "float16": "FP16", "int8": "INT8"}
"""Those that a processor may lack, as the CPU plugin names them."""


BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""Any of these makes products of bfloat16 faster than those of float32."""


@dataclass(frozen=True)
class OpenvinoOptions:
    """Attributes of the ``openvino`` target.

    Attributes
    ----------
    precision : str
        What a region computes float32 tensors in: ``float32`` with all of their digits,
        ``bfloat16`` or ``float16`` where the processor has instructions for them. What enters and
        leaves a region keeps its dtype. With ``int8`` a search rounds products' operands to 256
        steps, as it knows them from samples.
    between : str
        With ``int8``, what all else is computed in.

    Raises
    ------
    ValueError
        When there is no such precision; lists those there are.
    """

    precision: str = "float32"
    between: str = "float32"

    def __post_init__(self) -> None:
        known = ", ".join(PRECISIONS)
        if self.precision not in (*PRECISIONS, "int8"):
            raise ValueError(f"precision must be one of {known}, int8, not '{self.precision}'")
        if self.between not in PRECISIONS:
            raise ValueError(f"between must be one of {known}, not '{self.between}'")

    @property
    def computed_in(self) -> str:
        """What the plugin is told: bytes are multiplied where operators say so."""
        return self.between if self.precision == "int8" else self.precision
