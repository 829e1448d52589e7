"""Complex numbers of exported programs, of which Relax has none: real tensors of one axis more.

The last axis holds the real and the imaginary part, as ``torch.view_as_real`` has them. So spectra,
and what rotates by complex factors, are imported where what comes in and goes out is real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import ModelError
from collage.importers.spectral import LONGEST, transform_matrix
from collage.importers.torch.arguments import Importer, arguments, dtype_of, shape_of

Parts = tuple[relax.Expr, relax.Expr]


class ComplexImporter(Importer, Protocol):
    """What converters of complex numbers ask of the importer besides."""

    env: dict[fx.Node, Any]

    def real_converter(self, name: str) -> Callable[[fx.Node], Any] | None:
        """What converts an operator of real numbers."""


def is_complex(node: fx.Node) -> bool:
    """Whether a node takes or gives complex numbers."""
    return any(map(_has_complex, (node, *node.all_input_nodes))) or any(
        isinstance(argument, complex) for argument in node.args
    )


def _has_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


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


def _parts(importer: Importer, value: Any, node: Any) -> Parts:
    """Real and imaginary part of an operand: of a tensor of one axis more, a real one, a number."""
    if isinstance(value, int | float | complex):
        number = complex(value)
        return relax.const(number.real, "float32"), relax.const(number.imag, "float32")
    if not (isinstance(node, fx.Node) and _has_complex(node)):
        return value, relax.const(np.zeros((), dtype_of(value)), dtype_of(value))
    last = len(shape_of(value)) - 1
    parts = (
        importer.emit(op.strided_slice(value, [last], [which], [which + 1])) for which in (0, 1)
    )
    re, im = (importer.emit(op.squeeze(part, [last])) for part in parts)
    return re, im


def _joined(importer: Importer, re: relax.Expr, im: relax.Expr) -> relax.Expr:
    shape = np.broadcast_shapes(tuple(shape_of(re)), tuple(shape_of(im)))
    wide = [
        x if shape_of(x) == list(shape) else importer.emit(op.broadcast_to(x, list(shape)))
        for x in (re, im)
    ]
    return importer.emit(op.stack(wide, axis=len(shape)))


def _same(importer: Importer, node: fx.Node) -> relax.Expr:
    return importer.value(node.args[0])


def _both(importer: ComplexImporter, node: fx.Node) -> Any:
    """What moves values, or adds them up, done to each part."""
    convert = importer.real_converter(node.target.__name__)
    assert convert is not None
    operands = [one for one in node.all_input_nodes if _has_complex(one)]
    kept = {one: importer.env[one] for one in operands}
    split = {one: _parts(importer, kept[one], one) for one in operands}
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


def _pair(importer: Importer, node: fx.Node) -> tuple[Parts, Parts]:
    one, two = (_parts(importer, importer.value(arg), arg) for arg in node.args[:2])
    return one, two


def _sum(sign: int) -> Callable[[Importer, fx.Node], relax.Expr]:
    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        emit = importer.emit
        one, two = _pair(importer, node)
        factor = sign * float(node.kwargs.get("alpha", 1))
        scaled = [emit(op.multiply(x, relax.const(factor, "float32"))) for x in two]
        re, im = (emit(op.add(a, b)) for a, b in zip(one, scaled, strict=True))
        return _joined(importer, re, im)

    return convert


def _product(importer: Importer, node: fx.Node) -> relax.Expr:
    one, two = _pair(importer, node)
    return _joined(importer, *_multiplied(importer, one, two))


def _multiplied(importer: Importer, one: Parts, two: Parts) -> Parts:
    emit = importer.emit
    (a, b), (c, d) = one, two
    re = op.subtract(emit(op.multiply(a, c)), emit(op.multiply(b, d)))
    im = op.add(emit(op.multiply(a, d)), emit(op.multiply(b, c)))
    return emit(re), emit(im)


def _quotient(importer: Importer, node: fx.Node) -> relax.Expr:
    emit = importer.emit
    one, (c, d) = _pair(importer, node)
    re, im = _multiplied(importer, one, (c, emit(op.negative(d))))
    size = emit(op.add(emit(op.multiply(c, c)), emit(op.multiply(d, d))))
    return _joined(importer, emit(op.divide(re, size)), emit(op.divide(im, size)))


def _of_parts(
    function: Callable[[relax.Expr, relax.Expr], relax.Expr],
) -> Callable[[Importer, fx.Node], relax.Expr]:
    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        re, im = _parts(importer, importer.value(node.args[0]), node.args[0])
        return importer.emit(function(re, im))

    return convert


def _absolute(importer: Importer, node: fx.Node) -> relax.Expr:
    emit = importer.emit
    re, im = _parts(importer, importer.value(node.args[0]), node.args[0])
    squares = [emit(op.multiply(x, x)) for x in (re, im)]
    return emit(op.sqrt(emit(op.add(*squares))))


def _conjugate(importer: Importer, node: fx.Node) -> relax.Expr:
    re, im = _parts(importer, importer.value(node.args[0]), node.args[0])
    return _joined(importer, re, importer.emit(op.negative(im)))


def _exponential(importer: Importer, node: fx.Node) -> relax.Expr:
    re, im = _parts(importer, importer.value(node.args[0]), node.args[0])
    return _turned(importer, importer.emit(op.exp(re)), im)


def _turned(importer: Importer, size: relax.Expr, angle: relax.Expr) -> relax.Expr:
    emit = importer.emit
    re, im = (emit(op.multiply(size, emit(turn(angle)))) for turn in (op.cos, op.sin))
    return _joined(importer, re, im)


def _from_parts(importer: Importer, node: fx.Node) -> relax.Expr:
    return _joined(importer, *(importer.value(arg) for arg in node.args[:2]))


def _polar(importer: Importer, node: fx.Node) -> relax.Expr:
    return _turned(importer, *(importer.value(arg) for arg in node.args[:2]))


def _to_complex(importer: Importer, node: fx.Node) -> relax.Expr:
    """A change of type: of complex numbers to others of as many digits, or from real ones."""
    wanted = node.meta["val"].dtype
    if not wanted.is_complex:
        raise ComplexRefusedError("the imaginary part is dropped; take .real")
    value = importer.value(node.args[0])
    kind = str(wanted.to_real()).removeprefix("torch.")
    if dtype_of(value) != kind:
        value = importer.emit(op.astype(value, kind))
    if isinstance(node.args[0], fx.Node) and _has_complex(node.args[0]):
        return value
    zeros = relax.const(np.zeros(shape_of(value), kind), kind)
    return _joined(importer, value, zeros)


class ComplexRefusedError(Exception):
    """A node with complex numbers that cannot be imported; the message says why."""


def _transform(
    importer: Importer, x: relax.Expr, axis: int, matrix: np.ndarray, parts: int
) -> relax.Expr:
    """A matrix of :func:`transform_matrix` applied along an axis.

    Parameters
    ----------
    importer : Importer
        Binds expressions.
    x : relax.Expr
        Real with ``parts`` 1, else with a last axis of both parts.
    axis : int
        Of the values, counted without that of the parts.
    matrix : ndarray
        (place in, part in, place out, part out).
    parts : int
        That come in.

    Returns
    -------
    relax.Expr
        With a last axis of as many parts as come out, or without where it is one.
    """
    emit, dtype, shape = importer.emit, dtype_of(x), shape_of(x)
    rank = len(shape) - (parts == 2)
    order = [a for a in range(rank) if a != axis] + [axis]
    whole = [*order, rank] if parts == 2 else order
    turned = x if whole == list(range(len(shape))) else emit(op.permute_dims(x, whole))
    lead = [shape[a] for a in order[:-1]]
    places, _, bins, out = matrix.shape
    rows = matrix[:, :parts].reshape(places * parts, bins * out)
    flat = emit(op.reshape(turned, [*lead, places * parts]))
    product = emit(op.matmul(flat, relax.const(rows.astype(dtype), dtype)))
    result = emit(op.reshape(product, [*lead, bins, *([2] if out == 2 else [])]))
    back = [order.index(a) for a in range(rank)] + ([rank] if out == 2 else [])
    return result if back == list(range(len(back))) else emit(op.permute_dims(result, back))


def _scaled(length: int, bins: int, how: int, *, inverse: bool, real_back: bool) -> np.ndarray:
    """A transform's matrix, divided by nothing, by the root of the length, or by the length."""
    if length > LONGEST:
        raise ComplexRefusedError(
            f"a transform of length {length}; up to {LONGEST} are computed as a product"
        )
    matrix = transform_matrix(length, bins, inverse=inverse, real_back=real_back)
    share = {0: 1.0, 1: length**-0.5, 2: 1.0 / length}[how]
    whole: np.ndarray = matrix * (length * share if inverse else share)
    return whole


def _axes(dims: Sequence[int], rank: int) -> list[int]:
    return [int(axis) % rank for axis in dims]


def _from_real(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, how, onesided = arguments(importer, node, "self", "dim", "normalization", "onesided")
    shape = shape_of(x)
    *others, last = _axes(dims, len(shape))
    length = shape[last]
    bins = length // 2 + 1 if onesided else length
    x = _transform(
        *(importer, x, last, _scaled(length, bins, how, inverse=False, real_back=False), 1)
    )
    return _all(importer, x, others, how, inverse=False)


def _to_real(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, how, length = arguments(
        importer, node, "self", "dim", "normalization", "last_dim_size"
    )
    *others, last = _axes(dims, len(shape_of(x)) - 1)
    x = _all(importer, x, others, how, inverse=True)
    bins = shape_of(x)[last]
    return _transform(
        *(importer, x, last, _scaled(length, bins, how, inverse=True, real_back=True), 2)
    )


def _all_complex(importer: Importer, node: fx.Node) -> relax.Expr:
    x, dims, how, forward = arguments(importer, node, "self", "dim", "normalization", "forward")
    return _all(importer, x, _axes(dims, len(shape_of(x)) - 1), how, inverse=not forward)


def _all(
    importer: Importer, x: relax.Expr, axes: Sequence[int], how: int, *, inverse: bool
) -> relax.Expr:
    for axis in axes:
        length = shape_of(x)[axis]
        matrix = _scaled(length, length, how, inverse=inverse, real_back=False)
        x = _transform(importer, x, axis, matrix, 2)
    return x


_MOVING = """
    view.default reshape.default _unsafe_view.default permute.default transpose.int
    unsqueeze.default squeeze.dim squeeze.dims select.int slice.Tensor expand.default cat.default
    stack.default flip.default index.Tensor index_select.default split_with_sizes.default
    split.Tensor constant_pad_nd.default roll.default repeat.default unfold.default neg.default
    sum.dim_IntList mean.dim
"""

COMPLEX: dict[str, Callable[[Any, fx.Node], Any]] = {
    **dict.fromkeys(_MOVING.split(), _both),
    **dict.fromkeys(
        ["view_as_real.default", "view_as_complex.default", "clone.default", "alias.default"], _same
    ),
    **dict.fromkeys(["detach.default", "resolve_conj.default", "lift_fresh_copy.default"], _same),
    **dict.fromkeys(["_conj.default", "conj_physical.default"], _conjugate),
    **dict.fromkeys(["_to_copy.default", "convert_element_type.default"], _to_complex),
    "add.Tensor": _sum(1),
    "sub.Tensor": _sum(-1),
    "mul.Tensor": _product,
    "div.Tensor": _quotient,
    "abs.default": _absolute,
    "angle.default": _of_parts(lambda re, im: op.atan2(im, re)),
    "real.default": _of_parts(lambda re, _: re),
    "imag.default": _of_parts(lambda _, im: im),
    "exp.default": _exponential,
    "complex.default": _from_parts,
    "polar.default": _polar,
    "_fft_r2c.default": _from_real,
    "_fft_c2r.default": _to_real,
    "_fft_c2c.default": _all_complex,
}
"""By the name that the translator has for an operator, where it takes or gives complex numbers."""
