// The picture of a neighbourhood: the vertex in the middle, its in-neighbours around it, theirs further out.
// Width: how much an in-neighbour contributes. Dashed: against the prediction. Heavy colour: it moved the latest change.

import { el } from "./dom.js";
import * as format from "./format.js";
import { badge, tone } from "./lists.js";

const AROUND = 16, NARROW = 420, FURTHER = 4;

// near: {vertex, prediction, neighbours, rest, own, hasSign}, of neighbourhood.js.
export function drawn(svg, near, view) {
  const { width, height } = size(svg);
  const [cx, cy] = [width / 2, height / 2];
  const hasMore = near.neighbours.some((each) => each.sources.length);
  const reach = Math.min(width / 2 - 36, height / 2 - 30);
  const radius = hasMore ? reach * 0.62 : reach;
  const around = (width < NARROW ? 0.75 : 1) * (hasMore ? 0.75 : 1) * AROUND;
  const shown = near.neighbours.slice(0, around);
  const largest = Math.max(...shown.map((each) => Math.abs(each.share)), 0) || 1;
  const edges = [], points = [];
  const left = near.neighbours.slice(shown.length).reduce((sum, each) => sum + each.edges, near.rest);
  const total = shown.length + (left ? 1 : 0);
  const wide = Math.min(1.55, Math.max(1, (width - 80) / (height - 50)));
  const place = (number, r) => {
    const turn = (2 * Math.PI * number) / Math.max(total, 1) - Math.PI / 2;
    return [cx + wide * r * Math.cos(turn), cy + r * Math.sin(turn), turn];
  };
  shown.forEach((each, number) => {
    const [x, y, turn] = place(number, radius);
    edges.push(edge([x, y], [cx, cy], each, largest, near));
    each.sources.slice(0, FURTHER).forEach((source, k, all) => {
      const away = turn + (k - (all.length - 1) / 2) * Math.min(0.17, 5 / total / all.length);
      const to = [cx + wide * reach * Math.cos(away), cy + reach * Math.sin(away)];
      edges.push(el("line", { class: "edge edge-far", x1: to[0], y1: to[1], x2: x, y2: y, "stroke-width": 0.75 + 2.25 * source.part }));
      points.push(dot(to, 4, source, view));
    });
    points.push(point([x, y, turn], each, near, view, hasMore));
  });
  if (left) points.push(rest(place(shown.length, radius), left));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...edges, ...points, middle(cx, cy, near, view));
}

function size(svg) {
  const box = svg.getBoundingClientRect();
  return { width: Math.max(240, Math.round(box.width)), height: Math.max(220, Math.round(box.height)) };
}

function edge([x1, y1], [x2, y2], each, largest, near) {
  const width = 1 + 8 * (Math.abs(each.share) / largest);
  const sign = near.hasSign && each.share < 0 ? " edge-against" : "";
  const recent = each.why.length ? " edge-recent" : "";
  return el("line", { class: `edge${sign}${recent}`, x1, y1, x2, y2, "stroke-width": width.toFixed(2), data: { vertex: each.vertex } });
}

function point([x, y, turn], each, near, view, isInside) {
  const says = `Vertex ${each.vertex}, prediction ${format.prediction(each.prediction, view.of(each.type).isProbability)}, contributes ${format.amount(each.share, near.hasSign)}`;
  const open = () => view.select(each.vertex, each.type);
  const label = shortened(each.vertex);
  return el("g", {
    class: `point ${tone(each.prediction, view.of(each.type))}`, role: "button", tabindex: 0, "aria-label": says, data: { vertex: each.vertex },
    onclick: open, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } },
  },
  el("circle", { cx: x, cy: y, r: isInside ? 9 : 11 }),
  el("text", { class: "point-class", x, y: y + 3.5, text: format.prediction(each.prediction, view.of(each.type).isProbability).replace(/^0\./, ".").slice(0, 3) }),
  el("text", { class: "point-label", x, y: Math.sin(turn) < -0.05 ? y - (isInside ? 12 : 15) : y + (isInside ? 20 : 23), text: label }),
  el("title", { text: says }));
}

function dot([x, y], r, source, view) {
  return el("g", { class: `point-far ${tone(source.prediction, view.of(source.type))}`, onclick: () => view.select(source.vertex, source.type) },
    el("circle", { cx: x, cy: y, r }), el("title", { text: `Vertex ${source.vertex}, two hops away` }));
}

function rest([x, y], count) {
  return el("g", { class: "point-rest" }, el("circle", { cx: x, cy: y, r: 15 }), el("text", { class: "point-more", x, y: y + 4, text: `+${count > 999 ? `${Math.floor(count / 1000)}k` : count}` }), el("title", { text: `${format.count(count)} more in-edges` }));
}

function middle(x, y, near, view) {
  const own = view.of(near.type);
  return el("g", { class: `point-middle ${tone(near.prediction, own)}` },
    el("circle", { cx: x, cy: y, r: 24 }),
    el("text", { class: "middle-class", x, y: y + 6, text: format.prediction(near.prediction, own.isProbability) }),
    el("text", { class: "point-label middle-label", x, y: y + 40, text: shortened(near.vertex) }));
}

const shortened = (vertex) => (String(vertex).length > 9 ? `${String(vertex).slice(0, 8)}…` : String(vertex));

export function legend(near, view) {
  const seen = [...new Set([near, ...near.neighbours].map((each) => each.prediction))].filter((value) => value != null);
  const classes = view.isProbability ? [0, 1] : seen.sort((a, b) => a - b).slice(0, 8);
  const line = (name) => el("svg", { class: "legend-line", viewBox: "0 0 22 8", "aria-hidden": "true" }, el("line", { class: `edge ${name}`, x1: 1, y1: 4, x2: 21, y2: 4, "stroke-width": 3 }));
  const entry = (mark, text) => el("span", { class: "legend-entry" }, mark, text);
  return [
    ...classes.map((value) => (view.isProbability ? entry(el("span", { class: `badge tone-${value}`, text: value ? "≥ .5" : "< .5" }), "") : entry(badge(value, view), "class"))),
    ...(near.hasSign ? [entry(line(""), "for"), entry(line("edge-against"), "against")] : []),
    ...(near.neighbours.some((each) => each.why.length) ? [entry(line("edge-recent"), "moved it last")] : []),
  ];
}
