"""The constants of all regions of a module in one piece of memory, each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from collage.backends.toolchain.shared_bytes import SharedBytes


def share_constants(
    regions: Sequence[tuple[str, memoryview]], folder: Path | None = None
) -> tuple[list[str], NDArray[np.uint8]]:
    """Texts of regions whose constants stand in one array.

    OpenVINO's IR names a constant by its place among a model's bytes. Here the places become those
    in bytes that all models have in common.

    Parameters
    ----------
    regions : sequence of (str, memoryview)
        Text and constants, as OpenVINO writes them.
    folder : Path, optional
        Of a file for the array, see :class:`SharedBytes`.

    Returns
    -------
    tuple[list[str], ndarray]
        The texts, and the array.

    Examples
    --------
    >>> layer = '<layer type="Const"><data offset="{}" size="4" /></layer>'
    >>> net = "<net><layers>" + layer.format(0) + layer.format(4) + "</layers></net>"
    >>> texts, shared = share_constants([(net, memoryview(b)) for b in (b"abcdefgh", b"efghijkl")])
    >>> texts[1].count('offset="64"'), shared[128:].tobytes()
    (1, b'ijkl')
    """
    shared = SharedBytes(folder)
    texts = []
    for text, constants in regions:
        root = ElementTree.fromstring(text)
        # Nested models, such as the body of a loop, are written into the same bytes.
        for data in root.iterfind(".//layer[@type='Const']/data"):
            begin, size = int(data.attrib["offset"]), int(data.attrib["size"])
            data.set("offset", str(shared.place(constants[begin : begin + size])))
        texts.append(ElementTree.tostring(root, encoding="unicode"))
    # A constant without elements, such as the shape of a scalar, needs no byte; OpenVINO reads no
    # model with constants where there are none at all, so there always are some.
    return texts, shared.data()
