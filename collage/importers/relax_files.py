"""Relax modules from files: saved JSON, and TVMScript, which is Python code."""

from __future__ import annotations

from pathlib import Path

import tvm
import tvm.script

from collage.backends.contract.errors import ModelError, telling_line
from collage.importers._base import FileImporter, ImportedModel, Shapes
from collage.importers.dynamic import import_bound

_HEAD_BYTES = 4096


class RelaxJsonImporter(FileImporter):
    """Reads what ``tvm.ir.save_json`` writes."""

    source_format = "relax-json"
    suffixes = (".json",)

    def recognizes(self, path: Path) -> bool:
        head = _head(path).lstrip()
        return head.startswith(b"{") and b'"root_index"' in head

    def load(self, path: Path, shapes: Shapes) -> ImportedModel:
        """The model in a saved Relax module; shapes may only repeat its own.

        Raises
        ------
        ModelError, ShapeError
            When the file cannot be read, or is no model.
        """
        try:
            mod = tvm.ir.load_json(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as err:
            # json.JSONDecodeError and UnicodeDecodeError are ValueErrors.
            raise ModelError(
                f"'{path}' looks like a saved Relax module but cannot be read: {telling_line(err)}",
                value=str(path),
            ) from err
        return _describe(mod, path, self.source_format, shapes)


class TvmScriptImporter(FileImporter):
    """Reads TVMScript, which runs: only when the user said so."""

    source_format = "tvmscript"
    suffixes = (".py",)

    def __init__(self, allow_code: bool) -> None:
        self._allow_code = allow_code

    def recognizes(self, path: Path) -> bool:
        if path.suffix in self.suffixes:
            return True
        return b"ir_module" in _head(path) and b"tvm.script" in _head(path)

    def load(self, path: Path, shapes: Shapes) -> ImportedModel:
        """The model in a TVMScript file, which is run; shapes may only repeat its own.

        Raises
        ------
        ModelError, ShapeError
            When running it was not allowed or fails, or it is no model.
        """
        if not self._allow_code:
            raise ModelError(
                f"'{path}' is Python code (TVMScript), which would be run; allow it with "
                "--allow-code (allow_code=True) when you trust it",
                value=str(path),
            )
        try:
            mod = tvm.script.from_source(path.read_text(encoding="utf-8"))
        except Exception as err:  # the file is foreign code and may raise anything
            raise ModelError(
                f"'{path}' is no TVMScript module: {telling_line(err)}", value=str(path)
            ) from err
        return _describe(mod, path, self.source_format, shapes)


def _describe(mod: object, path: Path, source_format: str, shapes: Shapes) -> ImportedModel:
    if not isinstance(mod, tvm.IRModule):
        raise ModelError(
            f"'{path}' holds a {type(mod).__name__}, not an IRModule", value=type(mod).__name__
        )
    return import_bound(mod, shapes, name=path.stem, source_format=source_format)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
