// The neighbourhood of one vertex: GET /v1/explain/{vertex}, drawn and listed, and again while versions go on.

import { Refusal, getJson, query } from "./api.js";
import { byId, el, listed, setText } from "./dom.js";
import * as format from "./format.js";
import { badge, replaced, shareBar, tone, vertexButton } from "./lists.js";
import { drawn, legend } from "./picture.js";

const LIMIT = 60, AGAIN_MS = 2000, SLOW = 20;
const WHY = { added: ["new", "a new edge"], removed: ["gone", "an edge that is gone"], weight: ["weight", "another weight"], message: ["moved", "its own row moved"], factor: ["degree", "a degree changed"] };

export class Neighbourhood {
  constructor(view) {
    this.view = view;
    this.near = null;
    this.asked = 0;
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      const vertex = view.parsed(byId("vertex").value);
      if (vertex !== null) view.select(vertex, view.type);
    });
    byId("find").addEventListener("change", (event) => { if (event.target.name === "hops") this.load(); });
    new ResizeObserver(() => this.near && drawn(byId("picture"), this.near, this.view)).observe(byId("picture"));
    for (const [name, is] of [["pointerover", true], ["pointerout", false], ["focusin", true], ["focusout", false]]) {
      byId("near-body").addEventListener(name, (event) => this.mark(event.target.closest?.("[data-vertex]")?.dataset.vertex, is));
    }
  }

  // Loads the vertex of the view; `version`: only where the service has a newer one than what is shown.
  async load(version = null) {
    const { vertex, vertexType, engine } = this.view;
    if (vertex == null || (version !== null && (version === this.shown || performance.now() < this.next || this.isBusy()))) return;
    const asked = ++this.asked, began = performance.now();
    const hops = byId("find").elements.hops.value;
    try {
      const found = await getJson(`/v1/explain/${encodeURIComponent(vertex)}?${query({ engine, type: vertexType, hops, limit: LIMIT, rows: "false" })}`);
      if (asked !== this.asked) return;
      this.shown = found.version;
      this.near = gathered(found);
      this.draw(found);
    } catch (error) {
      if (asked === this.asked && error instanceof Refusal) this.refuse(error);
    }
    this.next = performance.now() + Math.max(AGAIN_MS, SLOW * (performance.now() - began));
  }

  isBusy() { return byId("near-body").contains(document.activeElement) || byId("near-body").matches(":hover"); }

  refuse(error) {
    this.near = null;
    byId("near-body").dataset.empty = "true";
    setText("near-about", error.message);
  }

  draw(found) {
    const { near, view } = this;
    const body = byId("near-body");
    body.dataset.empty = "false";
    if (document.activeElement !== byId("vertex")) byId("vertex").value = String(near.vertex);
    byId("near-about").replaceChildren(...about(found, near, view.of(near.type)));
    drawn(byId("picture"), near, view);
    byId("legend").replaceChildren(...legend(near, view.of(near.type)));
    const largest = Math.max(...[...near.neighbours, ...near.own].map((each) => Math.abs(each.share)), 0) || 1;
    const rows = [...near.neighbours, ...near.own].sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
    listed(byId("near-rows"), rows, (each) => `${each.type}/${each.vertex}/${each.isOwn}`,
      (each) => el("tr", { data: { vertex: each.vertex } }, el("td"), el("td"), el("td", { class: "wide" })),
      (row, each) => this.fill(row, each, largest));
    if (near.rest) {
      byId("near-rows").append(el("tr", { data: { key: "rest" } }, el("td", { colspan: 2, class: "quiet-text", text: `${format.count(near.rest)} more edges` }), el("td", { class: "wide" }, shareBar(near.restShare / largest, format.amount(near.restShare, near.hasSign), near))));
    }
  }

  fill(row, each, largest) {
    const { near, view } = this, of = view.of(each.type);
    const name = each.isOwn ? el("span", { class: "itself", text: "itself" }) : el("span", { class: "who" }, vertexButton(each.vertex, view, each.type), each.edges > 1 ? el("small", { text: `×${each.edges}`, title: `${each.edges} edges` }) : null, each.why.length ? el("small", { class: "why", text: each.why.map((one) => WHY[one]?.[0] ?? one).join(", "), title: `Moved the latest change: ${each.why.map((one) => WHY[one]?.[1] ?? one).join(", ")}` }) : null);
    const [who, predicted, share] = row.children;
    if (who.textContent !== name.textContent) who.replaceChildren(name);
    replaced(predicted, badge(each.prediction, of));
    replaced(share, shareBar(each.share / largest, format.amount(each.share, near.hasSign), { hasSign: near.hasSign, toneName: tone(each.prediction, of) }));
  }

  mark(vertex, is) {
    for (const each of byId("near-body").querySelectorAll(".marked")) each.classList.remove("marked");
    if (vertex == null || !is) return;
    for (const each of byId("near-body").querySelectorAll(`[data-vertex="${CSS.escape(vertex)}"]`)) each.classList.add("marked");
  }
}

function about(found, near, of) {
  const { change, prediction } = found, parts = [el("b", { text: `Vertex ${near.vertex}` })];
  if (prediction != null) parts.push(" is predicted ", badge(prediction, of));  // of a model with several results there is none
  parts.push(` at version ${format.count(found.version)}. `);
  if (change) {
    parts.push("Version ", format.count(change.version), change.before === change.after ? " moved its row" : " changed it: ");
    if (change.before !== change.after) parts.push(badge(change.before, of), el("span", { class: "arrow", text: "→" }), badge(change.after, of));
    parts.push(". ");
  }
  if (!near.neighbours.length) parts.push("No edge leads to it.");
  else parts.push(near.hasSign ? `Contributions are to column ${found.column} of its row.` : "Contributions are norms of what each adds to the aggregate.");
  return parts;
}

// One entry for each in-neighbour: its edges and aggregations added up.
function gathered(found) {
  const near = { vertex: found.vertex, type: found.type, prediction: found.prediction, hasSign: found.linear, rest: 0, restShare: 0, own: [] };
  const table = new Map();
  for (const aggregation of found.aggregations) {
    for (const each of aggregation.in_neighbours) add(table, each, aggregation.name);
    near.rest += aggregation.others?.count ?? 0;
    near.restShare += aggregation.others?.share ?? 0;
    if (aggregation.own) near.own = [{ vertex: found.vertex, type: found.type, prediction: found.prediction, isOwn: true, edges: 1, why: [], sources: [], share: (near.own[0]?.share ?? 0) + aggregation.own.share }];
  }
  for (const aggregation of found.change?.aggregations ?? []) {
    for (const each of aggregation.in_neighbours) {
      const one = table.get(key(each));
      if (one) one.why = [...new Set([...one.why, ...each.why])];
    }
  }
  for (const source of found.sources ?? []) {
    const one = table.get(key(source));
    if (one) one.sources = further(source);
  }
  near.neighbours = [...table.values()].sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  return near;
}

const key = (each) => `${each.type}/${each.vertex}`;

function add(table, each) {
  const one = table.get(key(each));
  if (!one) table.set(key(each), { vertex: each.vertex, type: each.type, prediction: each.prediction, share: each.share, edges: 1, why: [], sources: [], isOwn: false });
  else { one.share += each.share; one.edges += 1; }
}

function further(source) {
  const table = new Map();
  for (const aggregation of source.aggregations) for (const each of aggregation.in_neighbours) add(table, each);
  const all = [...table.values()].sort((a, b) => b.share - a.share);
  const largest = all[0]?.share || 1;
  return all.map((each) => ({ ...each, part: Math.abs(each.share / largest) }));
}
