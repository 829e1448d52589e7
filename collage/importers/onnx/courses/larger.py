"""Results of other shapes, made to be of one shape, and how much of it there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import helper

from collage.course import Region
from collage.importers.courses.values import Value
from collage.importers.onnx.courses.parts import Parts
from collage.importers.onnx.courses.values import Constants


@dataclass(frozen=True)
class Cut:
    """A region, and what its results are."""

    region: Region
    values: list[Value]


@dataclass(frozen=True)
class Larger:
    """Results as large as the larger of two.

    Attributes
    ----------
    values : sequence of Value
        What they are; they name what counts their rows.
    counts : mapping of (int, int) to str
        By result and axis, the value that says how much there is.
    """

    values: Sequence[Value]
    counts: Mapping[tuple[int, int], str]


def fit_together(one: Cut, other: Cut) -> bool:
    """Whether results differ in nothing but how large they are.

    Parameters
    ----------
    one, other : Cut
        Of as many results.

    Returns
    -------
    bool
        Ranks and types are the same.
    """
    pairs = zip(one.values, other.values, strict=True)
    return all(len(a.shape) == len(b.shape) and a.dtype == b.dtype for a, b in pairs)


def larger_of(one: Cut, other: Cut, fresh: Callable[[str], str]) -> Larger:
    """The results of either, where they fit together.

    Parameters
    ----------
    one, other : Cut
        Of as many results.
    fresh : callable
        Gives a new name.

    Returns
    -------
    Larger
        Counts every axis whose extents differ, or that was counted before.
    """
    pairs = list(zip(one.values, other.values, strict=True))
    axes = [
        [
            axis
            for axis, (m, n) in enumerate(zip(a.shape, b.shape, strict=True))
            if m != n or axis in {*dict(a.counts), *dict(b.counts)}
        ]
        for a, b in pairs
    ]
    counts = {(place, axis): fresh("count") for place, found in enumerate(axes) for axis in found}
    values = [
        replace(
            a,
            shape=tuple(map(max, a.shape, b.shape)),
            counts=tuple((axis, counts[place, axis]) for axis in axes[place]),
        )
        for place, (a, b) in enumerate(pairs)
    ]
    return Larger(values, counts)


def enlarged(
    cut: Cut, larger: Larger, parts: Parts, constants: Constants, fresh: Callable[[str], str]
) -> Region:
    """A region that gives the larger results, filled up with zeros, and behind them the counts.

    Parameters
    ----------
    cut : Cut
        Gives smaller ones.
    larger : Larger
        What is wanted.
    parts : Parts
        Imports what fills them up.
    constants : Constants
        Get the zeros.
    fresh : callable
        Gives a new name.

    Returns
    -------
    Region
        Its steps are the cut's, and at most one more for each result.
    """
    steps, results = list(cut.region.steps), list(cut.region.results)
    scope = {
        name: replace(value, counts=()) for name, value in zip(results, cut.values, strict=True)
    }
    for place, (old, new) in enumerate(zip(cut.values, larger.values, strict=True)):
        nodes, shape, name = [], list(old.shape), results[place]
        for axis, extent in enumerate(new.shape):
            if shape[axis] < extent:
                gap = [*shape[:axis], extent - shape[axis], *shape[axis + 1 :]]
                zeros = constants.add(fresh("zeros"), np.zeros(gap, old.dtype))
                grown = fresh("larger")
                nodes.append(helper.make_node("Concat", [name, zeros], [grown], grown, axis=axis))
                shape[axis], name = extent, grown
        steps += parts.run(nodes, [name], scope, "larger")
        results[place] = name
    for place, axis in larger.counts:
        old = cut.values[place]
        there = np.array([old.shape[axis]], "int64")
        by = dict(old.counts).get(axis)
        results.append(by or constants.add(fresh("extent"), there))
    return Region(tuple(steps), tuple(results))
