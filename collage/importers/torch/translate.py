"""TVM's translation of exported programs, without what it loses, lacks or gets wrong.

TVM's translator asks for float32 results of every product and convolution, so that a program in
half precision does not even type-check; it takes attention apart into a dozen operators of which no
backend could make its attention kernel again; it knows little of how PyTorch promotes element
types, and stops at the first operator that it cannot convert. Here every node's result is held
against the shape and the element type that PyTorch says it has, and all nodes that fail are named
at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import tvm
from torch import fx
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from collage.backends.contract.errors import ModelError, last_line
from collage.importers.naming import NamingBuilder
from collage.importers.torch.absorbed import with_absorbed_rows
from collage.importers.torch.choosing import (
    CHOOSING,
    EVERY,
    NONE,
    choosers_of,
    give_counts,
)
from collage.importers.torch.cut import CutRows
from collage.importers.torch.empty import without_elements
from collage.importers.torch.meant import UnknownError
from collage.importers.torch.nodes import (
    asks_for_an_axis,
    computed_in,
    depends_on_data,
    is_natural,
    label,
    type_name,
)
from collage.importers.torch.operators import CONVERTERS, RefusedError, reason_of
from collage.importers.torch.operators.arguments import dtype_of, shape_of
from collage.importers.torch.operators.complex.converters import (
    COMPLEX,
    is_complex,
    split_complex,
)
from collage.importers.torch.operators.errors import draws, drops, shape_depends
from collage.importers.torch.operators.linear.products import PRODUCTS
from collage.importers.torch.operators.quantized import QUANTIZED
from collage.importers.torch.operators.recurrent import RECURRENT
from collage.importers.torch.sizes import require_same_numbers
from collage.importers.torch.static_rows import with_static_rows
from collage.importers.torch.structure import keep_tensors
from collage.rewrite import with_attrs

_NODES_NAMED = 3


def translate(
    program: torch.export.ExportedProgram,
    more: int | None = None,
    roomier: torch.export.ExportedProgram | None = None,
) -> tuple[tvm.IRModule, list[CutRows]]:
    """A Relax module of an exported program, weights bound as constants.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        All of its inputs' extents are numbers.
    more : int, optional
        Which of the operators that choose rows is given room for one more than there can be.
    roomier : torch.export.ExportedProgram, optional
        The program with other room for rows everywhere, where it was traced with room for all.

    Returns
    -------
    tuple of (tvm.IRModule, list of CutRows)
        How many rows are chosen comes behind the program's own results; by what, in their order.

    Raises
    ------
    ModelError
        Names every operator that cannot be imported, with the reason.
    """
    importer = _Importer()
    known = frozenset([*importer.create_convert_map(), *COMPLEX])
    whole, program = program, with_static_rows(program, more, known)
    # What was traced with room has its numbers in it, and was held against others there.
    if roomier is None and choosers_of(program):
        require_same_numbers(program, with_static_rows(whole, NONE, known))
    try:
        absorbed = with_absorbed_rows(
            program, lambda: with_static_rows(roomier or whole, EVERY, known)
        )
    except UnknownError as err:
        if roomier is not None:
            raise err.refusal() from err
        absorbed = None
    program, choosers = absorbed or (program, [])
    keep_tensors(program)
    if absorbed is None:
        choosers = [CutRows(label) for label in give_counts(program, more)]
    split_complex(program)
    importer.given = frozenset(program.graph_signature.user_inputs)
    try:
        mod = importer.from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
    except Exception:
        # With nodes lost, those are the reason.
        importer.require_complete()
        raise
    importer.require_complete()
    return mod, choosers


class _Importer(ExportedProgramImporter):
    """TVM's importer with a builder that keeps element types, and with our converters."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[str, list[str]] = defaultdict(list)
        self._lost: set[relax.Expr] = set()
        self._natural: set[relax.Expr] = set()
        self.given: frozenset[Any] = frozenset()
        self._dependent: dict[fx.Node, bool] = {}
        self.parts: dict[relax.Expr, tuple[relax.Expr, relax.Expr]] = {}

    @property
    def block_builder(self) -> relax.BlockBuilder:
        return self._builder

    @block_builder.setter
    def block_builder(self, builder: relax.BlockBuilder | None) -> None:
        self._builder = None if builder is None else _TypeKeepingBuilder()

    @staticmethod
    def _convert_pytorch_tensor_to_tvm(tensor_value: torch.Tensor) -> Any:
        """TVM's goes by way of numpy where elements lie in another order, which has no bfloat16."""
        dense = tensor_value if tensor_value.layout == torch.strided else tensor_value.to_dense()
        plain = dense.resolve_conj().resolve_neg().contiguous()
        return ExportedProgramImporter._convert_pytorch_tensor_to_tvm(plain)

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a variable."""
        return self.block_builder.emit(expr)

    def value(self, argument: Any) -> Any:
        """What stands for a node, or for the nodes in a list."""
        return self._retrieve_args(argument)

    def depends_on_input(self, node: fx.Node) -> bool:
        """Whether a node's value follows from what the network is given, not from weights alone."""
        waiting = [node]
        while waiting:
            asked = waiting[-1]
            sources = asked.all_input_nodes
            unknown = [source for source in sources if source not in self._dependent]
            if unknown:
                waiting += unknown
                continue
            self._dependent[waiting.pop()] = asked.name in self.given or any(
                self._dependent[source] for source in sources
            )
        return self._dependent[node]

    def is_never_negative(self, expr: relax.Expr) -> bool:
        """Whether an integer tensor is known to hold no negative values."""
        return expr in self._natural

    def real_converter(self, name: str) -> Callable[[fx.Node], Any] | None:
        """What converts an operator of real numbers."""
        found: Callable[[fx.Node], Any] | None = self.convert_map.get(name)
        return found

    def require_complete(self) -> None:
        """Name what could not be converted.

        Raises
        ------
        ModelError
            With all of it.
        """
        if self._failures:
            raise ModelError(
                "these operators cannot be imported: "
                + "; ".join(f"{what} ({_named(self._failures[what])})" for what in self._failures),
                value=sorted(self._failures),
            )

    def _check_unsupported_func_type(self, nodes: list[fx.Node]) -> None:
        """Unknown operators are found and named with all others that fail."""

    def create_convert_map(self) -> dict[str, Callable[[fx.Node], Any]]:
        known = super().create_convert_map()
        ours = CONVERTERS | PRODUCTS | QUANTIZED | RECURRENT | CHOOSING
        known |= {name: _bound(self, ours[name], known.get(name)) for name in ours}
        return _Checked(self, known)

    def converted(self, node: fx.Node, convert: Callable[[fx.Node], Any] | None) -> Any:
        """What a converter makes of a node, held against what PyTorch says of its result."""
        name = node.target.__name__
        if isinstance(self._builder, NamingBuilder):
            self._builder.name = label(node)
        if any(self._is_lost(argument) for argument in node.all_input_nodes):
            return self._placeholder(node)
        try:
            if is_complex(node):
                if name not in COMPLEX:
                    raise RefusedError("complex numbers")
                return self._checked(node, COMPLEX[name](self, node))
            if depends_on_data(node):
                raise RefusedError(shape_depends(node))
            known = without_elements(self, node)
            if known is not None:
                return known
            if convert is None or drops(node) or draws(node):
                raise RefusedError(reason_of(node))
            return self._checked(node, self._with_promoted(node, convert))
        except Exception as err:  # noqa: BLE001 - converters raise anything; each is reported
            self._failures[f"{name.removesuffix('.default')}: {last_line(err)}"].append(node.name)
            return self._placeholder(node)

    def _is_lost(self, node: fx.Node) -> bool:
        found = self.env.get(node)
        return isinstance(found, relax.Var) and found in self._lost

    def _placeholder(self, node: fx.Node) -> Any:
        """Stands for the result of a node that failed, so that the others can still be tried."""
        wanted = node.meta.get("val")
        if isinstance(wanted, list | tuple):
            return [self._placeholder_of(each) for each in wanted]
        return self._placeholder_of(wanted)

    def _placeholder_of(self, wanted: Any) -> relax.Var:
        shape = list(wanted.shape) if isinstance(wanted, torch.Tensor) else []
        lost = relax.Var("lost", relax.TensorType(shape, "float32"))
        self._lost.add(lost)
        return lost

    def _with_promoted(self, node: fx.Node, convert: Callable[[fx.Node], Any]) -> Any:
        """Convert a node with its operands in the type that PyTorch computes it in.

        Tensors of rank 0 have an axis in PyTorch where one is asked for: they are given one.
        """
        kept: dict[fx.Node, Any] = {}
        single = asks_for_an_axis(node)
        for argument in node.all_input_nodes:
            value = self.env[argument]
            wanted = computed_in(node, argument, value)
            if wanted:
                kept[argument] = value
                self.env[argument] = self.emit(relax.op.astype(value, wanted))
            if single and isinstance(value, relax.Expr) and not shape_of(value):
                kept.setdefault(argument, value)
                self.env[argument] = self.emit(relax.op.reshape(self.env[argument], [1]))
        try:
            found = convert(node)
        finally:
            self.env.update(kept)
        return self._without_axes(node, found) if single else found

    def _without_axes(self, node: fx.Node, found: Any) -> Any:
        """Results in the shapes that PyTorch has for them."""
        wanted = node.meta["val"]
        several = isinstance(wanted, list | tuple)
        pairs = zip(found, wanted, strict=False) if several else [(found, wanted)]
        shaped = [
            one
            if not isinstance(one, relax.Expr) or shape_of(one) == list(like.shape)
            else self.emit(relax.op.reshape(one, list(like.shape)))
            for one, like in pairs
        ]
        return shaped if several else shaped[0]

    def _checked(self, node: fx.Node, found: Any) -> Any:
        wanted = node.meta.get("val")
        if not isinstance(wanted, torch.Tensor) or not isinstance(found, relax.Expr):
            return found
        if not isinstance(found.ty, relax.TensorType) or found in self._lost:
            return found
        dtype, shape = type_name(wanted.dtype), list(wanted.shape)
        if wanted.is_complex():
            dtype, shape = type_name(wanted.dtype.to_real()), [*shape, 2]
        if dtype_of(found) != dtype:
            raise RefusedError(f"gives {dtype_of(found)} where PyTorch has {dtype}")
        if shape_of(found) != shape:
            raise RefusedError(f"gives {shape_of(found)} where PyTorch has {shape}")
        if is_natural(node, self._natural, self.env):
            self._natural.add(found)
        return found


class _Checked(dict[str, Callable[[fx.Node], Any]]):
    """Converters by name; every name has one, and what it gives is checked."""

    def __init__(self, importer: _Importer, known: dict[str, Callable[[fx.Node], Any]]) -> None:
        super().__init__(known)
        self._importer = importer

    def __getitem__(self, name: str) -> Callable[[fx.Node], Any]:
        convert = self.get(name)
        return lambda node: self._importer.converted(node, convert)


def _bound(
    importer: _Importer, convert: Callable[..., Any], own: Callable[[fx.Node], Any] | None
) -> Callable[[fx.Node], Any]:
    """A converter of ours, and the translator's own where ours gives None."""

    def converted(node: fx.Node) -> Any:
        found = convert(importer, node)
        return own(node) if found is None and own else found

    return converted


def _named(nodes: list[str]) -> str:
    more = len(nodes) - _NODES_NAMED
    return ", ".join(nodes[:_NODES_NAMED]) + (f" and {more} more" if more > 0 else "")


class _TypeKeepingBuilder(NamingBuilder):
    """Products have results of their operands' type, as in PyTorch; TVM's are of float32."""

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        return super().emit(_keep_type(expr), name_hint)


def _keep_type(expr: relax.Expr) -> relax.Expr:
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return expr
    args = [_keep_type(arg) for arg in expr.args]
    dtype = dtype_of(args[0]) if args else ""
    stands_for = expr.op.name == "relax.dequantize"
    wide = str(getattr(expr.attrs, "out_dtype", "")) == "float32" and not stands_for
    if dtype != "float32" and wide:
        return with_attrs(expr, *args, out_dtype=dtype)
    if all(new.same_as(old) for new, old in zip(args, expr.args, strict=True)):
        return expr
    return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
