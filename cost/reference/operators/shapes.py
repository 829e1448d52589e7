"""Operators that move, select or make elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.values import Array, OperatorTable, UnsupportedOperator, Value, ints


def _reshape(call: relax.Call, args: list[Value]) -> Value:
    return args[0].reshape(static_shape(call))


def _permute_dims(call: relax.Call, args: list[Value]) -> Value:
    axes = call.attrs.axes
    return np.transpose(args[0], None if axes is None else ints(axes))


def _broadcast_to(call: relax.Call, args: list[Value]) -> Value:
    return np.broadcast_to(args[0], static_shape(call))


def _concat(call: relax.Call, args: list[Value]) -> Value:
    axis = call.attrs.axis
    return np.concatenate(args[0], axis=None if axis is None else int(axis))


def _stack(call: relax.Call, args: list[Value]) -> Value:
    return np.stack(args[0], axis=int(call.attrs.axis or 0))


def _split(call: relax.Call, args: list[Value]) -> Value:
    parts, axis = call.attrs.indices_or_sections, int(call.attrs.axis)
    if hasattr(parts, "__len__"):
        return tuple(np.split(args[0], ints(parts), axis=axis))
    # Like TVM, a number of sections that does not divide leaves a shorter last one.
    size, sections = args[0].shape[axis], int(parts)
    step = -(-size // sections)
    return tuple(np.split(args[0], [step * i for i in range(1, sections)], axis=axis))


def _strided_slice(_: relax.Call, args: list[Value]) -> Value:
    x, axes, begin, end = args[:4]
    strides = args[4] if len(args) > 4 else [1] * len(axes)
    index = [slice(None)] * x.ndim
    for axis, b, e, s in zip(ints(axes), ints(begin), ints(end), ints(strides), strict=True):
        size = x.shape[axis]
        # A downward slice to before the first element has no end in Python's notation.
        stop = None if s < 0 and e < -size else e
        index[axis] = slice(b, stop, s)
    return x[tuple(index)]


def _slice_scatter(call: relax.Call, args: list[Value]) -> Value:
    x, source, begin, end, stride = args
    found = np.array(x)
    axis = int(call.attrs.axis) % found.ndim
    # Bounds that reach beyond the tensor are cut off, as those of slices are.
    places = slice(int(begin), int(end), int(stride))
    found[(slice(None),) * axis + (places,)] = source
    return found


def _take(call: relax.Call, args: list[Value]) -> Value:
    x, indices = args[0], np.asarray(args[1])
    axis = call.attrs.axis
    size = x.size if axis is None else x.shape[int(axis)]
    mode = str(call.attrs.mode)
    if mode == "NAN":
        raise UnsupportedOperator("take with NaN for out-of-range indices")
    if mode == "wrap":
        return np.take(x, indices, axis=axis, mode="wrap")
    if mode == "clip":
        return np.take(x, np.clip(indices, 0, size - 1), axis=axis)
    return np.take(x, indices, axis=axis)


def gather_elements(x: Array, indices: Array, axis: int) -> Array:
    """Along an axis the elements that indices name; along others, where the indices reach.

    Parameters
    ----------
    x, indices : numpy.ndarray
        Of one rank; along other axes than the one the indices may be the smaller.
    axis : int
        May count from the last one.

    Returns
    -------
    numpy.ndarray
        Of the shape of the indices.
    """
    axis %= x.ndim
    reached = [slice(None if i == axis else n) for i, n in enumerate(indices.shape)]
    places = np.where(indices < 0, indices + x.shape[axis], indices).astype("int64")
    return np.take_along_axis(x[tuple(reached)], places, axis)


def _gather_elements(call: relax.Call, args: list[Value]) -> Value:
    return gather_elements(args[0], args[1], int(call.attrs.axis))


def _pad(call: relax.Call, args: list[Value]) -> Value:
    attrs = call.attrs
    flat = ints(attrs.pad_width)
    widths = list(zip(flat[::2], flat[1::2], strict=True))
    mode = str(attrs.pad_mode)
    if mode == "constant":
        value: Any = float(attrs.pad_value)
        return np.pad(args[0], widths, constant_values=args[0].dtype.type(value))
    numpy_mode = {"reflect": "reflect", "edge": "edge", "replicate": "edge", "circular": "wrap"}
    if mode not in numpy_mode:
        raise UnsupportedOperator(f"pad mode {mode}")
    return np.pad(args[0], widths, mode=numpy_mode[mode])  # type: ignore[call-overload]


def _pixel_shuffle(call: relax.Call, args: list[Value]) -> Value:
    (x,), factor = args, int(call.attrs.upscale_factor)
    *outer, channels, height, width = x.shape
    blocks = x.reshape(*outer, channels // factor**2, factor, factor, height, width)
    moved = np.moveaxis(blocks, (-4, -3), (-3, -1))
    return moved.reshape(static_shape(call))


def _full(call: relax.Call, args: list[Value]) -> Value:
    return np.full(static_shape(call), args[1])


def _filled(value: int) -> Any:
    def apply(call: relax.Call, _: list[Value]) -> Value:
        return np.full(static_shape(call), value)

    return apply


def _arange(_: relax.Call, args: list[Value]) -> Value:
    return np.arange(*args)


def _one_hot(call: relax.Call, args: list[Value]) -> Value:
    indices, on, off = args
    depth = int(call.attrs.depth)
    axis = int(call.attrs.axis) % (indices.ndim + 1)
    hot = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    return np.where(np.expand_dims(indices, axis) == hot, on, off)


def _tri(upper: bool) -> Any:
    def apply(_: relax.Call, args: list[Value]) -> Value:
        return (np.triu if upper else np.tril)(args[0], int(args[1]))

    return apply


SHAPES: OperatorTable = {
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.nn.batch_flatten": _reshape,
    "relax.permute_dims": _permute_dims,
    "relax.broadcast_to": _broadcast_to,
    "relax.concat": _concat,
    "relax.stack": _stack,
    "relax.split": _split,
    "relax.strided_slice": _strided_slice,
    "relax.slice_scatter": _slice_scatter,
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.nn.pad": _pad,
    "relax.nn.pixel_shuffle": _pixel_shuffle,
    "relax.full": _full,
    "relax.zeros": _filled(0),
    "relax.ones": _filled(1),
    "relax.zeros_like": _filled(0),
    "relax.ones_like": _filled(1),
    "relax.full_like": _full,
    "relax.arange": _arange,
    "relax.one_hot": _one_hot,
    "relax.triu": _tri(upper=True),
    "relax.tril": _tri(upper=False),
    "relax.tile": lambda call, args: np.tile(args[0], ints(call.attrs.repeats)),
    "relax.flip": lambda call, args: np.flip(args[0], int(call.attrs.axis)),
    "relax.repeat": lambda call, args: np.repeat(
        args[0],
        int(call.attrs.repeats),
        None if call.attrs.axis is None else int(call.attrs.axis),
    ),
    "relax.shape_of": lambda call, args: tuple(args[0].shape),
    "relax.shape_to_tensor": lambda call, args: np.asarray(args[0], dtype=np.int64),
    "relax.tensor_to_shape": lambda call, args: tuple(ints(args[0])),
}
