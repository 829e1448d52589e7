"""ONNX as text: what ``onnx.save_model`` writes as textproto, JSON or in ONNX's own syntax."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import onnx
from google.protobuf.json_format import ParseError as JsonError  # type: ignore[import-untyped]
from google.protobuf.text_format import ParseError as TextError  # type: ignore[import-untyped]
from onnx.parser import ParseError as NotationError

from collage.backends.contract.errors import ModelError, telling_line

TEXT_SUFFIXES = (
    *(".textproto", ".prototxt", ".pbtxt", ".txtpb", ".onnxjson", ".json", ".onnxtxt", ".onnxtext"),
)
"""As ``onnx.save_model`` has them."""

_HEAD_BYTES = 4096

_FORMATS = (
    ("json", re.compile(r'\{\s*"(ir_?[vV]ersion|opset_?[iI]mport|producer_?[nN]ame)"')),
    ("textproto", re.compile(r"(#.*\n\s*)*(ir_version|producer_name)\s*:|graph\s*\{")),
    ("onnxtxt", re.compile(r"<\s*(//.*\n\s*)*(ir_version|opset_import)\s*:")),
)
"""What text of each format begins with, by the names that ``onnx.load_model`` has for them."""


def text_format_of(path: Path) -> str | None:
    """The format of ONNX that a file of text is in; None of others.

    Parameters
    ----------
    path : Path
        A file.

    Returns
    -------
    str or None
        As ``onnx.load_model`` has it.

    Examples
    --------
    >>> path = Path("net.onnxtxt")
    >>> _ = path.write_text('<ir_version: 8, opset_import: ["" : 17]> net () => () {}')
    >>> text_format_of(path)
    'onnxtxt'
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    return next((name for name, begins in _FORMATS if begins.match(head)), None)


def read_text(path: Path, text_format: str) -> onnx.ModelProto:
    """The model in a file of text.

    Parameters
    ----------
    path : Path
        The file.
    text_format : str
        As :func:`text_format_of` gives it.

    Returns
    -------
    onnx.ModelProto
        Without the weights that lie in other files.

    Raises
    ------
    ModelError
        When it cannot be parsed.
    """
    try:
        with warnings.catch_warnings():
            # Of ONNX's own syntax: that it is experimental.
            warnings.simplefilter("ignore", UserWarning)
            return onnx.load_model(str(path), format=text_format, load_external_data=False)
    except (JsonError, TextError, NotationError, UnicodeDecodeError, ValueError) as err:
        raise ModelError(
            f"'{path}' is ONNX as text ({text_format}), and cannot be read: {telling_line(err)}",
            value=str(path),
        ) from err
