"""Draws docs/pipeline.svg, the picture in architecture.md: ``python docs/pipeline_figure.py``."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

WIDTH, HEIGHT = 1120, 610
INK, SOFT = "#22303c", "#5d6b78"
BANDS = {
    # Name: left, top, width, height, ground, border, what it is.
    "collage": (16, 16, 1088, 116, "#eaf2fb", "#2a78d6", "wires the stages together"),
    "search": (16, 190, 420, 118, "#e8f6ef", "#1baf7a", "decides; is handed the costs"),
    "cost": (456, 190, 648, 242, "#fdf1e3", "#d98218", "finds costs: in the log, or by measuring"),
    "backends": (16, 474, 1088, 120, "#f0edfa", "#4a3aa7", "compile; know nothing of who asks"),
}
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A stage: its name, and below it the folder that holds it."""

    x: float
    y: float
    width: float
    name: str
    folder: str
    height: float = 46

    @property
    def left(self) -> Point:
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> Point:
        return self.x + self.width, self.y + self.height / 2

    def top(self, share: float = 0.5) -> Point:
        return self.x + self.width * share, self.y

    def bottom(self, share: float = 0.5) -> Point:
        return self.x + self.width * share, self.y + self.height

    def svg(self) -> str:
        middle = self.x + self.width / 2
        return (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" '
            f'fill="#ffffff" stroke="{SOFT}"/>'
            f'<text x="{middle}" y="{self.y + 20}" class="name">{escape(self.name)}</text>'
            f'<text x="{middle}" y="{self.y + 36}" class="folder">{escape(self.folder)}</text>'
        )


def band(name: str) -> str:
    """The ground of a top-level folder, with its name."""
    x, y, width, height, ground, border, text = BANDS[name]
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{ground}" '
        f'stroke="{border}"/>'
        f'<text x="{x + 14}" y="{y + 23}" class="band" fill="{border}">{name}/</text>'
        f'<text x="{x + 14}" y="{y + height - 11}" class="label">{escape(text)}</text>'
    )


def arrow(*points: Point, both: bool = False) -> str:
    """A line through the points with a tip at its end, or at both ends."""
    start = ' marker-start="url(#tip)"' if both else ""
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.4" '
        f'marker-end="url(#tip)"{start}/>'
    )


def label(x: float, y: float, text: str, anchor: str = "start") -> str:
    """A word beside an arrow."""
    return f'<text x="{x}" y="{y}" class="label" text-anchor="{anchor}">{escape(text)}</text>'


def picture() -> str:
    """The whole drawing."""
    stages = [
        ("model file", "ONNX, .pt2, Relax"),
        ("import", "importers/"),
        ("normalize", "normalize/"),
        ("optimize", "pipeline/ passes/"),
        ("end-to-end", "end_to_end/"),
        ("result", "pipeline/ report/"),
        ("bundle", "bundle/"),
    ]
    way = [Box(30 + 153 * i, 54, 130, name, folder) for i, (name, folder) in enumerate(stages)]
    optimize, end_to_end = way[3], way[4]
    graph = Box(30, 228, 106, "graph", "dataflow.py")
    rules = Box(166, 228, 118, "candidates", "rules/")
    cover = Box(314, 228, 108, "covers", "lazy_search.py")
    models = Box(470, 228, 280, "cost model", "models/ contest/")
    log = Box(489, 350, 130, "log", "database/")
    measure = Box(774, 228, 172, "build and time", "engines/ measure/ device/")
    workload = Box(962, 228, 128, "workload", "workload/")
    pool = Box(774, 350, 172, "messages", "processes/")
    worker = Box(962, 350, 128, "compile, run", "worker/ reference/")
    devices = Box(30, 514, 112, "device kinds", "devices/")
    contract = Box(166, 514, 118, "contract", "contract/")
    shared = Box(308, 514, 226, "what backends share", "toolchain/ relax/ storage/")
    each = Box(562, 514, 340, "the backends", "tvm onednn openblas cutlass cublas …")
    whole = Box(962, 514, 128, "compile, link", "compile.py link.py")
    boxes = [*way, graph, rules, cover, models, log, measure, workload, pool, worker]
    boxes += [devices, contract, shared, each, whole]
    down, up = optimize.bottom(0.2), optimize.bottom(0.3)
    arrows = [arrow(a.right, b.left) for a, b in pairwise(way)]
    arrows += [
        arrow(down, (down[0], 152), (graph.top(0.8)[0], 152), graph.top(0.8)),
        label(graph.top(0.8)[0] + 8, 146, "module"),
        arrow(graph.right, rules.left),
        arrow(rules.right, cover.left),
        arrow(cover.top(), (cover.top()[0], 172), (up[0], 172), up),
        label(cover.top()[0] + 8, 166, "partitionings"),
        arrow(optimize.bottom(), (optimize.bottom()[0], 228), both=True),
        label(optimize.bottom()[0] + 8, 166, "costs of workloads"),
        arrow(end_to_end.bottom(), (end_to_end.bottom()[0], 228), both=True),
        label(end_to_end.bottom()[0] + 8, 166, "times of whole models"),
        arrow(log.top(), (log.top()[0], 274), both=True),
        label(log.top()[0] + 8, 316, "looked up first"),
        arrow(models.right, measure.left),
        label(762, 244, "rest", "middle"),
        arrow(measure.right, workload.left),
        arrow(measure.bottom(), pool.top(), both=True),
        arrow(pool.right, worker.left, both=True),
        arrow(worker.bottom(), whole.top()),
        arrow(rules.bottom(), contract.top(), both=True),
        label(rules.bottom()[0] + 8, 400, "patterns, verdicts"),
        arrow(whole.left, each.right),
        arrow(each.left, shared.right),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
            "<title>The pipeline, by folder</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
            "</marker></defs>",
            f"<style>.name{{font-size:13px;font-weight:600;fill:{INK};text-anchor:middle}}"
            f".folder{{font-size:11px;fill:{SOFT};text-anchor:middle;font-family:monospace}}"
            ".band{font-size:15px;font-weight:700}"
            f".label{{font-size:11px;fill:{SOFT}}}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *map(band, BANDS),
            *arrows,
            *(box.svg() for box in boxes),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("pipeline.svg").write_text(picture(), encoding="utf-8")
