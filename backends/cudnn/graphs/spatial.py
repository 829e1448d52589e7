"""Tensors with spatial axes as cuDNN wants them: two or three axes; one is a plane of one row."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.relax.calls.strided_views import View

_LAST = "W"
"""The only spatial axis of one-dimensional data, and the last one of any other."""


def plane_view(shape: Sequence[int], layout: str, leading: str) -> View:
    """A tensor in cuDNN's order of axes: two that are not spatial, then the spatial ones.

    Parameters
    ----------
    shape : sequence of int
        In the order of the layout.
    layout : str
        For example ``NHWC``, or ``OIW`` for the weights of a one-dimensional convolution.
    leading : str
        The axes that come first, for example ``NC``.

    Returns
    -------
    View
        Of four dimensions or more: one spatial axis gets another of extent 1 before it.

    Examples
    --------
    >>> plane_view((2, 100, 16), "NWC", "NC")
    View(shape=(2, 16, 1, 100), strides=(1600, 1, 1600, 16))
    """
    extents = list(shape)
    space = "".join(axis for axis in layout if axis not in leading)
    if space == _LAST:
        at = layout.index(_LAST)
        extents.insert(at, 1)
        layout, space = f"{layout[:at]}H{layout[at:]}", f"H{_LAST}"
    return View.dense(extents).permuted([layout.index(axis) for axis in leading + space])


def per_axis(*attributes: tuple[Sequence[int], int]) -> list[int]:
    """Attributes of an operation, one after the other, each with a number per spatial axis.

    Parameters
    ----------
    *attributes : (sequence of int, int)
        What it is along each axis, and what it is along the one that one-dimensional data lacks.

    Examples
    --------
    >>> per_axis(([3], 1), ([2], 0)), per_axis(([3, 5], 1), ([2, 0], 0))
    ([1, 3, 0, 2], [3, 5, 2, 0])
    """
    return [
        int(value)
        for values, alone in attributes
        for value in ([alone] if len(values) == 1 else []) + list(values)
    ]
