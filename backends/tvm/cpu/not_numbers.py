"""What tensor programs on a processor ask of a value."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def is_none(value: Any, kind: str) -> Any:
    """Whether a value is no number: by its bits, for that it differs from itself TVM takes for
    false.

    Parameters
    ----------
    value : expression
        Used once.
    kind : str
        Its type.

    Returns
    -------
    expression
        False for whole numbers.
    """
    if "float" not in kind:
        return tirx.const(False, "bool")
    bits, exponent = ("int32", 0x7F800000) if kind == "float32" else ("int64", 0x7FF << 52)
    most = tirx.const((1 << (31 if bits == "int32" else 63)) - 1, bits)
    return (tirx.reinterpret(bits, value) & most) > tirx.const(exponent, bits)
