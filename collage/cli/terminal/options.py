"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from collage.backends.contract.errors import (
    LogError,
    MemoryLimitError,
    ModelError,
    RestrictionError,
    ShapeError,
)
from collage.backends.storage.line_file import check_is_log
from collage.backends.storage.log_url import is_database_url

_EXTENT = re.compile(r"[0-9]([0-9:|]*|[0-9|*.]*\*[0-9|*.]*)(@\w+)?", re.ASCII)
"""What it means is found out later, with the other inputs' shapes."""

Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder.")]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="ONNX, PyTorch exported program (.pt2), or Relax (.json; .py with --allow-code).",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="A name, NAME:ATTRIBUTE=VALUE,... or a JSON object with a 'kind'; repeatable. "
        "TVM itself always takes part. By default all that 'collage backends' shows for a CPU.",
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,3,224,224",
        help="An input's shape; repeatable. 1:8 or 1|4|8 for an extent: several shapes; "
        "1*0.7|8*0.3: how often each comes. Or one dimension by its name: batch=1:8.",
    ),
]
AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Run MODEL.py, which is code, to get its module.")
]


def example(*lines: str) -> str:
    """The epilogue of a command's help: one paragraph per line.

    Examples
    --------
    >>> print(example("collage run net.bundle"))
    Example:
    <BLANKLINE>
    collage run net.bundle
    """
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


def check_model(path: Path) -> None:
    """Refuse a model that is not there, before a bundle's folder is made beside it.

    Raises
    ------
    ModelError
        When there is no such file, or a folder.

    Examples
    --------
    >>> check_model(Path("net.onnx"))
    Traceback (most recent call last):
    ...
    collage.backends.contract.errors.ModelError: there is no file 'net.onnx'
    """
    if not path.exists():
        raise ModelError(f"there is no file '{path}'", value=path)
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder, not a model file", value=path)


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
    """``name=1,3,224,224`` for each input; a scalar is ``name=``; ``1:8`` and ``1|8`` stay texts.

    Raises
    ------
    ShapeError
        For any other text, or an input given twice.

    Examples
    --------
    >>> parse_shapes(["image=1,3,224,224", "mask=1:8,224"])
    {'image': (1, 3, 224, 224), 'mask': ('1:8', 224)}
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        fields = [field.strip() for field in extents.split(",")] if extents.strip() else []
        if not equals or not name or not all(map(_EXTENT.fullmatch, fields)):
            raise ShapeError(
                f"shape '{text}': write name=1,3,224,224, or name=1:8,3,224,224 for a range",
                value=text,
            )
        if name in shapes:
            raise ShapeError(f"shape of input '{name}' is given twice", value=text)
        shapes[name] = tuple(int(field) if field.isdigit() else field for field in fields)
    return shapes


def parse_wishes(option: str, texts: Sequence[str]) -> dict[str, list[str]]:
    """``PATTERN=BACKEND`` for each wish; one pattern may have several backends.

    Parameters
    ----------
    option : str
        Its name, for the error.
    texts : sequence of str
        What was given.

    Returns
    -------
    dict[str, list[str]]
        By pattern, its backends in the order in which they were given.

    Raises
    ------
    RestrictionError
        For any other text.

    Examples
    --------
    >>> parse_wishes("--pin", ["nn.softmax=tvm", "nn.softmax=onednn"])
    {'nn.softmax': ['tvm', 'onednn']}
    """
    wishes: dict[str, list[str]] = {}
    for text in texts:
        pattern, equals, backend = text.rpartition("=")
        if not (equals and pattern and backend):
            raise RestrictionError(f"{option} '{text}': write PATTERN=BACKEND", value=text)
        wishes.setdefault(pattern, []).append(backend)
    return wishes


def parse_bytes(option: str, text: str) -> int:
    """A number of bytes, as ``268435456``, ``262144K``, ``256M`` or ``0.25G``.

    Parameters
    ----------
    option : str
        Its name, for the error.
    text : str
        What was given.

    Returns
    -------
    int
        A whole number; K, M and G are powers of 1024.

    Raises
    ------
    MemoryLimitError
        For any other text.

    Examples
    --------
    >>> parse_bytes("--memory-limit", "0.25G")
    268435456
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.ASCII)
    if found is None:
        raise MemoryLimitError(f"{option} '{text}': write bytes, as 256M or 0.25G", value=text)
    return int(float(found[1]) * 1024 ** " KMG".index(found[2] or " "))


def check_log(log: str, *, must_exist: bool = False) -> str:
    """See that a log can be appended to, before anything is measured for it.

    Parameters
    ----------
    log : str
        A file, or the URL of a database.
    must_exist : bool
        Whether it is only read.

    Returns
    -------
    str
        What it is called in messages, without passwords.

    Raises
    ------
    LogError
        When it cannot be opened, is a file of another kind, or has to exist and does not.

    Examples
    --------
    >>> check_log("net.jsonl")
    'net.jsonl'
    """
    if is_database_url(log):
        from collage.cost.database import open_database

        return open_database(log, read_only=must_exist).name
    path = Path(log)
    if must_exist and not path.is_file():
        raise LogError(f"there is no log '{path}'", value=path)
    try:
        path.open("rb" if must_exist else "ab").close()
    except OSError as err:
        verb = "read" if must_exist else "write"
        raise LogError(f"cannot {verb} log '{path}': {err.strerror}", value=path) from err
    check_is_log(path)
    return log
