"""Models from files and from other frameworks' objects into Relax.

:func:`load_model` is the entry. Each format has an importer that recognizes its files by their
content: ONNX (``onnx``: shapes made concrete, shape computations folded, then TVM's importer with
its mistakes mended or refused), PyTorch exported programs (``torch``), saved Relax modules and
TVMScript (``relax_files``). What comes out has static shapes and is not yet normalized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from collage.backends.contract.errors import InputError, ModelError
from collage.importers._base import FileImporter, ImportedModel, Shapes
from collage.importers.dynamic import import_bound
from collage.importers.foreign import described
from collage.importers.onnx import OnnxImporter, import_onnx, onnx_model_of
from collage.importers.relax_files import RelaxJsonImporter, TvmScriptImporter
from collage.importers.torch import (
    ExampleInputs,
    ExportedModule,
    TorchProgramImporter,
    export_module,
    import_exported_module,
    import_exported_program,
    is_exported_program,
    is_module,
)

__all__ = ["ExampleInputs", "ImportedModel", "load_model"]


def load_model(
    source: Any,
    *,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    allow_code: bool = False,
    example_inputs: ExampleInputs = None,
    check_sec: float | None = None,
) -> ImportedModel:
    """A model as a Relax module, from a file or from an object of another framework.

    Parameters
    ----------
    source : path, tvm.IRModule, onnx.ModelProto, torch.nn.Module or ExportedProgram
        A file's format is told by its content; the suffix only decides what is tried first. An ONNX
        model may be its bytes, a ``torch.onnx.ONNXProgram`` or an ``onnx_ir.Model``, too.
    shapes : mapping of str to sequence of int, optional
        Concrete shapes for inputs with open dimensions; a dimension's extent, by its name.
    allow_code : bool
        Whether a TVMScript ``.py`` file may be run. It is code like any other Python file.
    example_inputs : sequence or mapping, optional
        What a ``torch.nn.Module`` is called with, by position or by name; only that has them.
    check_sec : float, optional
        How long such a module may run to be held against what is traced of it.

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
    InputError
        Example inputs that are missing, that the module does not take, or for what is no module.

    Examples
    --------
    >>> import onnx.parser
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }'''
    ... )
    >>> model = load_model(net, shapes={"x": (4, 8)})
    >>> model.inputs
    (TensorInfo(shape=(4, 8), dtype='float32', name='x'),)
    """
    wanted: Shapes = {
        name: (shape,) if isinstance(shape, int) else shape
        for name, shape in (shapes or {}).items()
    }
    if is_module(source):
        return import_exported_module(
            export_module(source, example_inputs, check_sec=check_sec), wanted
        )
    if example_inputs is not None:
        raise InputError(
            f"example_inputs are for a torch.nn.Module, not for a {type(source).__name__}",
            value=type(source).__name__,
        )
    if isinstance(source, ExportedModule):
        return import_exported_module(source, wanted)
    if isinstance(source, str | Path):
        return _load_file(Path(source), wanted, allow_code)
    if isinstance(source, tvm.IRModule):
        return import_bound(source, wanted, name="module", source_format="module")
    if is_exported_program(source):
        return import_exported_program(source, "program", wanted)
    proto = onnx_model_of(source)
    if proto is not None:
        return import_onnx(proto, proto.graph.name or "model", wanted)
    raise ModelError(
        f"cannot import an object of type '{type(source).__name__}'; give a path, an "
        "onnx.ModelProto or its bytes, a torch.nn.Module, a torch.export.ExportedProgram or a "
        "tvm.IRModule",
        value=type(source).__name__,
    )


def _load_file(path: Path, shapes: Shapes, allow_code: bool) -> ImportedModel:
    if not path.is_file():
        what = "is a folder, not a model file" if path.is_dir() else "does not exist"
        known = described(path) if path.is_dir() else ""
        raise ModelError(f"'{path}' {what}" + f" ({known})" * bool(known), value=str(path))
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
        known = described(path)
    except OSError as err:
        raise ModelError(f"cannot read '{path}': {err.strerror or err}", value=str(path)) from err
    if known:
        raise ModelError(f"'{path}' is in a format that is not read: {known}", value=str(path))
    formats = ", ".join(sorted(importer.source_format for importer in importers))
    raise ModelError(
        f"'{path}' is no model of a known format ({formats}), or it is cut off", value=str(path)
    )
