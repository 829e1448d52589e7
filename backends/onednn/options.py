"""Attributes of the ``onednn`` target."""

from __future__ import annotations

from dataclasses import dataclass

LAYOUTS = ("auto", "blocked", "nhwc", "plain")
"""Layouts of pictures inside a region; same order as ``Layout`` in ``templates/plan.h``."""

PRECISIONS = ("float32", "bfloat16", "int8")
"""What products are computed in; the first two in the order of ``Precision`` in
``templates/plan.h``, where bytes are operators of their own."""

BFLOAT16_FLAGS = frozenset({"amx_bf16", "avx512_bf16"})
"""Any of these multiplies bfloat16, as Linux names them."""

BYTES_FLAGS = frozenset({"avx2", "avx512_vnni", "avx_vnni", "amx_int8"})
"""Any of these multiplies bytes."""


@dataclass(frozen=True)
class OnednnOptions:
    """Attributes of the ``onednn`` target.

    Attributes
    ----------
    layout : str
        Memory layout of pictures between a region's convolutions: ``auto`` lets oneDNN choose for
        each kernel, ``blocked`` (nChw16c) and ``nhwc`` insist where there is a kernel for it,
        ``plain`` keeps NCHW throughout.
    precision : str
        What convolutions and products of matrices multiply: ``float32``, or ``bfloat16``, to which
        they round their operands where the processor has AMX or AVX-512 BF16 for it;
        sums, and all that stands between them, keep all digits. With ``int8`` a search rounds
        operands to 256 steps, as it knows them from samples; all else is float32.
    winograd : bool
        Whether convolutions with three or five taps along an axis or two may be done in
        Winograd's tiles where that is estimated to be faster. What is infinite or no
        number then spreads to all results of its tile, of up to four by four pixels.

    Raises
    ------
    ValueError
        When there is no such layout or precision; lists those there are.
    """

    layout: str = "auto"
    precision: str = "float32"
    winograd: bool = True

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not '{self.layout}'")
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise ValueError(f"precision must be one of {known}, not '{self.precision}'")
