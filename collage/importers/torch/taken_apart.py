"""Exported programs in fewer operators: what is taken apart by PyTorch, by us, and never."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.export.graph_signature import OutputKind, TensorArgument

from collage.importers.torch.exporting.layer_shapes import shapes_of_layers, whole_distances
from collage.importers.torch.exporting.weight_notes import notes_of_weights
from collage.importers.torch.operators import decompositions
from collage.importers.torch.operators.complex.converters import has_complex
from collage.importers.torch.operators.complex.functions import complex_functions, of_complex
from collage.importers.torch.operators.complex.products import complex_products
from collage.importers.torch.operators.elementary.bits import of_bits
from collage.importers.torch.operators.elementary.special import special_functions
from collage.importers.torch.operators.encoder_layers import layer_decompositions
from collage.importers.torch.operators.linear.experts import grouped_products
from collage.importers.torch.operators.linear.factors import factorizations
from collage.importers.torch.operators.linear.matrices import keep_matrices
from collage.importers.torch.operators.quantized import quantized_operators
from collage.importers.torch.operators.recurrent import keep_recurrent
from collage.importers.torch.operators.segments import segments
from collage.importers.torch.operators.sparse import as_if_dense, sparse_ones
from collage.importers.torch.operators.windows.fractional import fractional
from collage.importers.torch.operators.windows.pads import keep_pads
from collage.importers.torch.operators.windows.resize import keep_whole

_ROUNDS = 4
"""Taking operators apart may bring others to light; one round is all that most programs need."""

_NEVER_APART = frozenset(
    [
        torch.ops.aten.scaled_dot_product_attention.default,
        # Taken apart it would be a product of two axes between two reshapes.
        torch.ops.aten.linear.default,
        # It would be a walk over memory.
        torch.ops.aten.unfold.default,
    ]
)


def _one_piece(x: torch.Tensor, sizes: Any, dim: int = 0) -> Any:
    """TVM gives a tensor, and no list, for one piece that a tensor is cut into."""
    sizes = [sizes] * -(-x.shape[dim] // sizes) if isinstance(sizes, int) and sizes else sizes
    return [x.clone()] if isinstance(sizes, list | tuple) and len(sizes) == 1 else NotImplemented


def _within_norm(
    table: torch.Tensor, _places: torch.Tensor, most: float, power: float
) -> torch.Tensor:
    """An embedding's table with no row that is longer; which of them are looked up is no matter."""
    length = torch.linalg.vector_norm(table, power, 1, keepdim=True)
    return torch.where(length > most, table * (most / (length + 1e-7)), table)


def taken_apart(
    program: torch.export.ExportedProgram, known: frozenset[str]
) -> torch.export.ExportedProgram:
    """The program in operators that are known, as far as PyTorch can take the others apart.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As it was exported.
    known : frozenset of str
        Operators that have a converter.

    Returns
    -------
    torch.export.ExportedProgram
        What is still unknown in it, PyTorch cannot take apart either.
    """
    table = torch.export.default_decompositions()
    table.update(special_functions() | decompositions() | factorizations())
    table.update(of_bits() | grouped_products(program) | quantized_operators(program))
    table.update(layer_decompositions() | segments() | sparse_ones() | fractional())
    table[torch.ops.aten.cdist.default] = whole_distances
    table[torch.ops.aten.split_with_sizes.default] = _one_piece
    table[torch.ops.aten.split.Tensor] = _one_piece
    table[torch.ops.aten.embedding_renorm.default] = _within_norm
    for whole in _NEVER_APART:
        table.pop(whole, None)
    keep_whole(table)
    keep_pads(table)
    keep_matrices(table)
    keep_recurrent(table)
    if has_complex(program):
        for target, function in (complex_functions() | complex_products()).items():
            table[target] = of_complex(function, table.get(target))
    kinds = _kinds_of_outputs(program)
    for _ in range(_ROUNDS):
        with (
            warnings.catch_warnings(),
            as_if_dense(program),
            shapes_of_layers(),
            notes_of_weights(),
        ):
            # PyTorch 2.13 warns of itself as it copies a program.
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            program = program.run_decompositions(table)
        unknown = {
            node.target
            for node in program.graph.nodes
            if node.op == "call_function" and node.target.__name__ not in known
        }
        more = {
            target: decomposition_table[target] for target in unknown & set(decomposition_table)
        }
        if not more:
            break
        table = {**table, **more}
    _give_kinds(program, kinds)
    return program


def _results(program: torch.export.ExportedProgram) -> list[int]:
    """Where the module's own results stand, behind what it writes into."""
    specs = program.graph_signature.output_specs
    return [place for place, spec in enumerate(specs) if spec.kind == OutputKind.USER_OUTPUT]


def _kinds_of_outputs(program: torch.export.ExportedProgram) -> list[torch.dtype | None]:
    outputs = program.graph.output_node().args[0]
    found = [outputs[place] for place in _results(program)]
    values = [each.meta.get("val") if isinstance(each, torch.fx.Node) else None for each in found]
    return [value.dtype if isinstance(value, torch.Tensor) else None for value in values]


def _give_kinds(program: torch.export.ExportedProgram, kinds: list[torch.dtype | None]) -> None:
    """Results in the types that they had before.

    Under autocast PyTorch keeps operators whole that it takes apart as it runs them, and forgets
    to round what their parts are given: an einsum stays in float32.
    """
    end = program.graph.output_node()
    outputs, specs = list(end.args[0]), program.graph_signature.output_specs
    now = _kinds_of_outputs(program)
    for place, mine, kind in zip(_results(program), now, kinds, strict=True):
        if mine == kind or mine is None or kind is None:
            continue
        with program.graph.inserting_before(end):
            cast = program.graph.call_function(
                torch.ops.aten._to_copy.default, (outputs[place],), {"dtype": kind}
            )
        cast.meta["val"] = outputs[place].meta["val"].to(kind)
        outputs[place] = cast
        specs[place].arg = TensorArgument(name=cast.name)
    end.args = (tuple(outputs),)
