"""A layered drawing of a directed acyclic graph: layers top to bottom, edges around the boxes.

The classical scheme (Sugiyama, Tagawa and Toda 1981): longest-path layers, a dummy vertex wherever
an edge crosses a layer, a few barycentre sweeps against crossings, then x positions by medians.
Hundreds of vertices take milliseconds, and no Graphviz has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

SWEEPS = 6
DUMMY_WIDTH = 14.0

MAX_VERTICES = 10_000
"""Dummies included. As many take two seconds, and nobody finds anything in a drawing of more."""


@dataclass(frozen=True)
class Layout:
    """Where everything goes.

    Attributes
    ----------
    layers : list of list of int
        The vertices of each layer, left to right (dummies left out).
    center_x : dict
        Horizontal centre of each vertex, pixels from the left edge.
    bends : dict of (source, target) to list of float
        Horizontal positions at which an edge passes each layer between its ends, in order.
    width : float
        Of the whole drawing, pixels.
    """

    layers: list[list[int]]
    center_x: dict[int, float]
    bends: dict[tuple[int, int], list[float]]
    width: float


def layered_layout(
    graph: nx.DiGraph, widths: Mapping[int, float], gap: float = 24.0
) -> Layout | None:
    """A drawing of ``graph`` with few crossings.

    Parameters
    ----------
    graph : networkx.DiGraph
        Without cycles; its vertices are integers from 0 on (dummies are negative).
    widths : mapping
        Width of each vertex's box, pixels.
    gap : float
        Least distance between two boxes of a layer, pixels.

    Returns
    -------
    Layout or None
        From the left edge on. None where it would take more than ``MAX_VERTICES``: an edge that
        reaches over a thousand layers is a thousand vertices.
    """
    level = {v: i for i, layer in enumerate(nx.topological_generations(graph)) for v in layer}
    _pull_down(graph, level)
    dummies = sum(level[target] - level[source] - 1 for source, target in graph.edges)
    if len(graph) + dummies > MAX_VERTICES:
        return None
    extended, chains = _with_dummies(graph, level)
    layers: list[list[int]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for vertex, data in extended.nodes(data=True):
        layers[data["level"]].append(vertex)
    _reduce_crossings(extended, layers)
    size = {v: widths.get(v, DUMMY_WIDTH) for v in extended}
    x = _place(extended, layers, size, gap)
    left = min((x[v] - size[v] / 2 for v in x), default=0.0)
    x = {v: value - left for v, value in x.items()}
    return Layout(
        layers=[[v for v in layer if v in graph] for layer in layers],
        center_x={v: x[v] for v in graph},
        bends={edge: [x[d] for d in chain] for edge, chain in chains.items()},
        width=max((x[v] + size[v] / 2 for v in x), default=0.0),
    )


def _pull_down(graph: nx.DiGraph, level: dict[int, int]) -> None:
    """Move a vertex without inputs next to its first reader, so that its edge is short."""
    for vertex in graph:
        readers = [level[s] for s in graph.successors(vertex)]
        if readers and graph.in_degree(vertex) == 0:
            level[vertex] = min(readers) - 1


def _with_dummies(
    graph: nx.DiGraph, level: Mapping[int, int]
) -> tuple[nx.DiGraph, dict[tuple[int, int], list[int]]]:
    extended = nx.DiGraph()
    extended.add_nodes_from((v, {"level": level[v]}) for v in graph)
    chains: dict[tuple[int, int], list[int]] = {}
    dummy = 0
    for source, target in graph.edges:
        chain: list[int] = []
        for between in range(level[source] + 1, level[target]):
            dummy -= 1
            extended.add_node(dummy, level=between)
            chain.append(dummy)
        nx.add_path(extended, [source, *chain, target])
        chains[source, target] = chain
    return extended, chains


def _reduce_crossings(graph: nx.DiGraph, layers: list[list[int]]) -> None:
    position = {v: float(i) for layer in layers for i, v in enumerate(layer)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            keys = {}
            for vertex in layer:
                around = list(graph.predecessors(vertex) if down else graph.successors(vertex))
                mean = sum(position[v] for v in around) / len(around) if around else None
                keys[vertex] = position[vertex] if mean is None else mean
            layer.sort(key=keys.__getitem__)
            position.update({v: float(i) for i, v in enumerate(layer)})


def _place(
    graph: nx.DiGraph, layers: Sequence[Sequence[int]], size: Mapping[int, float], gap: float
) -> dict[int, float]:
    """Horizontal centres: start packed and centred, then pull towards neighbours' medians."""
    x: dict[int, float] = {}
    for layer in layers:
        _pack(layer, dict.fromkeys(layer, 0.0), size, gap, x)
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = {}
            for vertex in layer:
                around = sorted(
                    x[v] for v in (graph.predecessors if down else graph.successors)(vertex)
                )
                wanted[vertex] = around[len(around) // 2] if around else x[vertex]
                if len(around) % 2 == 0 and around:
                    wanted[vertex] = sum(around[len(around) // 2 - 1 :][:2]) / 2
            _pack(layer, wanted, size, gap, x)
    return x


def _pack(
    layer: Sequence[int],
    wanted: Mapping[int, float],
    size: Mapping[int, float],
    gap: float,
    x: dict[int, float],
) -> None:
    """Place a layer in its order, as near to the wanted centres as the least distances allow.

    Vertices that would overlap form a block that moves to the mean of its wishes (pooling of
    adjacent violators, which is optimal in the least-squares sense).
    """
    offsets: list[float] = []
    blocks: list[tuple[float, int]] = []  # (mean of wanted minus offset, number of vertices)
    for i, vertex in enumerate(layer):
        offset = 0.0
        if i:
            previous = layer[i - 1]
            offset = offsets[-1] + size[previous] / 2 + gap + size[vertex] / 2
        offsets.append(offset)
        blocks.append((wanted[vertex] - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean_b, n_b), (mean_a, n_a) = blocks.pop(), blocks.pop()
            blocks.append(((mean_a * n_a + mean_b * n_b) / (n_a + n_b), n_a + n_b))
    i = 0
    for mean, count in blocks:
        for _ in range(count):
            x[layer[i]] = mean + offsets[i]
            i += 1
