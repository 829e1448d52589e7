"""One colour per backend, the same in every figure and on light and dark ground."""

from __future__ import annotations

from collections.abc import Sequence

KNOWN = {
    "tvm": "#eb6834",
    "onednn": "#2a78d6",
    "openblas": "#1baf7a",
    "openvino": "#0f8fa8",
    "onnxruntime": "#8f6b2e",
    "cutlass": "#eda100",
    "cublas": "#e87ba4",
    "cudnn": "#4a3aa7",
    "tensorrt": "#008300",
}
"""Built-in backends keep their colour from one report to the next."""

SPARE = ("#e34948", "#7d8b1f", "#9c5fd0", "#6b7a99", "#a8672c")
INLINE = "#8a8a85"


def backend_colors(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label; distinct as long as the palette lasts, then used again in turn.

    Examples
    --------
    >>> colors = backend_colors(["tvm", "onednn"])
    >>> colors["tvm"] != colors["onednn"]
    True
    """
    colors: dict[str, str] = {}
    taken: set[str] = set()
    spare = [*SPARE, *KNOWN.values()]
    for label in labels:
        name = label.split(" ")[0]
        color = KNOWN.get(name, "")
        if not color or color in taken:
            free = [c for c in spare if c not in taken and (c in SPARE or name not in KNOWN)]
            color = (free or spare)[len(colors) % len(spare) if not free else 0]
        colors[label] = color
        taken.add(color)
    return colors
