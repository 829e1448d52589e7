"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

/* Tooltips: whatever carries data-tip. */
const tip = document.getElementById("tip");
document.addEventListener("mousemove", (event) => {
  const carrier = event.target.closest("[data-tip]");
  tip.style.display = carrier ? "block" : "none";
  if (!carrier) return;
  tip.textContent = carrier.dataset.tip;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${fits ? below : Math.max(4, event.clientY - tip.offsetHeight - 12)}px`;
});

/* The drawings. */
const LINE_HEIGHT = 16;

class Drawing {
  constructor(holder) {
    this.svg = holder.querySelector("svg");
    this.gap = Number(holder.dataset.gap);
    this.margin = 20;
    this.zoom = 1;
    this.width = Number(this.svg.getAttribute("width"));
    this.boxes = new Map();
    for (const element of this.svg.querySelectorAll(".box")) {
      const d = element.dataset;
      this.boxes.set(Number(d.id), {
        element, partition: d.partition, layer: Number(d.layer), x: Number(d.x), y: Number(d.y),
        width: Number(d.width), closed: Number(d.height), height: Number(d.height),
        lines: element.querySelectorAll(".lines text").length,
      });
      element.addEventListener("mouseenter", () => this.light(d.partition));
      element.addEventListener("mouseleave", () => this.light(null));
      if (holder.classList.contains("partitions")) {
        element.addEventListener("click", () => this.toggle([Number(d.id)]));
        element.addEventListener("keydown", (e) => {
          if (e.key === "Enter" || e.key === " ") { e.preventDefault(); this.toggle([Number(d.id)]); }
        });
      }
    }
    this.edges = [...this.svg.querySelectorAll(".edge")].map((element) => ({
      element,
      source: this.boxes.get(Number(element.dataset.source)),
      target: this.boxes.get(Number(element.dataset.target)),
      bends: element.dataset.bends ? element.dataset.bends.split(" ").map(Number) : [],
    }));
  }

  light(partition) {
    for (const box of this.boxes.values()) {
      box.element.classList.toggle("lit", partition !== null && box.partition === partition);
    }
    for (const edge of this.edges) {
      const touches = edge.source.partition === partition || edge.target.partition === partition;
      edge.element.classList.toggle("lit", partition !== null && touches);
    }
  }

  toggle(ids, open) {
    for (const id of ids) {
      const box = this.boxes.get(id);
      const opened = box.element.classList.toggle("open", open);
      box.element.setAttribute("aria-expanded", String(opened));
      box.height = box.closed + (opened ? box.lines * LINE_HEIGHT + 8 : 0);
      box.element.querySelector(".body").setAttribute("height", box.height);
      box.element.querySelector(".stripe").setAttribute("height", box.height);
    }
    this.arrange();
  }

  /* Layers keep their order; each becomes as high as its highest box. */
  arrange() {
    const heights = [];
    for (const box of this.boxes.values()) {
      heights[box.layer] = Math.max(heights[box.layer] ?? 0, box.height);
    }
    const tops = [];
    let y = this.margin;
    for (let i = 0; i < heights.length; i += 1) { tops.push(y); y += heights[i] + this.gap; }
    for (const box of this.boxes.values()) {
      box.y = tops[box.layer];
      box.element.setAttribute("transform", `translate(${box.x} ${box.y})`);
    }
    for (const edge of this.edges) edge.element.setAttribute("d", edgePath(edge, tops, heights));
    this.height = y - this.gap + this.margin;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.scale(1);
  }

  scale(factor) {
    this.height ??= Number(this.svg.getAttribute("height"));
    this.zoom = Math.min(2.5, Math.max(0.2, this.zoom * factor));
    this.svg.setAttribute("width", this.width * this.zoom);
    this.svg.setAttribute("height", this.height * this.zoom);
  }
}

/* The same path as _edge_path in figure.py; keep them alike. */
function edgePath(edge, tops, heights) {
  let x = edge.source.x + edge.source.width / 2;
  let path = `M${x} ${edge.source.y + edge.source.height}`;
  let bottom = tops[edge.source.layer] + heights[edge.source.layer];
  [...edge.bends, edge.target.x + edge.target.width / 2].forEach((next, i) => {
    const layer = edge.source.layer + 1 + i;
    const middle = (bottom + tops[layer]) / 2;
    path += `V${bottom}C${x} ${middle} ${next} ${middle} ${next} ${tops[layer]}`;
    x = next;
    bottom = tops[layer] + heights[layer];
  });
  return path;
}

const drawings = new Map();
for (const holder of document.querySelectorAll(".drawing")) {
  drawings.set(holder.id, new Drawing(holder));
}
let shown = drawings.keys().next().value;
function show(id) {
  shown = id;
  for (const holder of document.querySelectorAll(".drawing")) holder.hidden = holder.id !== id;
  for (const button of document.querySelectorAll("[data-show]")) {
    button.setAttribute("aria-pressed", String(button.dataset.show === id));
  }
  for (const button of document.querySelectorAll("[data-open]")) button.disabled = id !== "partitions";
}
for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => show(button.dataset.show));
}
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => drawings.get(shown).scale(Number(button.dataset.zoom)));
}
for (const button of document.querySelectorAll("[data-open]")) {
  button.addEventListener("click", () => {
    const drawing = drawings.get("partitions");
    const ids = [...drawing.boxes].filter(([, box]) => box.lines).map(([id]) => id);
    drawing.toggle(ids, button.dataset.open === "yes");
  });
}
if (shown) show(shown);

/* A table that filters, sorts and shows its rows in portions. */
const PORTION = 200;

class Table {
  constructor(holder, rows, cells) {
    this.rows = rows;
    this.cells = cells;
    this.body = holder.querySelector("tbody");
    this.count = holder.querySelector(".count");
    this.more = holder.querySelector(".more");
    this.filters = [...holder.querySelectorAll("[data-filter]")];
    this.limit = PORTION;
    for (const filter of this.filters) filter.addEventListener("input", () => this.draw(PORTION));
    this.more.addEventListener("click", () => this.draw(this.limit + PORTION * 5));
    for (const head of holder.querySelectorAll("th[data-column]")) {
      head.firstElementChild.addEventListener("click", () => this.sort(head));
    }
    this.draw(PORTION);
  }

  sort(head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const column = Number(head.dataset.column);
    const sign = down ? -1 : 1;
    this.rows.sort((a, b) => {
      if (a[column] === b[column]) return 0;
      if (a[column] === null) return 1;
      if (b[column] === null) return -1;
      return (a[column] < b[column] ? -1 : 1) * sign;
    });
    this.draw(this.limit);
  }

  draw(limit) {
    this.limit = limit;
    const kept = this.rows.filter((row) => this.filters.every((filter) => {
      const wanted = filter.value.trim().toLowerCase();
      if (!wanted) return true;
      if (filter.dataset.filter === "any") {
        return row.some((value) => String(value ?? "").toLowerCase().includes(wanted));
      }
      return String(row[Number(filter.dataset.filter)]).toLowerCase() === wanted;
    }));
    this.body.replaceChildren(...kept.slice(0, limit).map(this.cells));
    this.count.textContent = `${kept.length} of ${this.rows.length}`;
    this.more.hidden = kept.length <= limit;
  }
}

function cell(text, className) {
  const td = document.createElement("td");
  td.textContent = text;
  if (className) td.className = className;
  return td;
}

function chip(backend) {
  const span = document.createElement("span");
  span.className = "chip";
  span.style.setProperty("--c", data.colors[backend] ?? data.inline);
  span.textContent = backend;
  return span;
}

function candidateRow([backend, operators, count, where, rule, status, , time, reason, chosen]) {
  const tr = document.createElement("tr");
  const first = document.createElement("td");
  first.append(chip(backend));
  const verdict = chosen ? "chosen" : status;
  const failed = !["valid", "unknown"].includes(status);
  tr.append(
    first, cell(operators, "wide"), cell(count, "num"), cell(where), cell(rule),
    cell(verdict, failed ? "bad" : ""), cell(time, "num"), cell(reason, "wide soft"),
  );
  tr.classList.toggle("chosen", chosen);
  tr.style.setProperty("--c", data.colors[backend]);
  return tr;
}

new Table(document.getElementById("candidates"), data.candidates, candidateRow);

/* The operators table is in the page already: its rows become the table's rows. */
const operators = document.getElementById("operators-table");
const operatorRows = [...operators.querySelectorAll("tbody tr")].map((tr) => [
  ...[...tr.children].map((td) => {
    const key = td.dataset.key;
    return key === undefined ? td.textContent.trim() : key === "" ? null : Number(key);
  }),
  tr,
]);
new Table(operators, operatorRows, (row) => row[row.length - 1]);

document.documentElement.dataset.ready = "yes";
