"""PyTorch exported programs, from memory or from ``.pt2`` archives; only where torch is there."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

from collage.backends.errors import ModelError
from collage.importers._base import ImportedModel, Shapes, from_module, reject_shapes


class TorchProgramImporter:
    """Reads ``torch.export.save`` archives."""

    source_format = "pt2"
    suffixes = (".pt2",)

    def recognizes(self, path: Path) -> bool:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        return any(
            name.endswith(("archive_format", "serialized_exported_program.json")) for name in names
        )

    def load(self, path: Path, shapes: Shapes) -> ImportedModel:
        if importlib.util.find_spec("torch") is None:
            raise ModelError(
                f"'{path}' is a PyTorch exported program, and torch is not installed; "
                "mend it with: pip install 'collage[torch]'",
                value=str(path),
            )
        import torch

        try:
            program = torch.export.load(str(path))
        except Exception as err:
            raise ModelError(f"'{path}' cannot be read by torch: {err}", value=str(path)) from err
        return import_exported_program(program, path.stem, shapes)


def is_exported_program(source: object) -> bool:
    """Whether this is a ``torch.export.ExportedProgram``; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.export.ExportedProgram)


def import_exported_program(program: Any, name: str, shapes: Shapes) -> ImportedModel:
    """Import an exported program, whose shapes are fixed unless it was exported with open ones."""
    from tvm.relax.frontend.torch import from_exported_program

    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    return reject_shapes(shapes, from_module(mod, name=name, source_format="pt2"))
