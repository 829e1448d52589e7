"""Models from files and from other frameworks' objects into Relax.

:func:`load_model` is the entry. Each format has an importer that recognizes its files by their
content: ONNX (``onnx``: shapes made concrete, shape computations folded, then TVM's importer with
its mistakes mended or refused), PyTorch exported programs (``torch``), saved Relax modules and
TVMScript (``relax_files``). What comes out has static shapes and is not yet normalized.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from collage.backends.contract.errors import ModelError
from collage.importers._base import (
    FileImporter,
    ImportedModel,
    Shapes,
    from_module,
    reject_shapes,
)
from collage.importers.onnx.model import OnnxImporter, import_onnx
from collage.importers.relax_files import RelaxJsonImporter, TvmScriptImporter
from collage.importers.torch.program import (
    TorchProgramImporter,
    import_exported_program,
    is_exported_program,
)

__all__ = ["ImportedModel", "load_model"]


def load_model(
    source: Any, *, shapes: Shapes | None = None, allow_code: bool = False
) -> ImportedModel:
    """A model as a Relax module, from a file or from an object of another framework.

    Parameters
    ----------
    source : str, Path, onnx.ModelProto, torch.export.ExportedProgram or tvm.IRModule
        A file's format is told by its content; the suffix only decides what is tried first.
    shapes : mapping of str to sequence of int, optional
        Concrete shapes for inputs with open dimensions.
    allow_code : bool
        Whether a TVMScript ``.py`` file may be run. It is code like any other Python file.

    Returns
    -------
    ImportedModel
        The module is not yet normalized.

    Raises
    ------
    ModelError
        A file that is no model, operators that cannot be imported (all of them are named), or
        code without ``allow_code``.
    ShapeError
        A missing, unknown or contradictory shape.

    Examples
    --------
    >>> import onnx.parser
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }'''
    ... )
    >>> model = load_model(net, shapes={"x": (4, 8)})
    >>> model.inputs
    (TensorInfo(name='x', shape=(4, 8), dtype='float32'),)
    """
    shapes = dict(shapes or {})
    if isinstance(source, str | Path):
        return _load_file(Path(source), shapes, allow_code)
    if isinstance(source, tvm.IRModule):
        return reject_shapes(shapes, from_module(source, name="module", source_format="module"))
    if is_exported_program(source):
        return import_exported_program(source, "program", shapes)
    if type(source).__name__ == "ModelProto" and hasattr(source, "graph"):
        return import_onnx(source, source.graph.name or "model", shapes)
    raise ModelError(
        f"cannot import an object of type '{type(source).__name__}'; give a path, an "
        "onnx.ModelProto, a torch.export.ExportedProgram or a tvm.IRModule",
        value=type(source).__name__,
    )


def _load_file(path: Path, shapes: Shapes, allow_code: bool) -> ImportedModel:
    if not path.is_file():
        what = "is a folder, not a model file" if path.is_dir() else "does not exist"
        raise ModelError(f"'{path}' {what}", value=str(path))
    importers: list[FileImporter] = [
        TorchProgramImporter(),
        RelaxJsonImporter(),
        TvmScriptImporter(allow_code),
        OnnxImporter(),
    ]
    importers.sort(key=lambda importer: path.suffix not in importer.suffixes)
    try:
        for importer in importers:
            if importer.recognizes(path):
                return importer.load(path, shapes)
    except OSError as err:
        raise ModelError(f"cannot read '{path}': {err.strerror or err}", value=str(path)) from err
    formats = ", ".join(sorted(importer.source_format for importer in importers))
    raise ModelError(f"'{path}' is no model of a known format ({formats})", value=str(path))
