"""Checks a ``.pt2`` archive before torch reads it, so that reading it runs nobody's code.

``torch.export.load`` unpickles: weights with ``use_pickle``, custom and opaque objects, and sample
inputs when their safe reading fails; and it loads compiled kernels. An ordinary exported program
needs none of this, so archives that do are refused (torch 2.13,
``torch/export/pt2_archive/_package.py``). Sizes, guards and names become Python code, see
``expressions``: they may be nothing else.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import ModelError, telling_line
from collage.importers.torch.expressions import (
    has_plain_keywords,
    is_name,
    is_path,
    only_counts,
)
from collage.importers.zip_files import names_in

_FORMAT_FILE = "archive_format"
_PICKLED_OBJECTS = ("custom_obj_", "opaque_obj_")
_SHOWN = 60
_CHECKS = {
    "expr_str": only_counts,
    "guards_code": only_counts,
    "name": is_name,
    "forward_arg_names": is_name,
    "in_spec": has_plain_keywords,
    "fqn": is_path,
}
"""By key, wherever it stands; what is called ``..._name`` is a weight's path."""


def is_archive(path: Path) -> bool:
    """Whether the file is a zip archive of ``torch.export.save``, old or new."""
    return bool({_FORMAT_FILE, "serialized_exported_program.json"} & names_in(path))


def require_safe(path: Path) -> None:
    """Refuse an archive that torch could not read without unpickling or evaluating.

    Raises
    ------
    ModelError
        Says what the archive holds.
    """
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(set(names)) != len(names):
            raise ModelError(f"'{path}' holds two files of one name", value=str(path))
        root = next((n.removesuffix(_FORMAT_FILE) for n in names if n.endswith(_FORMAT_FILE)), None)
        if root is None:
            raise ModelError(
                f"'{path}' was saved by an old PyTorch; save it again with torch.export.save of "
                "PyTorch 2.8 or later",
                value=str(path),
            )
        relative = [name.removeprefix(root) for name in names]
        for name in relative:
            _require_plain(name, path)
        for name in relative:
            if name.endswith(".json"):
                _require_harmless(json.loads(archive.read(root + name)), name, path)
            elif name.startswith("data/sample_inputs/"):
                _require_tensors(archive.read(root + name), path)


def _require_plain(name: str, path: Path) -> None:
    last = name.rsplit("/", 1)[-1]
    if name.startswith("data/aotinductor/"):
        raise ModelError(f"'{path}' holds compiled code ({name}), not a program", value=name)
    legacy = last.endswith(".pt") and not name.startswith("data/sample_inputs/")
    if legacy or last.startswith(_PICKLED_OBJECTS):
        raise ModelError(f"'{path}' holds pickled objects ({name}), which are not read", value=name)


def _require_harmless(value: Any, name: str, path: Path) -> None:
    for key, inner in _pairs(value):
        if key == "use_pickle" and inner:
            raise ModelError(
                f"'{path}' holds pickled tensors (see {name}), which are not read", value=name
            )
        check = _CHECKS.get(key, is_path if key.endswith("_name") else None)
        for text in inner if isinstance(inner, list) else [inner]:
            if check is not None and text is not None and not check(text):
                raise ModelError(
                    f"'{path}' holds text (see '{key}' in {name}) that PyTorch would make code of, "
                    f"and that is more than a name or arithmetic: {str(text)[:_SHOWN]!r}",
                    value=text,
                )


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value in nested JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _pairs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pairs(inner)


def _require_tensors(data: bytes, path: Path) -> None:
    """Sample inputs must be readable without running anything: torch falls back to running it."""
    import torch

    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as err:  # pickle errors of many kinds; all mean that this is not plain data
        raise ModelError(
            f"the sample inputs in '{path}' are not plain tensors: {telling_line(err)}",
            value=str(path),
        ) from err
