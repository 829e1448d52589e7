"""The HTML report: self-contained, safe against hostile names, and alive in a real browser."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from collage.backends.contract.errors import OutputError
from collage.report import Report
from collage.report.explain import Explainer
from collage.report.graph_rows import NodeInfo, PartitionInfo
from collage.report.rendering.html import render_html, write_html
from collage.report.rendering.palette import backend_colors
from collage.report.rendering.text import explanation, summary
from collage.report.rendering.views import candidate_rows, headline, index_ranges, refusals, shares
from tests.collage_tests.report.chromium import dump_dom, screenshot
from tests.collage_tests.report.report_data import resnet_report

HOSTILE = "</script><script>alert(1)</script><b onload='x'>\"&lt;{{7*7}}"


class _Elements(HTMLParser):
    """Every start tag with its attributes, and the text of table rows."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))

    def with_class(self, name: str) -> list[dict[str, str]]:
        return [a for _, a in self.tags if name in a.get("class", "").split()]


@pytest.fixture(scope="module")
def report() -> Report:
    return resnet_report()


@pytest.fixture
def page(report: Report, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    write_html(report, path)
    return path


def _hostile(report: Report) -> Report:
    nodes = [dataclasses.replace(n, name=HOSTILE, op=HOSTILE) for n in report.nodes]
    first = dataclasses.replace(report.alternatives[0], status="crashed", reason=HOSTILE)
    return dataclasses.replace(
        report,
        model=HOSTILE,
        nodes=nodes,
        device={"name": HOSTILE},
        alternatives=[first, *report.alternatives[1:]],
    )


def test_nothing_is_fetched(report: Report) -> None:
    document = render_html(report)
    assert not re.search(r"(?:https?:)?//[a-z]", re.sub(r"/\*.*?\*/", "", document, flags=re.S))
    tags = _Elements(document).tags
    assert not [a for t, a in tags if t in ("script", "img", "iframe") and "src" in a]
    assert [a["href"] for t, a in tags if t == "link"] == ["data:,"]


def test_model_s_strings_are_escaped(report: Report) -> None:
    document = render_html(_hostile(report))
    assert "alert(1)</script>" not in document.replace(html.escape(HOSTILE), "")
    elements = _Elements(document)
    assert sum(tag == "script" for tag, _ in elements.tags) == 2
    assert not [a for _, a in elements.tags if "onload" in a]
    data = re.search(r'id="data">(.*?)</script>', document, flags=re.S)
    assert data is not None
    assert HOSTILE in [row[8] for row in json.loads(data.group(1))["candidates"]]
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", document)[0]


def test_empty_report_still_renders(report: Report) -> None:
    bare = dataclasses.replace(
        report, alternatives=[], rejections=[], end_to_end=[], partitions=report.partitions[:0],
        nodes=[], outputs_max_rel_diff=None,
    )  # fmt: skip
    assert "</html>" in render_html(bare)


def _too_large(report: Report, parts: int) -> Report:
    """Each operator reads the first one: such an edge goes around all that stand between."""
    nodes = [
        NodeInfo(i, f"lv{i}", "nn.relu", "8", "float32", sorted({0, i - 1}) if i else [])
        for i in range(200)
    ]
    partitions = [
        PartitionInfo(i, "tvm", list(range(i, 200, parts)), [], "op kind", 1e-3, 0.0, "key")
        for i in range(parts)
    ]
    return dataclasses.replace(
        report, nodes=nodes, partitions=partitions, alternatives=[], rejections=[]
    )


@pytest.mark.parametrize(("parts", "drawn"), [(1, ["partitions"]), (200, [])])
def test_what_is_too_large_to_draw_is_only_listed(
    report: Report, parts: int, drawn: list[str]
) -> None:
    document = render_html(_too_large(report, parts))
    elements = _Elements(document)
    assert [tag["id"] for tag in elements.with_class("drawing")] == drawn
    assert [tag["data-show"] for _, tag in elements.tags if "data-show" in tag] == drawn
    assert re.search(f"200 operators in {parts} partitions? are too many to draw", document)
    assert document.count("<td data-tip=") == 200


def test_unwritable_place_is_the_user_s_error(report: Report, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        write_html(report, tmp_path / "missing" / "report.html")


def test_headline_compares_with_the_fastest_rival(report: Report) -> None:
    tiles = {tile.label: tile for tile in headline(report)}
    assert tiles["the speed of the best single backend"].value == "1.09×"
    assert tiles["the speed of the best single backend"].note == "single:onednn"
    assert tiles["the speed of onnxruntime"].value == "1.04×"
    assert tiles["largest output difference"].value == "3.4e-06"


def test_partitions_without_a_cost_are_told_apart_from_free_ones(report: Report) -> None:
    colors = backend_colors(report.backend_labels())
    assert all("not measured" not in share.time for share in shares(report, colors))
    partitions = [
        dataclasses.replace(p, median_sec=None, spread_sec=0.0)
        if p.backend == "openblas" or p.id < 2
        else p
        for p in report.partitions
    ]
    times = {
        share.backend: share.time
        for share in shares(dataclasses.replace(report, partitions=partitions), colors)
    }
    assert times["openblas"] == "not measured alone"
    assert times["onednn"].endswith("%) and 2 not measured")
    bare = [dataclasses.replace(p, median_sec=None) for p in report.partitions]
    document = render_html(dataclasses.replace(report, partitions=bare))
    backends = {p.backend for p in report.partitions if not p.inline}
    assert len(backends) == 3
    for backend in backends:
        assert f'data-tip="{backend}: not measured alone"' in document
    console = Console(width=200)
    with console.capture() as captured:
        console.print(summary(dataclasses.replace(report, partitions=bare)))
    assert captured.get().count("not measured alone") == 3


def test_candidate_rows_are_complete(report: Report) -> None:
    rows = candidate_rows(report, Explainer(report))
    assert len(rows) == len(report.alternatives)
    assert sum(row[9] for row in rows) == sum(a.chosen for a in report.alternatives)
    assert all(row[8] for row in rows if row[5] == "wrong result")


def test_refusals_are_grouped(report: Report) -> None:
    ((backend, _, reason, count, at),) = refusals(report)
    assert (backend, reason) == ("openblas", "strides (2, 2) are not (1, 1)")
    assert count == len(report.rejections)
    assert at == index_ranges([r.node for r in report.rejections])
    assert index_ranges([7, 1, 2, 3]) == "1–3, 7"


def test_terminal_tables_show_names_verbatim(report: Report) -> None:
    markup = dataclasses.replace(report.nodes[0], op="[bold]x[/]")
    changed = dataclasses.replace(report, nodes=[markup, *report.nodes[1:]])
    console = Console(width=200, file=None, record=True)
    with console.capture() as captured:
        console.print(summary(changed))
        console.print(explanation(changed))
    text = captured.get()
    assert "[bold]x[/]" in text
    assert "onnxruntime" in text
    assert len([line for line in text.splitlines() if "nn.conv2d" in line]) == 52


@pytest.mark.browser
def test_browser_shows_what_the_data_says(report: Report, page: Path) -> None:
    visit = dump_dom(page)
    assert visit.console == []
    elements = _Elements(visit.dom)
    assert elements.tags[0][1]["data-ready"] == "yes"
    boxes = elements.with_class("box")
    partitions = [b for b in boxes if b.get("role") == "button"]
    assert len(partitions) == len(report.partitions)
    assert len(boxes) - len(partitions) == len(report.nodes)
    rows = re.search(r'id="candidates">.*?<tbody>(.*?)</tbody>', visit.dom, flags=re.S)
    assert rows is not None
    assert rows.group(1).count("<tr") == min(200, len(report.alternatives))
    explained = re.search(r'id="operators-table">.*?<tbody>(.*?)</tbody>', visit.dom, flags=re.S)
    assert explained is not None
    assert explained.group(1).count("<tr") == sum(
        len(p.nodes) for p in report.partitions if not p.inline
    )


@pytest.mark.browser
@pytest.mark.parametrize("parts", [1, 200])
def test_browser_shows_what_is_too_large_to_draw(
    report: Report, parts: int, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_html(_too_large(report, parts), path)
    visit = dump_dom(path)
    assert visit.console == []
    assert _Elements(visit.dom).tags[0][1]["data-ready"] == "yes"


@pytest.mark.browser
def test_browser_reports_a_broken_script(page: Path) -> None:
    """The check for console errors above can fail: here it does."""
    page.write_text(page.read_text().replace('"use strict";', '"use strict"; nowhere();'))
    visit = dump_dom(page)
    assert any("nowhere is not defined" in message for message in visit.console)


@pytest.mark.browser
def test_browser_survives_hostile_names(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    write_html(_hostile(report), path)
    visit = dump_dom(path)
    assert visit.console == []
    assert _Elements(visit.dom).tags[0][1]["data-ready"] == "yes"
    assert "alert(1)" in visit.dom


ACTIONS = """
const result = {};
const first = document.querySelector("#partitions .box");
first.dispatchEvent(new MouseEvent("click", { bubbles: true }));
const drawing = drawings.get("partitions");
const box = drawing.boxes.get(0);
result.opened = first.classList.contains("open");
result.grown = box.height - box.closed;
result.lines = box.lines;
result.connected = drawing.edges.every((edge) => {
  const length = edge.element.getTotalLength();
  const start = edge.element.getPointAtLength(0);
  const end = edge.element.getPointAtLength(length);
  return Math.abs(start.y - edge.source.y - edge.source.height) < 0.2
    && Math.abs(end.y - edge.target.y) < 0.2
    && Math.abs(end.x - edge.target.x - edge.target.width / 2) < 0.2;
});
document.querySelector("[data-show=operators]").click();
result.switched = document.getElementById("partitions").hidden
  && !document.getElementById("operators").hidden;
const holder = document.getElementById("candidates");
const cost = holder.querySelector("th[data-column='6'] button");
cost.click();
const rows = () => [...holder.querySelector("tbody").rows];
result.cheapest = rows()[0].cells[6].textContent;
cost.click();
result.dearest = rows()[0].cells[6].textContent;
const filter = holder.querySelector("[data-filter='0']");
filter.value = "openblas";
filter.dispatchEvent(new Event("input"));
result.filtered = rows().map((tr) => tr.cells[0].textContent);
const output = document.createElement("output");
output.id = "result";
output.textContent = JSON.stringify(result);
document.body.append(output);
"""


@pytest.mark.browser
def test_browser_opens_sorts_and_filters(report: Report, page: Path) -> None:
    document = page.read_text()
    head, _, tail = document.rpartition("</script>")
    page.write_text(f"{head}\n{ACTIONS}</script>{tail}")
    visit = dump_dom(page)
    assert visit.console == []
    found = re.search(r'<output id="result">(.*?)</output>', visit.dom)
    assert found is not None
    result = json.loads(html.unescape(found.group(1)))
    assert result["opened"]
    assert result["lines"] == len(report.partitions[0].nodes)
    assert result["grown"] == 16 * result["lines"] + 8
    assert result["connected"]
    assert result["switched"]
    times = {
        row[6]: row[7] for row in candidate_rows(report, Explainer(report)) if row[6] is not None
    }
    assert result["cheapest"] == times[min(times)]
    assert result["dearest"] == times[max(times)]
    openblas = [a for a in report.alternatives if a.backend == "openblas"]
    assert result["filtered"] == ["openblas"] * len(openblas)


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_screenshot_has_the_backends_colours(
    report: Report, page: Path, tmp_path: Path, dark: bool
) -> None:
    image = tmp_path / "page.png"
    screenshot(page, image, 1200, 2000, dark)
    with Image.open(image) as picture:
        assert picture.size == (1200, 2000)
        pixels = Counter({c: n for n, c in picture.convert("RGB").getcolors(1 << 24) or []})
    for color in backend_colors(report.backend_labels()).values():
        rgb = tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))
        assert pixels[rgb] > 100, f"no {color} to be seen"
    background = pixels.most_common(1)[0][0]
    assert (sum(background) < 200) == dark
