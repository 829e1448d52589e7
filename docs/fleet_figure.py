"""Draws docs/fleet.svg, the picture in fleet.md: ``python docs/fleet_figure.py``."""

from __future__ import annotations

from pathlib import Path

from pipeline_figure import INK, SOFT, Box, arrow, label

WIDTH, HEIGHT = 1120, 560
GROUNDS = {
    # What: left, top, width, height, ground, border, what is said below the name.
    "where the search runs": (16, 16, 400, 528, "#eaf2fb", "#2a78d6", ""),
    "this machine's devices": (560, 16, 544, 104, "#fdf1e3", "#d98218", "local"),
    "a Ray cluster": (560, 136, 544, 176, "#e8f6ef", "#1baf7a", "ray://head:10001"),
    "boards and GPUs of others": (560, 328, 544, 128, "#f0edfa", "#4a3aa7", "rpc://tracker:9190"),
    "what a team shares": (560, 472, 544, 72, "#f4f4f4", "#5d6b78", ""),
}


def ground(name: str) -> str:
    """Where some of them are, with its name and how a user names it."""
    x, y, width, height, fill, border, how = GROUNDS[name]
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{fill}" '
        f'stroke="{border}"/><text x="{x + 14}" y="{y + 23}" class="band" fill="{border}">{name}'
        f'</text><text x="{x + width - 14}" y="{y + 23}" class="how" text-anchor="end">{how}</text>'
    )


def picture() -> str:
    """The whole drawing."""
    search = Box(40, 56, 150, "search", "asks for costs")
    models = Box(242, 56, 150, "whole models", "compiled here")
    queue = Box(40, 196, 352, "builder, queue, places", "cost/measure/")
    builders = Box(40, 326, 150, "builders", "local, rpc: here")
    gate = Box(242, 326, 150, "end to end", "all on one device")
    log = Box(40, 482, 150, "log", "a file, or a URL")
    gpu0, gpu1 = Box(600, 56, 140, "cuda:0", "a process each"), Box(772, 56, 140, "cuda:1", "…")
    head = Box(600, 196, 140, "Ray's head", "knows the nodes")
    node1 = Box(800, 172, 284, "node: builders, device", "an actor each")
    node2 = Box(800, 250, 284, "node: builders, device", "an actor each")
    tracker = Box(600, 380, 140, "tracker", "knows who is free")
    board1 = Box(800, 356, 130, "server", "TVM's runtime")
    board2 = Box(954, 356, 130, "server", "TVM's runtime")
    database = Box(772, 484, 312, "database", "PostgreSQL, SQLite: records, studies")
    boxes = [search, models, queue, builders, gate, log, gpu0, gpu1, head, node1, node2]
    boxes += [tracker, board1, board2, database]
    bend = 480
    arrows = [
        arrow(search.bottom(), (search.bottom()[0], queue.y), both=True),
        label(search.bottom()[0] + 8, 140, "workloads, costs"),
        arrow(models.bottom(), (models.bottom()[0], queue.y), both=True),
        label(models.bottom()[0] + 8, 158, "models, times"),
        arrow((builders.top()[0], queue.y + queue.height), builders.top(), both=True),
        label(builders.top()[0] + 8, 290, "compile"),
        arrow((gate.top()[0], queue.y + queue.height), gate.top(), both=True),
        label(gate.top()[0] + 8, 290, "decide"),
        arrow((216, queue.y + queue.height), (216, 440), (log.top()[0], 440), log.top(), both=True),
        label(224, 432, "every record at once"),
        arrow(queue.right, (bend, queue.right[1]), (bend, gpu0.left[1]), gpu0.left, both=True),
        label(bend + 10, gpu0.left[1] - 8, "files, times"),
        arrow(queue.right, head.left, both=True),
        label(bend + 10, head.left[1] - 8, "files, times"),
        arrow(head.right, (770, head.right[1]), (770, node1.left[1]), node1.left, both=True),
        arrow(head.right, (770, head.right[1]), (770, node2.left[1]), node2.left, both=True),
        arrow(
            queue.right, (bend, queue.right[1]), (bend, tracker.left[1]), tracker.left, both=True
        ),
        label(bend + 10, tracker.left[1] - 8, "who is free?"),
        arrow(tracker.right, (800, tracker.right[1])),
        *(
            arrow(queue.right, (bend, queue.right[1]), (bend, 440), (x, 440), (x, y), both=True)
            for x, y in (board1.bottom(), board2.bottom())
        ),
        label(bend + 10, 432, "libs, times"),
        arrow(log.right, (database.x, log.right[1]), both=True),
        label(bend + 10, log.right[1] - 8, "records"),
        label(574, 528, "log=postgresql+psycopg://…"),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
            "<title>Who talks to whom</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
            "</marker></defs>",
            f"<style>.name{{font-size:13px;font-weight:600;fill:{INK};text-anchor:middle}}"
            f".folder{{font-size:11px;fill:{SOFT};text-anchor:middle;font-family:monospace}}"
            ".band{font-size:15px;font-weight:700}"
            f".how{{font-size:12px;fill:{SOFT};font-family:monospace}}"
            f".label{{font-size:11px;fill:{SOFT}}}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *map(ground, GROUNDS),
            *arrows,
            *(box.svg() for box in boxes),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("fleet.svg").write_text(picture(), encoding="utf-8")
