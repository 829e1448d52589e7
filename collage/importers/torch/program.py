"""PyTorch exported programs, from memory or from ``.pt2`` archives; only where torch is there."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from collage.backends.contract.errors import ModelError, telling_line
from collage.backends.contract.requirements import install_extra
from collage.importers._base import (
    ChosenRows,
    FileImporter,
    ImportedModel,
    Shapes,
    from_module,
    reject_shapes,
)
from collage.importers.torch.archive import is_archive, require_safe
from collage.importers.torch.exporting.module import ExportedModule
from collage.state import with_names
from collage.structure import Signature


class TorchProgramImporter(FileImporter):
    """Reads ``torch.export.save`` archives.

    Examples
    --------
    >>> import torch
    >>> program = torch.export.export(torch.nn.ReLU(), (torch.zeros(4, 8),))
    >>> torch.export.save(program, "net.pt2")
    >>> TorchProgramImporter().load(Path("net.pt2"), {}).name
    'net'
    """

    source_format = "pt2"
    suffixes = (".pt2",)

    def recognizes(self, path: Path) -> bool:
        return is_archive(path)

    def load(self, path: Path, shapes: Shapes) -> ImportedModel:
        """The model in a PyTorch exported program; shapes may only repeat its own.

        Raises
        ------
        ModelError, ShapeError
            When torch is missing or cannot read it, or it has what cannot be imported.
        """
        if importlib.util.find_spec("torch") is None:
            raise ModelError(
                f"'{path}' is a PyTorch exported program, and torch is not installed; "
                f"mend it with: {install_extra('torch')}",
                value=str(path),
            )
        import torch

        require_safe(path)
        try:
            with path.open("rb") as file:
                program = torch.export.load(file)
        except Exception as err:  # torch raises anything, from KeyError to its own errors
            raise ModelError(
                f"'{path}' cannot be read by torch: {telling_line(err)}", value=str(path)
            ) from err
        return import_exported_program(program, path.stem, shapes)


def is_exported_program(source: object) -> bool:
    """Whether this is a ``torch.export.ExportedProgram``; torch is not imported to find out.

    Examples
    --------
    >>> import torch
    >>> program = torch.export.export(torch.nn.ReLU(), (torch.zeros(4, 8),))
    >>> is_exported_program(program), is_exported_program(torch.nn.ReLU())
    (True, False)
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.export.ExportedProgram)


def import_exported_program(
    program: Any, name: str, shapes: Shapes, roomier: Any = None
) -> ImportedModel:
    """The model of an exported program for one set of shapes.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Exported in inference mode.
    name : str
        The model's.
    shapes : mapping of str to sequence of int
        Of what has open dimensions; others may only repeat the program's own.
    roomier : torch.export.ExportedProgram, optional
        The same with other room for the rows that data choose, where it has room for all.

    Returns
    -------
    ImportedModel
        Weights bound as constants.

    Raises
    ------
    ModelError
        For operators that cannot be imported, and for a program exported in training mode.
    ShapeError
        For shapes that are missing or that it does not take.

    Examples
    --------
    >>> import torch
    >>> program = torch.export.export(torch.nn.ReLU(), (torch.zeros(4, 8),))
    >>> [tensor.shape for tensor in import_exported_program(program, "net", {}).outputs]
    [(4, 8)]
    """
    from collage.importers.torch.courses.model import has_control_flow, import_course, straightened
    from collage.importers.torch.cut import CutRows
    from collage.importers.torch.dynamic import with_shapes
    from collage.importers.torch.eight_bits import with_wide_weights
    from collage.importers.torch.examples import examples_of
    from collage.importers.torch.exporting.derivatives import require_no_derivatives
    from collage.importers.torch.known_masks import with_known_masks
    from collage.importers.torch.objects import require_no_objects
    from collage.importers.torch.operators.errors import SPARSE, SPARSE_CONSTANT
    from collage.importers.torch.operators.sparse import holds_sparse
    from collage.importers.torch.state import with_state
    from collage.importers.torch.structure import signature_of
    from collage.importers.torch.translate import translate
    from collage.importers.torch.uncounted import with_all_rows
    from collage.importers.torch.written import with_written
    from collage.importers.torch.written_pieces import with_pieces_alone

    require_no_derivatives(program)
    require_no_objects(program)
    traced = program
    program, shapes = with_shapes(program, shapes)
    program = with_pieces_alone(with_known_masks(with_wide_weights(program)))
    signature: Signature | None = None

    def imported(more: int | None = None) -> tuple[ImportedModel, list[CutRows]]:
        mod, choosers = translate(program, more, roomier)
        _require_inference(mod, name)
        assert signature is not None, "it is asked for first"
        names = [*signature.output_names(), *(f"rows_{i}" for i in range(len(choosers)))]
        return from_module(mod, name=name, source_format="pt2", output_names=names), choosers

    try:
        program = with_all_rows(program)
        program, written = with_written(program)
        program, state = with_state(program)
        if roomier is not None:
            roomier, _ = with_state(with_written(roomier)[0])
        if has_control_flow(program):
            straight = straightened(program, state, written)
            program, signature = straight.program, straight.signature
            if not straight.is_straight:
                return reject_shapes(shapes, import_course(straight, name, translate))
        signature = signature or signature_of(program, state, written)
        model, choosers = imported()
        first = len(model.outputs) - len(choosers)
        chosen = [
            ChosenRows(
                cut.label,
                first + place,
                None if cut.outputs else imported(place)[0],
                cut.outputs,
            )
            for place, cut in enumerate(choosers)
        ]
    except ModelError:
        raise
    except Exception as err:  # the translator asserts, and raises errors of several kinds
        reason = SPARSE if holds_sparse(program) else telling_line(err)
        reason = SPARSE_CONSTANT if "SparseTensorImpl" in str(err) else reason
        raise ModelError(f"the program cannot be imported: {reason}", value=name) from err
    model = replace(
        model,
        inputs=with_names(model.inputs, state),
        signature=signature,
        chosen=tuple(chosen),
        examples=examples_of(traced, model.inputs),
    )
    return reject_shapes(shapes, model)


def import_exported_module(exported: ExportedModule, shapes: Shapes) -> ImportedModel:
    """The model in a module's program, called as the module's ``forward`` is.

    Parameters
    ----------
    exported : ExportedModule
        Exported in evaluation mode.
    shapes : mapping of str to sequence of int
        As :func:`import_exported_program` takes them.

    Returns
    -------
    ImportedModel
        With the signature of ``forward``.

    Raises
    ------
    ModelError, ShapeError
        As :func:`import_exported_program` does.

    Examples
    --------
    >>> import torch
    >>> from collage.importers.torch import export_module
    >>> exported = export_module(torch.nn.Linear(8, 2), torch.zeros(4, 8))
    >>> [tensor.name for tensor in import_exported_module(exported, {}).inputs]
    ['input']
    """
    from collage.importers.torch.structure import as_forward_takes, with_fixed

    model = import_exported_program(exported.program, exported.name, shapes, exported.roomier)
    if model.course is not None:
        assert model.course.signature is not None, "programs have one"
        signature = as_forward_takes(model.course.signature, exported.forward)
        signature = with_fixed(signature, exported.fixed)
        return replace(model, course=replace(model.course, signature=signature))
    assert model.signature is not None, "programs have one"
    signature = as_forward_takes(model.signature, exported.forward)
    return replace(model, signature=with_fixed(signature, exported.fixed))


def _require_inference(mod: tvm.IRModule, name: str) -> None:
    """Refuse batch norms that would normalize by the batch they are given."""
    from collage.importers.torch.operators.errors import NORMS_BY_BATCH

    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
                continue
            if value.op.name == "relax.nn.batch_norm" and bool(value.attrs.training):
                raise ModelError(f"'{name}' {NORMS_BY_BATCH}", value=name)
