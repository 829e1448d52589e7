"""Convolutions of element types that TVM's converter does not take, and transposed ones."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax
from tvm.relax import op

from collage.importers.deformed import DeformedWindow, deformed_convolution, pair
from collage.importers.onnx.operators.node import Node, Refused

_BY_RANK = {3: op.nn.conv1d, 4: op.nn.conv2d, 5: op.nn.conv3d}


@dataclass(frozen=True)
class Window:
    """How a convolution's window moves, all that ONNX leaves open filled in."""

    strides: list[int]
    dilations: list[int]
    pads: list[int]
    groups: int

    @classmethod
    def of(cls, node: Node, data: list[int], weight: list[int]) -> Window:
        """A node's window, for the shapes of its operands.

        Parameters
        ----------
        node : Node
            A convolution, or its transpose.
        data, weight : list of int
            Shapes of its operands.

        Returns
        -------
        Window
            As :meth:`over` has it.
        """
        return cls.over(node, data[2:], weight[2:])

    @classmethod
    def over(cls, node: Node, extents: list[int], kernel: list[int]) -> Window:
        """A node's window, for extents and kernel along the axes that it moves along.

        Parameters
        ----------
        node : Node
            What has the attributes.
        extents : list of int
            Of the data.
        kernel : list of int
            Of the window.

        Returns
        -------
        Window
            With pads as numbers, whatever ``auto_pad`` said.
        """
        rank = len(extents)
        strides = node.integers("strides", [1] * rank)
        dilations = node.integers("dilations", [1] * rank)
        auto = node.text("auto_pad", "NOTSET")
        pads = node.integers("pads", [0] * 2 * rank)
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            before, after = [], []
            for axis in range(rank):
                extent, reach = extents[axis], (kernel[axis] - 1) * dilations[axis] + 1
                steps = -(-extent // strides[axis])
                total = max((steps - 1) * strides[axis] + reach - extent, 0)
                before.append(total // 2 if auto == "SAME_UPPER" else total - total // 2)
                after.append(total - before[-1])
            pads = [*before, *after]
        elif auto == "VALID":
            pads = [0] * 2 * rank
        return cls(strides, dilations, pads, node.integer("group", 1))


def convolve(
    node: Node, data: relax.Expr, weight: relax.Expr, window: Window, out_dtype: str
) -> relax.Expr:
    """A convolution of one to three axes of tensors that stand in place of a node's operands.

    Parameters
    ----------
    node : Node
        Whose groups are meant, and who is named in an error.
    data, weight : relax.Expr
        Channels first.
    window : Window
        How it moves.
    out_dtype : str
        Of the result.

    Returns
    -------
    relax.Expr
        Channels first.

    Raises
    ------
    Refused
        When there are more axes.
    """
    rank = len(window.strides)
    if rank + 2 not in _BY_RANK:
        raise Refused(f"a convolution along {rank} axes")
    convolution = _BY_RANK[rank + 2]
    return node.emit(
        convolution(
            data,
            weight,
            strides=window.strides,
            padding=window.pads,
            dilation=window.dilations,
            groups=window.groups,
            out_dtype=out_dtype,
        )
    )


def conv_transpose(node: Node) -> None:
    """Say by pads which output shape is wanted: TVM's importer does not look at the shape."""
    attributes = node.attributes
    wanted = node.integers("output_shape", ())
    shape, weights = node.shape(0), node.shape(1)
    if not wanted:
        return
    rank = len(shape) - 2
    ones, zeros = [1] * rank, [0] * rank
    strides, dilation = node.integers("strides", ones), node.integers("dilations", ones)
    added = node.integers("output_padding", zeros)
    before, after = [], []
    for axis, extent in enumerate(wanted[-rank:]):
        reach = (weights[axis + 2] - 1) * dilation[axis] + 1
        full = strides[axis] * (shape[axis + 2] - 1) + reach + added[axis]
        total = max(full - extent, 0)
        added[axis] += max(extent - full, 0)
        half = total // 2
        upper = node.text("auto_pad", "NOTSET") == "SAME_UPPER"
        before.append(half if upper else total - half)
        after.append(total - before[-1])
    attributes.pop("auto_pad", None)
    attributes.pop("output_shape")
    attributes.update(pads=[*before, *after], output_padding=added)


def _deformed(node: Node) -> relax.Expr:
    """Taps read beside their places; along two axes, as the standard's only cases have it."""
    shape, weight = node.shape(0), node.shape(1)
    if len(shape) != 4:
        raise Refused(f"a deformable convolution along {len(shape) - 2} axes; two are computed")
    window = Window.of(node, shape, weight)
    moved = DeformedWindow(
        strides=pair(*window.strides),
        dilations=pair(*window.dilations),
        pads=pair(*window.pads[:2]),
        groups=window.groups,
        offset_groups=node.integer("offset_group", 1),
    )
    mask = node.operand(4) if node.has(4) else None
    found = deformed_convolution(
        node.emit, node.operand(0), node.operand(1), node.operand(2), mask, moved
    )
    if not node.has(3):
        return found
    bias = node.emit(op.reshape(node.operand(3), [1, weight[0], 1, 1]))
    return op.add(node.emit(found), bias)


CONVERTERS = {"ConvTranspose": conv_transpose, "DeformConv": _deformed}
