"""The two drawings of a partitioned graph: partitions as boxes, and every operator as a box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from collage.report.data import Report
from collage.report.explain import NodeExplanation
from collage.report.graph_rows import NodeInfo, PartitionInfo
from collage.report.rendering.layout import layered_layout
from collage.report.rendering.palette import INLINE
from collage.report.units import format_cost

PARTITION_WIDTH, PARTITION_HEIGHT = 236.0, 58.0
OPERATOR_WIDTH, OPERATOR_HEIGHT, FIRST_HEIGHT = 196.0, 26.0, 42.0
INLINE_HEIGHT = 24.0
MARGIN = 20.0


@dataclass(frozen=True)
class Box:
    """A vertex of a drawing; x, y is the top left corner, in pixels, once it is placed in a layer.

    ``lines`` are shown when the box is opened; ``weight`` is its share of the dearest partition.
    """

    id: int
    partition: int
    title: str
    subtitle: str
    cost: str
    tip: str
    color: str
    inline: bool
    width: float
    height: float
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    weight: float = 0.0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """An edge of a drawing; ``bends`` are the x positions at which it passes layers in between."""

    source: int
    target: int
    bends: tuple[float, ...]
    path: str
    inner: bool
    color: str
    tip: str


@dataclass(frozen=True)
class Figure:
    """A finished drawing, in pixels; ``gap`` is the distance between two layers."""

    name: str
    boxes: list[Box]
    edges: list[Edge]
    width: float
    height: float
    gap: float


def operator_summary(nodes: Sequence[NodeInfo]) -> str:
    """Which operators and how many, most frequent first: ``16 conv2d, 16 add, 1 softmax``."""
    counts = Counter(_short_op(node.op) for node in nodes)
    return ", ".join(f"{n} {op}" if n > 1 else op for op, n in counts.most_common())


def _short_op(op: str) -> str:
    """An operator's name without its namespace: ``nn.conv2d`` is ``conv2d``."""
    return op.removeprefix("relax.").rpartition(".")[2] or op


def partition_figure(report: Report, colors: dict[str, str]) -> Figure | None:
    """The graph with one box per partition, that opens to its operators.

    Parameters
    ----------
    report : Report
        What is shown.
    colors : dict of str to str
        By backend, as :func:`collage.report.rendering.palette.backend_colors` gives them.

    Returns
    -------
    Figure or None
        Laid out; None of a graph that is too large to be drawn.
    """
    nodes = {node.index: node for node in report.nodes}
    owner = {index: p.id for p in report.partitions for index in p.nodes}
    graph = nx.DiGraph()
    graph.add_nodes_from(p.id for p in report.partitions)
    tensors: dict[tuple[int, int], set[int]] = {}
    for node in report.nodes:
        for source in node.inputs:
            if owner[source] != owner[node.index]:
                tensors.setdefault((owner[source], owner[node.index]), set()).add(source)
    graph.add_edges_from(tensors)
    dearest = max((p.median_sec or 0.0 for p in report.partitions), default=0.0)
    shared = Counter(p.workload_key for p in report.partitions if p.workload_key)

    def box(p: PartitionInfo) -> Box:
        inside = [nodes[i] for i in p.nodes]
        summary = operator_summary(inside)
        tip = [
            f"partition {p.id}: {'inline' if p.inline else p.backend}, {_count(inside)}",
            summary,
        ]
        if not p.inline:
            tip += [
                f"cost {format_cost(p)}",
                f"rule {p.rule}",
            ]
            if p.composites:
                tip.append("patterns " + ", ".join(_run_lengths(p.composites)))
            if shared[p.workload_key] > 1:
                tip.append(f"same workload in {shared[p.workload_key]} partitions, measured once")
        return Box(
            id=p.id,
            partition=p.id,
            title=f"{p.id} · inline" if p.inline else _clip(f"{p.id} · {p.backend}", 20),
            subtitle=_clip(summary, 38),
            cost="" if p.inline else format_cost(p),
            tip="\n".join(tip),
            color=INLINE if p.inline else colors[p.backend],
            inline=p.inline,
            width=PARTITION_WIDTH,
            height=INLINE_HEIGHT if p.inline else PARTITION_HEIGHT,
            weight=(p.median_sec or 0.0) / dearest if dearest else 0.0,
            lines=tuple(_clip(f"{n.index}  {_short_op(n.op)}  {n.shape}", 38) for n in inside),
        )

    boxes = {p.id: box(p) for p in report.partitions}
    tips = {
        edge: "\n".join(f"{nodes[i].name}: {nodes[i].shape} {nodes[i].dtype}" for i in sorted(ids))
        for edge, ids in tensors.items()
    }
    return _draw("partitions", graph, boxes, tips, gap=30.0)


def operator_figure(
    report: Report, colors: dict[str, str], explanations: Sequence[NodeExplanation]
) -> Figure | None:
    """One box per operator, coloured by who runs it; edges inside a partition are drawn thick.

    A partition's first operator tells its number and cost.

    Parameters
    ----------
    report, colors
        As :func:`partition_figure` takes them.
    explanations : sequence of NodeExplanation
        Of the same report.

    Returns
    -------
    Figure or None
        Laid out; None of a graph that is too large to be drawn.
    """
    owner = {index: p for p in report.partitions for index in p.nodes}
    first = {min(p.nodes) for p in report.partitions if not p.inline}
    why = {e.node: e for e in explanations}
    graph = nx.DiGraph()
    graph.add_nodes_from(node.index for node in report.nodes)
    graph.add_edges_from((s, node.index) for node in report.nodes for s in node.inputs)

    def box(node: NodeInfo) -> Box:
        p = owner[node.index]
        leads = node.index in first
        shape = _clip(node.shape, 15)
        tip = [f"{node.index} {node.name}", f"{node.op}", f"{node.shape} {node.dtype}"]
        if not p.inline:
            cost = format_cost(p)
            tip.append(f"{p.backend}, partition {p.id} of {len(p.nodes)} operators, {cost}")
            way = why[node.index].runner_up
            if way is not None:
                tip.append(f"runner-up {way.backend}: {way.verdict()}")
        return Box(
            id=node.index,
            partition=p.id,
            title=_clip(_short_op(node.op), 23 - len(shape)),
            subtitle=shape,
            cost=f"{p.id} · {format_cost(p)}" if leads else "",
            tip="\n".join(tip),
            color=INLINE if p.inline else colors[p.backend],
            inline=p.inline,
            width=OPERATOR_WIDTH,
            height=FIRST_HEIGHT if leads else OPERATOR_HEIGHT,
        )

    boxes = {node.index: box(node) for node in report.nodes}
    tensor = {n.index: f"{n.name}: {n.shape} {n.dtype}" for n in report.nodes}
    tips = {(s, node.index): tensor[s] for node in report.nodes for s in node.inputs}
    return _draw("operators", graph, boxes, tips, gap=22.0)


def _draw(
    name: str,
    graph: nx.DiGraph,
    boxes: dict[int, Box],
    tips: dict[tuple[int, int], str],
    gap: float,
) -> Figure | None:
    layout = layered_layout(graph, {i: box.width for i, box in boxes.items()})
    if layout is None:
        return None
    placed: dict[int, Box] = {}
    tops: list[float] = []
    heights: list[float] = []
    y = MARGIN
    for number, layer in enumerate(layout.layers):
        heights.append(max((boxes[i].height for i in layer), default=0.0))
        tops.append(y)
        for i in layer:
            x = MARGIN + layout.center_x[i] - boxes[i].width / 2
            placed[i] = replace(boxes[i], layer=number, x=round(x, 1), y=y)
        y += heights[-1] + gap
    edges = []
    for (source, target), bends in layout.bends.items():
        shifted = tuple(round(b + MARGIN, 1) for b in bends)
        a, b = placed[source], placed[target]
        path = _edge_path(a, b, shifted, tops, heights)
        inner = name == "operators" and a.partition == b.partition
        edges.append(Edge(source, target, shifted, path, inner, a.color, tips[source, target]))
    order = sorted(placed)
    return Figure(
        name=name,
        boxes=[placed[i] for i in order],
        edges=edges,
        width=layout.width + 2 * MARGIN,
        height=y - gap + MARGIN if layout.layers else 2 * MARGIN,
        gap=gap,
    )


def _edge_path(
    source: Box,
    target: Box,
    bends: Sequence[float],
    tops: Sequence[float],
    heights: Sequence[float],
) -> str:
    """SVG path of an edge: straight down through the layers, curved only between them.

    ``report.js`` has the same function, for when boxes are opened; keep them alike.
    """
    x = source.x + source.width / 2
    path = f"M{x:.1f} {source.y + source.height:.1f}"
    bottom = tops[source.layer] + heights[source.layer]
    stops = [*bends, target.x + target.width / 2]
    for layer, next_x in enumerate(stops, start=source.layer + 1):
        middle = (bottom + tops[layer]) / 2
        path += f"V{bottom:.1f}C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} "
        path += f"{next_x:.1f} {tops[layer]:.1f}"
        x, bottom = next_x, tops[layer] + heights[layer]
    return path


def _count(nodes: Sequence[NodeInfo]) -> str:
    return f"{len(nodes)} operator{'' if len(nodes) == 1 else 's'}"


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _run_lengths(names: Sequence[str]) -> list[str]:
    return [f"{n} × {name}" if n > 1 else name for name, n in Counter(names).items()]
