"""Complex numbers of exported programs, of which Relax has none: real tensors of one axis more.

The last axis holds the real and the imaginary part, as ``torch.view_as_real`` has them. So spectra,
and what rotates by complex factors, are imported where what comes in and goes out is real.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import ModelError
from collage.importers.torch.operators.arguments import Importer, dtype_of, shape_of
from collage.importers.torch.operators.errors import RefusedError
from collage.importers.torch.operators.fourier import FOURIER

Parts = tuple[relax.Expr, relax.Expr]


class _Importer(Importer, Protocol):
    """What converters of complex numbers ask of the importer besides."""

    env: dict[fx.Node, Any]

    parts: dict[relax.Expr, Parts]
    """Real and imaginary part of what was put together of them, or was taken apart before."""

    def real_converter(self, name: str) -> Callable[[fx.Node], Any] | None:
        """What converts an operator of real numbers."""


def is_complex(node: fx.Node) -> bool:
    """Whether a node takes or gives complex numbers, or a part of them."""
    return (
        any(map(_has_complex, (node, *node.all_input_nodes)))
        or any(isinstance(argument, complex) for argument in node.args)
        or _is_part(node)
    )


def _is_part(node: fx.Node) -> bool:
    """Whether it is what ``.real`` and ``.imag`` are exported as: one of the pairs' two values."""
    if node.target is not torch.ops.aten.select.int:
        return False
    pairs, axis, _ = node.args
    of_parts = isinstance(pairs, fx.Node) and pairs.target is torch.ops.aten.view_as_real.default
    return of_parts and axis % pairs.meta["val"].dim() == pairs.meta["val"].dim() - 1


def _has_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


def has_complex(program: torch.export.ExportedProgram) -> bool:
    """Whether a program computes with complex numbers anywhere."""
    return any(map(_has_complex, program.graph.nodes))


def split_complex(program: torch.export.ExportedProgram) -> None:
    """Give a program's own complex tensors one axis more, in place.

    Raises
    ------
    ModelError
        Where an input or an output is complex.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    for what, names in (
        ("input", program.graph_signature.user_inputs),
        ("output", program.graph_signature.user_outputs),
    ):
        for name in names:
            if isinstance(name, str) and name in nodes and _has_complex(nodes[name]):
                raise ModelError(
                    f"{what} '{name}' is complex; let the model take or give its parts, by "
                    "torch.view_as_complex or torch.view_as_real",
                    value=name,
                )
    for tensors in (program.state_dict, program.constants):
        for name, value in tensors.items():
            if isinstance(value, torch.Tensor) and value.is_complex():
                tensors[name] = torch.view_as_real(value.detach().resolve_conj()).clone()


def _parts(importer: _Importer, value: relax.Expr) -> Parts:
    """Real and imaginary part of a tensor of one axis more."""
    if value not in importer.parts:
        last = len(shape_of(value)) - 1
        slices = (
            importer.emit(op.strided_slice(value, [last], [which], [which + 1])) for which in (0, 1)
        )
        re, im = (importer.emit(op.squeeze(part, [last])) for part in slices)
        importer.parts[value] = re, im
    return importer.parts[value]


def _operand(importer: _Importer, node: fx.Node, place: int) -> tuple[relax.Expr, Any]:
    """Both parts of what is computed with, in the type of the result; no imaginary one where it is
    real."""
    argument, kind = node.args[place], _kind(node)
    value = importer.value(argument)
    if isinstance(value, int | float | complex):
        number = complex(value)
        im = relax.const(number.imag, kind) if isinstance(value, complex) else None
        return relax.const(number.real, kind), im
    if dtype_of(value) != kind:
        value = importer.emit(op.astype(value, kind))
    if isinstance(argument, fx.Node) and _has_complex(argument):
        return _parts(importer, value)
    return value, None


def _kind(node: fx.Node) -> str:
    """The element type of the parts of a complex result."""
    return str(node.meta["val"].dtype.to_real()).removeprefix("torch.")


def _joined(importer: _Importer, re: relax.Expr, im: relax.Expr) -> relax.Expr:
    shape = np.broadcast_shapes(tuple(shape_of(re)), tuple(shape_of(im)))
    wide = [
        x if shape_of(x) == list(shape) else importer.emit(op.broadcast_to(x, list(shape)))
        for x in (re, im)
    ]
    joined = importer.emit(op.stack(wide, axis=len(shape)))
    importer.parts[joined] = wide[0], wide[1]
    return joined


def _same(importer: _Importer, node: fx.Node) -> relax.Expr:
    return importer.value(node.args[0])


def _both(importer: _Importer, node: fx.Node) -> Any:
    """What moves values, or adds them up, done to each part."""
    convert = importer.real_converter(node.target.__name__)
    assert convert is not None
    operands = [one for one in node.all_input_nodes if _has_complex(one)]
    kept = {one: importer.env[one] for one in operands}
    split = {one: _parts(importer, kept[one]) for one in operands}
    found = []
    try:
        for which in (0, 1):
            importer.env.update({one: parts[which] for one, parts in split.items()})
            found.append(convert(node))
    finally:
        importer.env.update(kept)
    if isinstance(found[0], relax.Expr) and isinstance(found[0].ty, relax.TensorType):
        return _joined(importer, found[0], found[1])
    return [_joined(importer, re, im) for re, im in zip(*found, strict=True)]


def _selected(importer: _Importer, node: fx.Node) -> Any:
    if not _is_part(node):
        return _both(importer, node)
    return _parts(importer, importer.value(node.args[0]))[node.args[2]]


def _sum(sign: int) -> Callable[[_Importer, fx.Node], relax.Expr]:
    def convert(importer: _Importer, node: fx.Node) -> relax.Expr:
        emit, factor = importer.emit, sign * float(node.kwargs.get("alpha", 1))
        one, two = (_operand(importer, node, place) for place in (0, 1))

        def total(a: relax.Expr | None, b: relax.Expr | None) -> relax.Expr:
            if b is None or (a is None and factor == 1):
                return a if b is None else b
            scaled = b if factor == 1 else emit(op.multiply(b, relax.const(factor, _kind(node))))
            return scaled if a is None else emit(op.add(a, scaled))

        return _joined(importer, *(total(a, b) for a, b in zip(one, two, strict=True)))

    return convert


def _product(importer: _Importer, node: fx.Node) -> relax.Expr:
    one, two = (_operand(importer, node, place) for place in (0, 1))
    return _joined(importer, *_multiplied(importer, one, two))


def _multiplied(
    importer: _Importer, one: tuple[relax.Expr, Any], two: tuple[relax.Expr, Any]
) -> Parts:
    emit = importer.emit
    if one[1] is None:
        one, two = two, one
    (a, b), (c, d) = one, two
    if d is None:
        return emit(op.multiply(a, c)), emit(op.multiply(b, c))
    re = op.subtract(emit(op.multiply(a, c)), emit(op.multiply(b, d)))
    im = op.add(emit(op.multiply(a, d)), emit(op.multiply(b, c)))
    return emit(re), emit(im)


def _quotient(importer: _Importer, node: fx.Node) -> relax.Expr:
    emit = importer.emit
    one, (c, d) = (_operand(importer, node, place) for place in (0, 1))
    if d is None:
        re, im = (emit(op.divide(part, c)) for part in one)
        return _joined(importer, re, im)
    re, im = _multiplied(importer, one, (c, emit(op.negative(d))))
    size = emit(op.add(emit(op.multiply(c, c)), emit(op.multiply(d, d))))
    return _joined(importer, emit(op.divide(re, size)), emit(op.divide(im, size)))


def _of_parts(
    function: Callable[[relax.Expr, relax.Expr], relax.Expr],
) -> Callable[[_Importer, fx.Node], relax.Expr]:
    def convert(importer: _Importer, node: fx.Node) -> relax.Expr:
        re, im = _parts(importer, importer.value(node.args[0]))
        return importer.emit(function(re, im))

    return convert


def _absolute(importer: _Importer, node: fx.Node) -> relax.Expr:
    emit = importer.emit
    re, im = _parts(importer, importer.value(node.args[0]))
    squares = [emit(op.multiply(x, x)) for x in (re, im)]
    return emit(op.sqrt(emit(op.add(*squares))))


def _conjugate(importer: _Importer, node: fx.Node) -> relax.Expr:
    re, im = _parts(importer, importer.value(node.args[0]))
    return _joined(importer, re, importer.emit(op.negative(im)))


def _exponential(importer: _Importer, node: fx.Node) -> relax.Expr:
    re, im = _parts(importer, importer.value(node.args[0]))
    return _turned(importer, importer.emit(op.exp(re)), im)


def _turned(importer: _Importer, size: relax.Expr, angle: relax.Expr) -> relax.Expr:
    emit = importer.emit
    re, im = (emit(op.multiply(size, emit(turn(angle)))) for turn in (op.cos, op.sin))
    return _joined(importer, re, im)


def _from_parts(importer: _Importer, node: fx.Node) -> relax.Expr:
    return _joined(importer, *(importer.value(arg) for arg in node.args[:2]))


def _polar(importer: _Importer, node: fx.Node) -> relax.Expr:
    return _turned(importer, *(importer.value(arg) for arg in node.args[:2]))


def _to_complex(importer: _Importer, node: fx.Node) -> relax.Expr:
    """A change of type: of complex numbers to others of as many digits, or from real ones."""
    wanted = node.meta["val"].dtype
    if not wanted.is_complex:
        raise RefusedError("the imaginary part is dropped; take .real")
    value = importer.value(node.args[0])
    kind = _kind(node)
    if dtype_of(value) != kind:
        value = importer.emit(op.astype(value, kind))
    if isinstance(node.args[0], fx.Node) and _has_complex(node.args[0]):
        return value
    zeros = relax.const(np.zeros(shape_of(value), kind), kind)
    return _joined(importer, value, zeros)


def _filled(importer: _Importer, node: fx.Node) -> relax.Expr:
    """A new tensor that has one value everywhere."""
    made, number = node.meta["val"], 0j
    by = {"full.default": 1, "full_like.default": 1, "scalar_tensor.default": 0}
    if node.target.__name__ in by:
        number = complex(node.args[by[node.target.__name__]])
    one = np.array([number.real, number.imag], _kind(node))
    value = np.broadcast_to(one, (*made.shape, 2))
    return relax.const(np.ascontiguousarray(value), _kind(node))


def _copied(importer: _Importer, node: fx.Node) -> relax.Expr:
    """What is copied, in the shape and the type of what it is copied to."""
    re, im = _operand(importer, node, 1)
    shape = list(node.meta["val"].shape)
    zero = relax.const(0, _kind(node)) if im is None else im
    wide = (importer.emit(op.broadcast_to(part, shape)) for part in (re, zero))
    return _joined(importer, *wide)


def _taken(importer: _Importer, node: fx.Node) -> Any:
    """One of several tensors, as a split has them."""
    return importer.env[node.args[0]][node.args[1]]


def _padded(importer: _Importer, node: fx.Node) -> Any:
    if len(node.args) > 2 and node.args[2]:
        raise RefusedError("a border of complex numbers other than zero")
    return _both(importer, node)


_MOVING = """
    view.default reshape.default _unsafe_view.default permute.default transpose.int
    unsqueeze.default squeeze.dim squeeze.dims slice.Tensor expand.default cat.default
    stack.default flip.default index.Tensor unbind.int index_select.default split_with_sizes.default
    split.Tensor roll.default repeat.default unfold.default neg.default sum.dim_IntList
    sum.default mean.dim cumsum.default gather.default tril.default triu.default diagonal.default
    slice_scatter.default select_scatter.default index_put.default scatter.src
    scatter_add.default index_add.default _neg_view.default
"""

COMPLEX: dict[str, Callable[[Any, fx.Node], Any]] = {
    **dict.fromkeys(_MOVING.split(), _both),
    **dict.fromkeys(
        ["view_as_real.default", "view_as_complex.default", "clone.default", "alias.default"], _same
    ),
    "_assert_tensor_metadata.default": _same,
    **dict.fromkeys(["detach.default", "resolve_conj.default", "lift_fresh_copy.default"], _same),
    **dict.fromkeys(["_conj.default", "conj_physical.default"], _conjugate),
    **dict.fromkeys(["_to_copy.default", "convert_element_type.default"], _to_complex),
    **dict.fromkeys(["add.Tensor", "add.Scalar"], _sum(1)),
    **dict.fromkeys(["sub.Tensor", "sub.Scalar"], _sum(-1)),
    **dict.fromkeys(["mul.Tensor", "mul.Scalar"], _product),
    **dict.fromkeys(["div.Tensor", "div.Scalar"], _quotient),
    **dict.fromkeys(["full.default", "full_like.default", "scalar_tensor.default"], _filled),
    **dict.fromkeys(["empty.memory_format", "empty_like.default"], _filled),
    "constant_pad_nd.default": _padded,
    "copy.default": _copied,
    "getitem": _taken,
    "select.int": _selected,
    "abs.default": _absolute,
    "angle.default": _of_parts(lambda re, im: op.atan2(im, re)),
    "real.default": _of_parts(lambda re, _: re),
    "imag.default": _of_parts(lambda _, im: im),
    "exp.default": _exponential,
    "complex.default": _from_parts,
    "polar.default": _polar,
    **FOURIER,
}
"""By the name that the translator has for an operator, where it takes or gives complex numbers."""
